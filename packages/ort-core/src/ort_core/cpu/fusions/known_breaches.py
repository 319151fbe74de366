"""Whether a node is known to break what its operator requires of its inputs' shapes, before others stand for it.

Parts ask for less than the whole: an Add broadcasts what BiasSplitGelu refuses. So a pass that writes parts leaves a
node alone whose stated shapes break a precondition, and its kernel says what is wrong.
"""

from __future__ import annotations

from typing import NoReturn

from ort_core.plugin import Rejection
from ort_core.plugin.ir import DataType, KnownDim, Node, TensorType, Value
from ort_core.plugin.kernels import Conditions, find_precondition


def find_breach(node: Node, opset: int) -> Rejection | None:
    """Return what a node breaks whatever its unknown sizes are, ``None`` where nothing is known to be broken."""
    precondition = find_precondition(node.domain, node.op_type, opset)
    if precondition is None:
        return None
    try:
        precondition(_Known(node, opset, [_known_shape(value) for value in node.inputs]))
    except _Breach as breach:
        return Rejection(str(breach), node)
    return None


class _Breach(Exception):
    """A precondition that does not hold."""


class _Known(Conditions):
    __slots__ = ()

    def refuse(self, text: str) -> NoReturn:
        raise _Breach(text)

    def holds_bytes(self, index: int) -> bool:
        value = self.node.input(index)
        found = None if value is None else value.type
        return isinstance(found, TensorType) and found.dtype is DataType.UINT8

    def equal(self, left: KnownDim, right: KnownDim, text: str) -> None:
        if isinstance(left, int) and isinstance(right, int) and left != right:
            self.refuse(text)

    def positive(self, size: KnownDim, text: str) -> None:
        if isinstance(size, int) and size < 1:
            self.refuse(text)


def _known_shape(value: Value | None) -> tuple[KnownDim, ...] | None:
    shape = None if value is None else value.shape
    return None if shape is None or None in shape else tuple(size for size in shape if size is not None)
