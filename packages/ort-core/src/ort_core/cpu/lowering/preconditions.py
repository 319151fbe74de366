"""What kernels require of shapes, stated on symbolic sizes: compiled code of a signature that breaks it does not run.

The numpy kernels run then, and say what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn

from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.steps import NotLowered
from ort_core.cpu.lowering.usual_sizes import meeting_sizes
from ort_core.plugin.ir import DataType, KnownDim, Node, TensorType, Value, minimum
from ort_core.plugin.kernels import Conditions, find_precondition


def require_preconditions(lowering: Lowering, node: Node) -> None:
    """State what an operator requires of its inputs' shapes.

    Raises:
        NotLowered: it never holds.
    """
    precondition = find_precondition(node.domain, node.op_type, lowering.opset_of(node))
    if precondition is not None:
        precondition(_Stated(lowering, node))
    for left, right in sorted(_met_first(node), key=str):
        lowering.require_equal(left, right)


def _met_first(node: Node) -> frozenset[tuple[KnownDim, KnownDim]]:
    """Return the pairs of sizes that are taken for equal in a node's results, and not in what it reads already."""
    met = _met_in(node.outputs)
    return met - _met_in(node.inputs) if met else met  # few models have any


def _met_in(values: Iterable[Value | None]) -> frozenset[tuple[KnownDim, KnownDim]]:
    met: frozenset[tuple[KnownDim, KnownDim]] = frozenset()
    for value in values:
        if value is not None and isinstance(value.type, TensorType) and value.type.shape:
            met |= meeting_sizes(value.type.shape)
    return met


class _Stated(Conditions):
    __slots__ = ("_lowering",)

    def __init__(self, lowering: Lowering, node: Node) -> None:
        super().__init__(node, lowering.opset_of(node), [_shape(value) for value in node.inputs])
        self._lowering = lowering

    def refuse(self, text: str) -> NoReturn:
        raise NotLowered(text)

    def holds_bytes(self, index: int) -> bool:
        value = self.node.input(index)
        found = None if value is None else value.type
        return isinstance(found, TensorType) and found.dtype is DataType.UINT8

    def equal(self, left: KnownDim, right: KnownDim, text: str) -> None:
        self._lowering.require_equal(left, right)

    def positive(self, size: KnownDim, text: str) -> None:
        self._lowering.require_equal(minimum(size, 1), 1)


def _shape(value: object) -> tuple[KnownDim, ...] | None:
    found = getattr(value, "type", None)
    if not isinstance(found, TensorType) or found.shape is None:
        return None
    for size in found.shape:
        if size is None:
            raise NotLowered("a size is unknown")
    return found.shape  # type: ignore[return-value]  # no size is unknown, as was just seen
