"""DmlPartition: a claim as graphs of DirectML, one for each signature of shapes. Safe from many threads."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from ort_core.plugin import (
    CompiledPartition,
    CompileRequest,
    EPFail,
    InvalidArgument,
    KernelFallbackState,
    OutputPlan,
    PartitionPlan,
    RunState,
    output_buffer,
)
from ort_core.plugin.ir import DataType, TensorType, Value
from ort_core.plugin.kernels import RuntimeValue
from ort_ep_directml.abi.hresults import HResultError
from ort_ep_directml.device_holder import DeviceHolder
from ort_ep_directml.index_limits import IndexLimit, index_limits
from ort_ep_directml.lowering.lowered import known_sizes, lower
from ort_ep_directml.lowering.plan import GraphPlan
from ort_ep_directml.lowering.refused import Refused
from ort_ep_directml.options import DmlOptions
from ort_ep_directml.runtime.compiled_graph import CompiledGraph
from ort_ep_directml.runtime.device import DmlDevice

MAXIMUM_GRAPHS = 8  # compiled at once for one partition; each holds its weights on the device
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class DmlPlan(PartitionPlan):
    """The decisions for one signature.

    Attributes:
        graph: what DirectML computes; ``None``: these shapes are computed by numpy kernels.
        limits: what indices among the inputs must lie within.
        refused: why there is no graph.
    """

    graph: GraphPlan | None
    limits: tuple[IndexLimit, ...] = ()
    refused: str | None = None


class DmlPartition(CompiledPartition):
    """One partition.

    Args:
        request: the partition.
        holder: the device.
        options: of the session's provider.

    Raises:
        EPFail: all sizes are fixed, and DirectML does not take the graph.
    """

    def __init__(self, request: CompileRequest, holder: DeviceHolder, options: DmlOptions) -> None:
        self._request, self._holder, self._options = request, holder, options
        self._dtypes = tuple(_dtype(value) for value in request.graph.outputs)
        self._graphs: OrderedDict[int, tuple[GraphPlan, CompiledGraph]] = OrderedDict()
        self._lock = threading.Lock()
        self._fallback = KernelFallbackState(request)
        shapes = [_fixed_shape(value) for value in request.graph.inputs]
        if None not in shapes:
            self.plan(shapes, {})

    def plan(self, shapes: Sequence[tuple[int, ...] | None], known_values: Mapping[int, np.ndarray]) -> PartitionPlan:
        """Lower and compile the partition for these shapes.

        Raises:
            EPFail: DirectML does not take the graph, or the device was lost more than once.
        """
        sizes = [shape or () for shape in shapes]
        try:
            graph = self._lowered(sizes)
            limits = self._limits(sizes)
        except Refused as refused:
            self._fallback.say(refused.reason)
            outputs = tuple(OutputPlan(dtype) for dtype in self._dtypes)
            return DmlPlan(outputs=outputs, graph=None, refused=refused.reason)
        self._attempt(lambda device: self._compiled(device, graph), "compiled")
        found = {port.index: port.shape for port in graph.outputs}
        outputs = tuple(OutputPlan(dtype, found[index]) for index, dtype in enumerate(self._dtypes))
        return DmlPlan(outputs=outputs, graph=graph, limits=limits)

    def run(
        self,
        plan: PartitionPlan,
        inputs: Sequence[RuntimeValue],
        outputs: list[RuntimeValue],
        run_state: RunState,
    ) -> None:
        """Compute the outputs; buffers that were handed in are filled. Once more where the device was lost.

        Raises:
            EPFail: it was lost again, or has not enough memory.
        """
        assert isinstance(plan, DmlPlan)
        run_state.guard.check()
        graph, beyond = plan.graph, plan.refused or self._beyond(plan, inputs)
        if graph is None or beyond is not None:
            self._fallback.run(beyond or "no graph", inputs, outputs, run_state)
            return
        fed = {port.index: _array(inputs[port.index], port.name) for port in graph.inputs}
        targets: dict[int, np.ndarray] = {}
        for port in graph.outputs:
            targets[port.index] = output_buffer(outputs[port.index], port.shape, port.dtype, run_state)
        spins = self._options.enable_cpu_sync_spinning
        self._attempt(lambda device: self._compiled(device, graph).run(fed, targets, spins=spins), "run")
        for index, target in targets.items():
            outputs[index] = target

    def close(self) -> None:
        """Give back compiled graphs and their memory."""
        with self._lock:
            self._graphs.clear()

    def _lowered(self, shapes: Sequence[tuple[int, ...]]) -> GraphPlan:
        """Return the plan for some shapes.

        Raises:
            Refused: DirectML cannot compute them.
        """
        level = self._attempt(lambda device: device.facts.level, "planned")
        return lower(self._request, shapes, level)

    def _limits(self, shapes: Sequence[tuple[int, ...]]) -> tuple[IndexLimit, ...]:
        view, inputs = self._request.view(), self._request.graph.inputs
        return index_limits(view, view.nodes, inputs, known_sizes(view.nodes, inputs, shapes))

    def _beyond(self, plan: DmlPlan, inputs: Sequence[RuntimeValue]) -> str | None:
        """Return how indices lie outside of their axes, ``None`` where none do; numpy kernels have the words for it."""
        broken = (limit.broken_by(_array(inputs[limit.index], limit.name)) for limit in plan.limits)
        return next((why for why in broken if why is not None), None)

    def _attempt(self, work: Callable[[DmlDevice], Result], doing: str) -> Result:
        """Do something on the device; once more on a new one where it was lost.

        Raises:
            EPFail: it failed for another reason, or the new device was lost, too.
        """
        try:
            with self._holder.use() as device:
                try:
                    return work(device)
                except HResultError as error:
                    if not error.loses_device:
                        raise
                    lost, reason = device, str(error)  # the error itself would hold this frame
            with self._lock:
                self._graphs.clear()
            self._holder.replace(lost, reason)
            with self._holder.use() as device:
                return work(device)
        except HResultError as error:
            raise EPFail(f"partition {self._request.name!r} could not be {doing}: {error}") from error

    def _compiled(self, device: DmlDevice, plan: GraphPlan) -> CompiledGraph:
        """Return the compiled graph of a plan; the least recently used one makes room."""
        with self._lock:
            found = self._graphs.get(id(plan))
            if found is not None and found[1].device is device:
                self._graphs.move_to_end(id(plan))
                return found[1]
        graph = CompiledGraph(device, plan, self._options.execution_flags)
        with self._lock:
            self._graphs[id(plan)] = (plan, graph)  # the plan is kept, so that its id stays its own
            if len(self._graphs) > MAXIMUM_GRAPHS:
                self._graphs.popitem(last=False)
        return graph


def _fixed_shape(value: Value) -> tuple[int, ...] | None:
    sizes = [size for size in value.shape or () if isinstance(size, int)]
    return None if value.shape is None or len(sizes) != len(value.shape) else tuple(sizes)


def _dtype(value: Value) -> DataType:
    assert isinstance(value.type, TensorType), "claims hold tensors only"
    return value.type.dtype


def _array(given: RuntimeValue, name: str) -> np.ndarray:
    if not isinstance(given, np.ndarray):
        raise InvalidArgument(f"input {name!r} is a {type(given).__name__}, expected an array")
    return given
