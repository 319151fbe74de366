"""TensorView: a tensor as strides over a buffer. Transposes, slices, broadcasts and splits change the view only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ort_core.plugin import InvalidArgument
from ort_core.plugin.ir import DataType

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TensorView:
    """Elements of a buffer: ``offset`` and ``strides`` count elements; a stride may be zero or negative."""

    buffer: int
    dtype: DataType
    shape: Shape
    strides: Shape
    offset: int = 0

    @classmethod
    def dense(cls, buffer: int, dtype: DataType, shape: Shape) -> TensorView:
        """Return the row-major view of a whole buffer."""
        return cls(buffer, dtype, shape, dense_strides(shape))

    @classmethod
    def in_order(cls, buffer: int, dtype: DataType, shape: Shape, order: Shape) -> TensorView:
        """Return the view of a whole buffer in which axes lie in an order, the slowest first (empty: row-major)."""
        if not order:
            return cls.dense(buffer, dtype, shape)
        return cls.dense(buffer, dtype, tuple(shape[axis] for axis in order)).permuted(inverse(order))

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def is_dense(self) -> bool:
        """Whether the elements lie one behind the other in row-major order."""
        expected = dense_strides(self.shape)
        return self.size == 0 or all(
            size == 1 or found == wanted for size, found, wanted in zip(self.shape, self.strides, expected, strict=True)
        )

    @property
    def order(self) -> Shape | None:
        """The order of axes in which the elements lie without gaps, empty where row-major; ``None``: there are gaps."""
        if self.is_dense:
            return ()
        order = tuple(sorted(range(len(self.shape)), key=lambda axis: (-self.strides[axis], axis)))
        return order if self.permuted(order).is_dense else None

    def laid_out(self, order: Shape) -> TensorView | None:
        """Return the view if its elements lie without gaps in an order of axes (empty: row-major), else ``None``.

        Strides of axes of one place, which mean nothing, become those of that order.
        """
        wanted = TensorView.in_order(self.buffer, self.dtype, self.shape, order)
        pairs = zip(self.shape, self.strides, wanted.strides, strict=True)
        is_equal = all(size == 1 or found == stride for size, found, stride in pairs)
        return replace(wanted, offset=self.offset) if is_equal else None

    def permuted(self, order: Sequence[int]) -> TensorView:
        """Return the view with its axes in another order."""
        return replace(self, shape=tuple(self.shape[a] for a in order), strides=tuple(self.strides[a] for a in order))

    def sliced(self, axis: int, start: int, step: int, size: int) -> TensorView:
        """Return ``size`` places of an axis from ``start`` on, each ``step`` further."""
        return replace(
            self,
            shape=(*self.shape[:axis], size, *self.shape[axis + 1 :]),
            strides=(*self.strides[:axis], self.strides[axis] * step, *self.strides[axis + 1 :]),
            offset=self.offset + start * self.strides[axis] if size else self.offset,
        )

    def at(self, index: int) -> TensorView:
        """Return one place of the first axis, without the axis."""
        found = self.sliced(0, index, 1, 1)
        return replace(found, shape=found.shape[1:], strides=found.strides[1:])

    def broadcast_to(self, shape: Shape) -> TensorView:
        """Return the view repeated to a larger shape, by numpy's rule.

        Raises:
            InvalidArgument: it is not of that shape where it has more than one place: kernels would read beyond it.
        """
        added = len(shape) - len(self.shape)
        pairs = zip(self.shape, shape[max(added, 0) :], strict=False)
        if added < 0 or any(size != 1 and size != wanted for size, wanted in pairs):
            raise InvalidArgument(f"a tensor of shape {list(self.shape)} is not repeated to {list(shape)}")
        strides = [0] * added + [
            0 if size == 1 and wanted != 1 else stride
            for size, stride, wanted in zip(self.shape, self.strides, shape[added:], strict=True)
        ]
        return replace(self, shape=shape, strides=tuple(strides))

    def reshaped(self, shape: Shape) -> TensorView | None:
        """Return the view of the same elements in another shape, or ``None`` where that needs a copy."""
        if not self.is_dense:
            kept = [(size, stride) for size, stride in zip(self.shape, self.strides, strict=True) if size != 1]
            if [size for size, _ in kept] != [size for size in shape if size != 1]:
                return None
            left = iter(kept)
            return replace(self, shape=shape, strides=tuple(0 if size == 1 else next(left)[1] for size in shape))
        return replace(self, shape=shape, strides=dense_strides(shape))

    def regrouped(self, shape: Shape) -> TensorView:
        """Return a view without gaps in another shape of as many elements."""
        found = self.reshaped(shape)
        assert found is not None, f"{self} has gaps"
        return found


def inverse(order: Sequence[int]) -> Shape:
    """Return the permutation that undoes another."""
    return tuple(sorted(range(len(order)), key=lambda axis: order[axis]))


def dense_strides(shape: Shape) -> Shape:
    """Return row-major strides in elements."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def collapse(shape: Shape, strides: Sequence[Shape]) -> tuple[Shape, tuple[Shape, ...]]:
    """Join neighboring axes that every operand walks through as if they were one, and drop axes of one place.

    Args:
        shape: the sizes that all operands share.
        strides: of each operand, one per axis.
    """
    sizes: list[int] = []
    columns: list[list[int]] = []
    for axis, size in enumerate(shape):
        if size == 1:
            continue
        column = [operand[axis] for operand in strides]
        if sizes and all(before == here * size for before, here in zip(columns[-1], column, strict=True)):
            sizes[-1] *= size
            columns[-1] = column
        else:
            sizes.append(size)
            columns.append(column)
    return tuple(sizes), tuple(tuple(column[k] for column in columns) for k in range(len(strides)))
