"""BodyWiring: where a round of a body's program reads and writes, as numbered operands.

    body(number, goes_on, h, x) -> (goes_on', h', y)     reads formal inputs and values of the graphs around it

A result of the program that several
outputs of the body share is written where the first of them wants it, and copied to the others; so is what a body
passes on as it was given.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ort_core.plugin import Rejection, frozen

if TYPE_CHECKING:
    from ort_core.cpu.partition.bodies import CompiledBody
    from ort_core.cpu.partition.partition import CpuPartition
    from ort_core.cpu.program.program import NativeProgram
    from ort_core.plugin.ir import Value


@frozen
class BodyWiring:
    """How the one program of a body is wired to the body.

    Operands are numbered: the formal inputs of the body, then ``others``.

    Attributes:
        program: the program.
        inputs: the body's formal inputs.
        others: values of the graphs around the body that it reads, and constants that it returns.
        reads: for each input of the program its operand.
        made: for each output of the body the output of the program that it is, or ``None`` where it is passed on.
        passed: for each output that is passed on its operand; -1 for the others.
    """

    program: NativeProgram
    inputs: tuple[Value, ...]
    others: tuple[Value | np.ndarray, ...]
    reads: tuple[int, ...]
    made: tuple[int | None, ...]
    passed: tuple[int, ...]

    @property
    def captured(self) -> tuple[Value, ...]:
        """The values of the graphs around the body, in the order of ``others``."""
        return tuple(each for each in self.others if not isinstance(each, np.ndarray))

    def is_kept(self, output: int, formal: int) -> bool:
        """Return whether an output is a formal input, unchanged."""
        return self.passed[output] == formal


def wire_body(body: CompiledBody[CpuPartition]) -> BodyWiring | Rejection:
    """Return how a body's program is wired, or why it is not one program."""
    whole = body.partition.whole_program()
    if isinstance(whole, Rejection):
        return whole
    if sorted(whole.writes) != list(range(len(whole.program.record.outputs))):
        return Rejection("the program makes what the body does not return")
    graph = body.graph
    operands = {value: number for number, value in enumerate(graph.inputs)}

    def operand_of(value: Value) -> int:
        return operands.setdefault(value, len(operands))

    reads = tuple([operand_of(body.reads[place]) for place in whole.reads])
    numbers = [body.made(index) for index in range(len(graph.outputs))]
    made = tuple([None if number is None else whole.writes[number] for number in numbers])
    passed = tuple([-1 if m is not None else operand_of(v) for v, m in zip(graph.outputs, made, strict=True)])
    others = [
        value.constant.array() if value.graph is graph and value.constant is not None else value
        for value in list(operands)[len(graph.inputs) :]
    ]
    return BodyWiring(whole.program, tuple(graph.inputs), tuple(others), reads, made, passed)


def shared_results(made: Sequence[int | None]) -> dict[int, int]:
    """Return for each result of a program that the body returns the first output that it is."""
    first: dict[int, int] = {}
    for output, number in enumerate(made):
        if number is not None:
            first.setdefault(number, output)
    return first
