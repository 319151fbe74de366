"""The parts of a CPU partition as facts: steps of native programs with their memory, threads and work, and kernels.

With sizes everything is a number; without, or where a size is known by no one, it is the formula.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ort_core.cpu.inspection.executions import NATIVE, NUMPY
from ort_core.cpu.lowering.steps import operators_text
from ort_core.cpu.program.program_text import facts_of_program, result_text
from ort_core.plugin import NodeExecution, StepFacts, output_names

if TYPE_CHECKING:
    from ort_core.cpu.partition.segments import PartitionSegment


def facts_of_parts(
    parts: Sequence[PartitionSegment], told: Mapping[str, NodeExecution], sizes: Mapping[str, int]
) -> Iterator[StepFacts]:
    """Yield the steps of a partition in running order.

    Args:
        parts: native programs, native calls and kernels.
        told: how nodes run, by the names of their outputs.
        sizes: the named sizes, as far as they are known.
    """
    for number, part in enumerate(parts):
        nodes = list(part.kernels.nodes)
        if part.program is not None:
            yield from facts_of_program(part.program, number, sizes)
        elif part.call is not None:
            yield StepFacts(str(number), NATIVE, f"{operators_text(nodes)}, a native call", result_text(nodes, sizes))
        else:
            for node in nodes:
                how = next((told[name] for name in output_names(node) if name in told), NodeExecution.of(node, NUMPY))
                yield StepFacts(str(number), how.how, node.op_type, result_text([node], sizes), reason=how.reason)
