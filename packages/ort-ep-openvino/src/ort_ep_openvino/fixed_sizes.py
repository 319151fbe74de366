"""FixedSizesPartition: a claim of open sizes as one compiled model of fixed sizes for each combination that is run."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ort_core.plugin import CompiledPartition, KernelFallbackState, PartitionPlan, Rejection, RunState
from ort_core.plugin.claims import InnerSizes
from ort_core.plugin.ir import Graph
from ort_core.plugin.kernels import RuntimeValue
from ort_ep_openvino.compiled import OpenVinoPartition
from ort_ep_openvino.narrowing import has_odd_size
from ort_ep_openvino.output_shapes import OutputShapes

Shapes = tuple[tuple[int, ...], ...]
KEPT = 16  # compiled models of one claim; each has its own form of the weights


class FixedSizesPartition(CompiledPartition):
    """A partition that is compiled in the first run of each combination of input shapes. Safe from threads.

    Args:
        graph: the partition's graph, for its border.
        compiled_for: returns the partition for input shapes; it may raise ``EPFail``.
        fallback: computes the runs on tensors without elements.
    """

    def __init__(
        self, graph: Graph, compiled_for: Callable[[Shapes], OpenVinoPartition], fallback: KernelFallbackState
    ) -> None:
        self._compiled_for, self._fallback = compiled_for, fallback
        self._shapes, self._inner = OutputShapes(graph), InnerSizes(graph)
        self._made: OrderedDict[Shapes, OpenVinoPartition] = OrderedDict()
        self._lock = threading.Lock()

    def plan(self, shapes: Sequence[tuple[int, ...] | None], known_values: Mapping[int, np.ndarray]) -> PartitionPlan:
        """Return the shapes of the outputs where they follow from those of the inputs."""
        return self._shapes.plan(shapes)

    def run(
        self,
        plan: PartitionPlan,
        inputs: Sequence[RuntimeValue],
        outputs: list[RuntimeValue],
        run_state: RunState,
    ) -> None:
        """Run the model of these sizes, which is compiled where no run had them.

        Raises:
            EPFail: OpenVINO did not compile or run it.
        """
        shapes = tuple(tuple(array.shape) for array in inputs)
        if has_odd_size(shapes):
            self._fallback.run("an input has no elements, or more than OpenVINO counts", inputs, outputs, run_state)
            return
        if not self._inner.are_all_positive(shapes):
            self._fallback.run("a value within has no elements", inputs, outputs, run_state)
            return
        self._of(shapes).run(plan, inputs, outputs, run_state)

    def _of(self, shapes: Shapes) -> OpenVinoPartition:
        with self._lock:
            found = self._made.get(shapes)
            if found is None:
                found = self._made[shapes] = self._compiled_for(shapes)
            self._made.move_to_end(shapes)
            if len(self._made) > KEPT:
                self._made.popitem(last=False)  # a run that has it goes on; its memory goes with the last of them
            return found

    def serialize(self) -> bytes | Rejection:
        """Return why nothing is stored."""
        return Rejection("models of fixed sizes are compiled when a run has those sizes")

    def close(self) -> None:
        """Give back all compiled models."""
        with self._lock:
            for each in self._made.values():
                each.close()
            self._made.clear()
