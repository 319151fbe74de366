"""Requirements: what an operator asks of its operands' sizes, checked when a program is lowered.

Kernels read as far as their operator's meaning says, so that operands of other sizes would be read beyond. An operator
that is lowered in parts is checked as a whole before the first of them: a part may repeat what the whole refuses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from ort_core.plugin import InvalidArgument
from ort_core.plugin.ir import DataType, Node, TensorType, Value
from ort_core.plugin.kernels import Conditions, find_precondition
from ort_ep_cuda.lowering.builder import ProgramBuilder


@dataclass(frozen=True, slots=True)
class Whole:
    """A node of the claim that is lowered in parts, with the values of the lowered graph that it reads."""

    node: Node
    opset: int
    inputs: tuple[Value | None, ...]


def require(whole: Whole, builder: ProgramBuilder) -> None:
    """Check the sizes that a node is lowered for.

    Raises:
        InvalidArgument: its operator does not take them; the message names the node.
    """
    precondition = find_precondition(whole.node.domain, whole.node.op_type, whole.opset)
    if precondition is not None:
        shapes = [None if value is None else builder.shape(value) for value in whole.inputs]
        precondition(_LoweredConditions(whole.node, whole.opset, shapes))


class _LoweredConditions(Conditions):
    __slots__ = ()

    def __init__(self, node: Node, opset: int, shapes: Sequence[tuple[int, ...] | None]) -> None:
        super().__init__(node, opset, shapes)

    def refuse(self, text: str) -> NoReturn:
        raise InvalidArgument(f"{self.node.describe()}: {self.node.op_type}: {text}")

    def holds_bytes(self, index: int) -> bool:
        value = self.node.input(index)
        found = None if value is None else value.type
        return isinstance(found, TensorType) and found.dtype is DataType.UINT8
