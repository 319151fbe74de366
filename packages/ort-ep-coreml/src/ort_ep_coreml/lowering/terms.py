"""Term: an operand with Python's arithmetic, so that a rule reads as its formula; each operation is appended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union

import numpy as np

from ort_core.plugin.claims import dtype_of
from ort_core.plugin.ir import Node, Value
from ort_ep_coreml.lowering.emission import EmissionState, narrow
from ort_ep_coreml.mil import Operand

_MIL = {
    np.dtype(dtype): name
    for dtype, name in ((np.float32, "fp32"), (np.float16, "fp16"), (np.int32, "int32"), (np.int64, "int32"))
}
Number = Union["Term", float, np.ndarray]


@dataclass(frozen=True, slots=True)
class Term:
    """A value of the program.

    Attributes:
        to: where operations are appended.
        operand: the value.
        dtype: the element type that numbers beside it get.
    """

    to: EmissionState
    operand: Operand
    dtype: np.dtype

    def __add__(self, other: Number) -> Term:
        return self._joined("add", self, other)

    def __radd__(self, other: Number) -> Term:
        return self._joined("add", other, self)

    def __sub__(self, other: Number) -> Term:
        return self._joined("sub", self, other)

    def __rsub__(self, other: Number) -> Term:
        return self._joined("sub", other, self)

    def __mul__(self, other: Number) -> Term:
        return self._joined("mul", self, other)

    def __rmul__(self, other: Number) -> Term:
        return self._joined("mul", other, self)

    def __truediv__(self, other: Number) -> Term:
        return self._joined("real_div", self, other)

    def __rtruediv__(self, other: Number) -> Term:
        return self._joined("real_div", other, self)

    def __neg__(self) -> Term:
        return self * -1

    def __matmul__(self, other: Term | np.ndarray) -> Term:
        return self._joined("matmul", self, other)

    def with_(self, kind: str, other: Number) -> Term:
        """Return what an operation of two inputs gives."""
        return self._joined(kind, self, other)

    def do(self, kind: str, **inputs: Operand) -> Term:
        """Return what an operation of this input and further parameters gives, in the same element type."""
        return Term(self.to, self.to.emit(kind, x=self.operand, **inputs), self.dtype)

    def reduced(self, kind: str, *axes: int, keeps: bool = True) -> Term:
        """Return a reduction along axes."""
        return self.do(kind, axes=np.array(axes, np.int32), keep_dims=keeps)

    def reshaped(self, *sizes: int) -> Term:
        """Return a reshape; one size may be -1."""
        return self.do("reshape", shape=np.array(sizes, np.int32))

    def transposed(self, *axes: int) -> Term:
        """Return the axes in another order."""
        return self if axes == tuple(range(len(axes))) else self.do("transpose", perm=np.array(axes, np.int32))

    def cut(self, axis: int, start: int, stop: int | None, rank: int) -> Term:
        """Return a range of one axis, to its end where ``stop`` is ``None``."""
        begin, end = np.zeros(rank, np.int32), np.zeros(rank, np.int32)
        opens, closes = np.ones(rank, np.bool_), np.ones(rank, np.bool_)
        begin[axis], opens[axis] = start, start == 0
        if stop is not None:
            end[axis], closes[axis] = stop, False
        return self.do("slice_by_index", begin=begin, end=end, begin_mask=opens, end_mask=closes)

    def cast(self, dtype: np.dtype, name: str) -> Term:
        """Return the elements in another type, which has this name in MIL."""
        return Term(self.to, self.to.emit("cast", x=self.operand, dtype=name), dtype)

    def number(self, value: float | np.ndarray) -> np.ndarray:
        """Return a number, or several, in this element type."""
        return narrow(np.asarray(value, self.dtype))

    def _joined(self, kind: str, left: Number, right: Number) -> Term:
        x, y = (each.operand if isinstance(each, Term) else self.number(each) for each in (left, right))
        return Term(self.to, self.to.emit(kind, x=x, y=y), self.dtype)


def term(to: EmissionState, value: Value | None) -> Term:
    """Return a value of the graph as a term."""
    dtype = dtype_of(value)
    assert dtype is not None, "rules refuse values without an element type"
    return Term(to, to.operand(value), dtype.numpy)


def first(to: EmissionState, node: Node) -> Term:
    """Return the first input as a term."""
    return term(to, node.input(0))


def chosen(condition: Term, yes: Number, no: Number, like: Term) -> Term:
    """Return elements of one or the other, by a condition of the shape of the result.

    coremltools takes the shape of a choice from what is chosen alone: two numbers get the condition's before.
    """
    if not isinstance(yes, Term) and not isinstance(no, Term):
        no = Term(like.to, like.to.emit("cast", x=condition.operand, dtype=_MIL[like.dtype]), like.dtype) * 0 + no
    a, b = (each.operand if isinstance(each, Term) else like.number(each) for each in (yes, no))
    return Term(like.to, like.to.emit("select", cond=condition.operand, a=a, b=b), like.dtype)


def joined(parts: list[Term], axis: int) -> Term:
    """Return terms one behind the other."""
    if len(parts) == 1:
        return parts[0]
    operands = tuple(part.operand for part in parts)
    return Term(parts[0].to, parts[0].to.emit("concat", values=operands, axis=axis), parts[0].dtype)  # type: ignore[arg-type]  # no lists
