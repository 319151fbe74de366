"""TemplatePartition: a compiled claim. Immutable; what changes during a run belongs to the run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ort_core.plugin import CompileRequest, EagerPartition, RunState
from ort_core.plugin.ir import Value
from ort_core.plugin.kernels import RuntimeValue
from ort_ep_template.lowering import LOWERINGS


class TemplatePartition(EagerPartition):
    """The programs of a partition's nodes, in order, and its constants. Any number of threads may run it at once."""

    def __init__(self, request: CompileRequest) -> None:
        super().__init__(len(request.graph.outputs))
        graph = request.graph
        self._inputs, self._outputs = graph.inputs, graph.outputs
        self._steps = [(LOWERINGS[node.op_type](node), tuple(node.present_inputs()), node.output) for node in graph]
        self._constants: dict[Value, RuntimeValue] = {
            value: value.constant.array() for value in graph.initializers if value.constant is not None
        }

    def compute(self, inputs: Sequence[RuntimeValue], run_state: RunState) -> Sequence[RuntimeValue]:
        """Run the programs; the base class puts the results where the caller wants them."""
        values = {**self._constants, **dict(zip(self._inputs, inputs, strict=True))}
        with np.errstate(all="ignore"):  # infinities and NaN are results, not mistakes
            for program, sources, target in self._steps:
                run_state.guard.check()
                values[target] = np.asarray(program(*(values[source] for source in sources)))
        return [values[output] for output in self._outputs]
