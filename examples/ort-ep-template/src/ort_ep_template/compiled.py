"""TemplatePartition: a compiled claim. Immutable; what changes during a run belongs to the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ort_core.plugin import CompiledPartition, CompileRequest, OutputPlan, PartitionPlan, RunState
from ort_core.plugin.ir import Value
from ort_core.plugin.kernels import RuntimeValue
from ort_ep_template.lowering import LOWERINGS


class TemplatePartition(CompiledPartition):
    """The programs of a partition's nodes, in order, and its constants. Any number of threads may run it at once."""

    plans_by_shape = False  # one plan serves all sizes: outputs are allocated when their shape is known

    def __init__(self, request: CompileRequest) -> None:
        graph = request.graph
        self._inputs, self._outputs = graph.inputs, graph.outputs
        self._steps = [(LOWERINGS[node.op_type], tuple(node.present_inputs()), node.output) for node in graph]
        self._constants: dict[Value, RuntimeValue] = {
            value: value.constant.array() for value in graph.initializers if value.constant is not None
        }
        self._plan = PartitionPlan(tuple(OutputPlan() for _ in graph.outputs))

    def plan(self, shapes: Sequence[tuple[int, ...] | None], known_values: Mapping[int, np.ndarray]) -> PartitionPlan:
        """Return the one plan."""
        return self._plan

    def run(
        self,
        plan: PartitionPlan,
        inputs: Sequence[RuntimeValue],
        outputs: list[RuntimeValue],
        workspace: Mapping[str, object],
        run_state: RunState,
    ) -> None:
        """Run the programs; a buffer that was handed in is filled, an empty place gets a new array."""
        values = {**self._constants, **dict(zip(self._inputs, inputs, strict=True))}
        with np.errstate(all="ignore"):  # infinities and NaN are results, not mistakes
            for program, sources, target in self._steps:
                run_state.guard.check()
                values[target] = np.asarray(program(*(values[source] for source in sources)))
        for index, output in enumerate(self._outputs):
            buffer = outputs[index]
            if isinstance(buffer, np.ndarray):
                np.copyto(buffer, values[output])
            else:
                outputs[index] = values[output]
