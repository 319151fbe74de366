"""Operand: a value of the graph while it is lowered: a buffer, and how it is seen. Views cost nothing.

Sizes are those of ONNX, so that a scalar has none. Strides count elements. A view that no strides can say, such as a
reshape of transposed rows, needs the elements moved first; these functions then return ``None``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ort_core.plugin.ops import broadcast_shapes, known_sizes
from ort_ep_directml.lowering.plan import Sizes, Source, Tensor, packed_strides
from ort_ep_directml.lowering.refused import Refused
from ort_ep_directml.schema.element_types import ElementType


@dataclass(frozen=True, slots=True)
class Operand:
    """A buffer and how it is seen.

    Attributes:
        source: where the buffer comes from.
        dtype: of the elements.
        sizes: as in ONNX.
        strides: in elements, one for each size.
    """

    source: Source
    dtype: ElementType
    sizes: Sizes
    strides: Sizes

    @property
    def is_packed(self) -> bool:
        """Whether rows lie behind each other."""
        expected = packed_strides(self.sizes)
        return all(s == e or n == 1 for n, s, e in zip(self.sizes, self.strides, expected, strict=True))

    @property
    def rank(self) -> int:
        """How many sizes."""
        return len(self.sizes)

    def tensor(self, rank: int = 1) -> Tensor:
        """Return it as DirectML is told, with sizes of 1 in front up to a rank."""
        missing = max(rank - self.rank, 0)
        sizes = (1,) * missing + self.sizes
        return Tensor(self.dtype, sizes, None if self.is_packed else (0,) * missing + self.strides)


def packed(source: Source, dtype: ElementType, sizes: Sequence[int]) -> Operand:
    """Return an operand whose rows lie behind each other."""
    return Operand(source, dtype, tuple(sizes), packed_strides(tuple(sizes)))


def transposed(operand: Operand, order: Sequence[int]) -> Operand:
    """Return the view with dimensions in another order."""
    sizes = tuple(operand.sizes[axis] for axis in order)
    return replace(operand, sizes=sizes, strides=tuple(operand.strides[axis] for axis in order))


def expanded(operand: Operand, sizes: Sequence[int]) -> Operand:
    """Return the view that repeats dimensions of size 1, and has more of them in front, as ONNX broadcasts."""
    missing = len(sizes) - operand.rank
    pairs = zip((1,) * missing + operand.sizes, (0,) * missing + operand.strides, sizes, strict=True)
    strides = tuple(0 if size == 1 and wanted != 1 else stride for size, stride, wanted in pairs)
    return replace(operand, sizes=tuple(sizes), strides=strides)


def broadcast(*shapes: Sequence[int]) -> Sizes:
    """Return the sizes that shapes broadcast to.

    Raises:
        Refused: they do not.
    """
    try:
        return known_sizes(broadcast_shapes(*shapes))  # numpy's function stops at 32 axes
    except ValueError:
        raise Refused(f"sizes {', '.join(str(list(each)) for each in shapes)} do not broadcast") from None


def reshaped(operand: Operand, sizes: Sequence[int]) -> Operand | None:
    """Return the view with other sizes of as many elements; ``None`` where the elements must be moved for it."""
    sizes = tuple(sizes)
    if operand.is_packed:
        return replace(operand, sizes=sizes, strides=packed_strides(sizes))
    if tuple(n for n in sizes if n != 1) != tuple(n for n in operand.sizes if n != 1):
        return None
    kept = iter([s for n, s in zip(operand.sizes, operand.strides, strict=True) if n != 1])
    return replace(operand, sizes=sizes, strides=tuple(0 if n == 1 else next(kept) for n in sizes))


def reinterpreted(operand: Operand, dtype: ElementType) -> Operand:
    """Return the same bits as another element type of the same width."""
    assert dtype.bits == operand.dtype.bits, (dtype, operand.dtype)
    return replace(operand, dtype=dtype)


def resized(operand: Operand, sizes: Sequence[int]) -> Operand:
    """Return a packed operand as if it had other sizes: one of a sample, whose sizes stand for others."""
    return replace(operand, sizes=tuple(sizes), strides=packed_strides(tuple(sizes)))
