"""Buffers and views: where the elements of a value lie, as symbolic sizes, strides and offsets."""

from __future__ import annotations

import enum
import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ort_core.plugin import frozen
from ort_core.plugin.ir import Call, DataType, KnownDim, SymbolicDim, maximum, minimum

_SHAPES = 4096  # remembered with their strides and counts: layers share a few, and products of symbols take long
_ITEMSIZES = {dtype: max(1, dtype.bits // 8) for dtype in DataType}


class Place(enum.Enum):
    """Who owns a buffer's memory."""

    ARENA = "arena"
    INPUT = "input"
    OUTPUT = "output"
    CONSTANT = "constant"
    SCRATCH = "scratch"
    ERROR = "error"


@dataclass(eq=False, slots=True)
class Buffer:
    """A run of elements. ``index`` numbers inputs and outputs; ``array`` is a constant's data.

    ``count`` is the number of elements; of SCRATCH buffers, elements for each thread.
    """

    dtype: DataType
    count: KnownDim
    place: Place
    index: int = 0
    array: np.ndarray | None = None

    @property
    def itemsize(self) -> int:
        """Bytes of an element in memory."""
        return _ITEMSIZES[self.dtype]


@frozen
class View:
    """Elements of a buffer by index: element ``i`` lies at ``offset + sum(i * strides)``, in elements.

    ``order`` names the axes from the outermost in memory to the innermost where that is not row-major order, for
    views that fill memory without gaps (channels-last activations).
    """

    buffer: Buffer
    shape: tuple[KnownDim, ...]
    strides: tuple[KnownDim, ...]
    offset: KnownDim = 0
    order: tuple[int, ...] = ()

    @property
    def dtype(self) -> DataType:
        """The element type."""
        return self.buffer.dtype

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements lie in row-major order without gaps (sizes of 1 do not matter)."""
        expected = dense_strides(self.shape)
        return all(s == e or d == 1 for s, e, d in zip(self.strides, expected, self.shape))

    def reshaped(self, shape: Sequence[KnownDim]) -> View:
        """Return a view of the same elements in another shape; only for contiguous views."""
        assert self.is_contiguous
        return View(self.buffer, tuple(shape), dense_strides(shape), self.offset)

    def with_rows(self, rows: Sequence[KnownDim]) -> View | None:
        """Return the view with its rows (all axes but the last) counted by other axes, ``None`` if they lie apart."""
        if len(self.shape) < 2:
            return None
        sizes, (strides,) = collapse(self.shape[:-1], [self.strides[:-1]])
        if len(sizes) != 1:
            return None
        step = strides[0] if sizes != [1] else self.shape[-1]
        steps = tuple(each * step for each in dense_strides(rows))
        return View(self.buffer, (*rows, self.shape[-1]), (*steps, self.strides[-1]), self.offset)

    def transposed(self, order: Sequence[int]) -> View:
        """Return the view with its axes in another order."""
        shape, strides = tuple(self.shape[a] for a in order), tuple(self.strides[a] for a in order)
        return View(self.buffer, shape, strides, self.offset)


def ordered_strides(shape: Sequence[KnownDim], order: Sequence[int]) -> tuple[KnownDim, ...]:
    """Return the strides of a shape whose axes lie in memory in the given order, outermost first."""
    strides: list[KnownDim] = [0] * len(shape)
    step: KnownDim = 1
    for axis in reversed(order):
        strides[axis] = step
        step = step * shape[axis]
    return tuple(strides)


def channels_last(rank: int) -> tuple[int, ...]:
    """Return the memory order of channels-last activations: batch, space, channels."""
    return (0, *range(2, rank), 1)


def dense_strides(shape: Sequence[KnownDim]) -> tuple[KnownDim, ...]:
    """Return the row-major strides of a shape."""
    return _dense_strides(tuple(shape))


@functools.lru_cache(_SHAPES)
def _dense_strides(shape: tuple[KnownDim, ...]) -> tuple[KnownDim, ...]:
    strides: list[KnownDim] = []
    step: KnownDim = 1
    for size in reversed(shape):
        strides.append(step)
        step = step * size
    return tuple(reversed(strides))


def count_of(shape: Sequence[KnownDim]) -> KnownDim:
    """Return the number of elements of a shape."""
    return _count_of(tuple(shape))


@functools.lru_cache(_SHAPES)
def _count_of(shape: tuple[KnownDim, ...]) -> KnownDim:
    total: KnownDim = 1
    for size in shape:
        total = total * size
    return total


def broadcast_strides(view: View, shape: Sequence[KnownDim]) -> tuple[KnownDim, ...] | None:
    """Return the strides to read a view over ``shape``, ``None`` when only run time tells what broadcasts."""
    missing = len(shape) - len(view.shape)
    if missing < 0:
        return None
    if view.shape == tuple(shape) and 1 not in view.shape:
        return view.strides
    strides: list[KnownDim] = [0] * missing
    for size, stride, wanted in zip(view.shape, view.strides, shape[missing:]):
        if size == wanted:
            strides.append(0 if size == 1 else stride)
        elif size == 1:
            strides.append(0)
        else:
            return None
    return tuple(strides)


def run_time_strides(view: View, shape: Sequence[KnownDim]) -> tuple[KnownDim, ...]:
    """Return the strides to read a view over ``shape``; a size that may be 1 at run time makes its stride 0 then.

    Only right if each size is 1 or the one wanted: the caller must require it.
    """
    strides: list[KnownDim] = [0] * (len(shape) - len(view.shape))
    for size, stride, wanted in zip(view.shape, view.strides, shape[len(strides) :]):
        strides.append(stride if size == wanted else stride * minimum(size - 1, 1))
    return tuple(strides)


def is_open(stride: KnownDim) -> bool:
    """Return whether a stride is 0 or 1, which only a run tells: what ``run_time_strides`` gives of a dense axis."""
    if not isinstance(stride, SymbolicDim) or not stride.is_atom:
        return False
    atom = stride.terms[0][0][0][0]
    return isinstance(atom, Call) and atom.function == "min" and 1 in atom.arguments


def collapse(
    shape: Sequence[KnownDim], operands: Sequence[Sequence[KnownDim]]
) -> tuple[list[KnownDim], list[list[KnownDim]]]:
    """Merge neighboring dimensions that all operands step through as one; drop those of size 1. Keeps at least one."""
    sizes: list[KnownDim] = []
    strides: list[list[KnownDim]] = [[] for _ in operands]
    for axis, size in enumerate(shape):
        if size == 1:
            continue
        if sizes and all(s[-1] == o[axis] * size for s, o in zip(strides, operands)):
            sizes[-1] = sizes[-1] * size
            for collected, operand in zip(strides, operands):
                collected[-1] = operand[axis]
            continue
        sizes.append(size)
        for collected, operand in zip(strides, operands):
            collected.append(operand[axis])
    if not sizes:
        return [1], [[0] for _ in operands]
    return sizes, strides


def tallest_last(
    sizes: Sequence[KnownDim], strides: Sequence[Sequence[KnownDim]]
) -> tuple[list[KnownDim], list[list[KnownDim]]]:
    """Reorder dimensions, and the operands' strides with them, so that the last one is the largest, at run time too.

    Only right where any order does, as for the rows of a product with one matrix on its right: of a sequence before its
    batch, kernels would else see many matrices of a few rows each.
    """
    ordered, steps = _tallest_last(tuple(sizes), tuple([tuple(each) for each in strides]))
    return list(ordered), [list(each) for each in steps]


@functools.lru_cache(_SHAPES)
def _tallest_last(
    sizes: tuple[KnownDim, ...], strides: tuple[tuple[KnownDim, ...], ...]
) -> tuple[list[KnownDim], list[list[KnownDim]]]:
    ordered, steps = list(sizes), [list(each) for each in strides]
    for other in range(len(ordered) - 1):
        keeps = minimum(maximum(ordered[-1] - ordered[other] + 1, 0), 1)  # 1 where the last is not the smaller one
        for row in (ordered, *steps):
            row[other], row[-1] = _chosen(keeps, row[other], row[-1]), _chosen(keeps, row[-1], row[other])
    return ordered, steps


def _chosen(condition: KnownDim, first: KnownDim, second: KnownDim) -> KnownDim:
    """Return one of two sizes by a condition that is 1 or 0."""
    if isinstance(condition, int):
        return first if condition else second
    return first if first == second else second + condition * (first - second)


def moved_nbytes(views: Iterable[View]) -> KnownDim:
    """Return the bytes of all elements of views, each element once."""
    total: KnownDim = 0
    for view in views:
        total = total + count_of(view.shape) * view.buffer.itemsize
    return total
