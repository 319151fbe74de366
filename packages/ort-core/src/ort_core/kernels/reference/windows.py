"""Sliding windows over spatial axes: how many there are, and which input each offset of the kernel reads.

One relation carries convolution, pooling and their transposes: along each axis, window ``o`` reads at kernel offset
``k`` the position ``o * stride + k * dilation - pad_begin``. ``offsets`` yields, per kernel offset, the slice of
windows whose position lies inside the input and the slice of those positions, so that no padded copy is ever made.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ort_core.errors import InvalidArgument

Slices = tuple[slice, ...]
_ALL = slice(None)


@dataclass(frozen=True, slots=True)
class Windows:
    """The geometry of sliding windows: one entry per spatial axis in every tuple."""

    spatial: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads_begin: tuple[int, ...]
    pads_end: tuple[int, ...]
    counts: tuple[int, ...]

    def is_pointwise(self) -> bool:
        """Return whether every window is one element, unpadded and undilated (strides may skip elements)."""
        return all(k == 1 for k in self.kernel) and not any(self.pads_begin) and not any(self.pads_end)

    def offsets(self) -> Iterator[tuple[tuple[int, ...], Slices, Slices]]:
        """Yield (kernel offset, windows, positions) for each offset at which any window lies inside the input."""
        for reaches in itertools.product(*(self.along(axis) for axis in range(len(self.kernel)))):
            yield tuple(r[0] for r in reaches), tuple(r[1] for r in reaches), tuple(r[2] for r in reaches)

    def along(self, axis: int) -> list[tuple[int, slice, slice]]:
        """Return (kernel offset, windows, positions) along one axis, for each offset that any window reads inside."""
        size, count, stride = self.spatial[axis], self.counts[axis], self.strides[axis]
        dilation, pad = self.dilations[axis], self.pads_begin[axis]
        # Offsets outside these two read padding in every window: a kernel of 2**40 has as few steps as the input.
        least = max(0, -((count - 1) * stride - pad) // dilation)
        most = min(self.kernel[axis] - 1, (size - 1 + pad) // dilation)
        found = []
        for offset in range(least, most + 1):
            shift = offset * dilation - pad
            first = max(0, -(shift // stride)) if shift < 0 else 0
            last = min(count - 1, (size - 1 - shift) // stride)
            if first <= last:
                positions = slice(first * stride + shift, last * stride + shift + 1, stride)
                found.append((offset, slice(first, last + 1), positions))
        return found


def per_axis(values: Sequence[int], rank: int, default: int, name: str) -> tuple[int, ...]:
    """Return an attribute with one value per spatial axis, or the default for each axis where it is absent.

    Raises:
        InvalidArgument: the attribute has another number of values.
    """
    if not values:
        return (default,) * rank
    if len(values) != rank:
        raise InvalidArgument(
            f"{name.capitalize()} dimensions should match kernel shape: {name} are {tuple(values)}, "
            f"expected {rank} values"
        )
    return tuple(int(v) for v in values)


def steps(strides: Sequence[int], dilations: Sequence[int], rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return strides and dilations per axis, 1 where they are absent.

    Raises:
        InvalidArgument: there is another number of them, or one is not positive.
    """
    strides, dilations = per_axis(strides, rank, 1, "strides"), per_axis(dilations, rank, 1, "dilations")
    if min(strides, default=1) <= 0:
        raise InvalidArgument(f"All stride values must be positive, found strides {strides}")
    if min(dilations, default=1) <= 0:
        raise InvalidArgument(f"All dilation values must be positive, found dilations {dilations}")
    return strides, dilations


def edges(pads: Sequence[int], rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the padding before and after each axis, 0 where it is absent.

    Raises:
        InvalidArgument: there is another number of them than two per axis.
    """
    if pads and len(pads) != 2 * rank:
        raise InvalidArgument(
            f"Pads attribute size must be twice the kernel_shape size (twice the kernel_shape rank): "
            f"pads are {tuple(pads)}, expected {2 * rank} values"
        )
    given = tuple(int(p) for p in pads) or (0,) * (2 * rank)
    return given[:rank], given[rank:]


def slide(
    spatial: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int] = (),
    dilations: Sequence[int] = (),
    pads: Sequence[int] = (),
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
) -> Windows:
    """Work out padding and the number of windows per axis.

    With ``ceil_mode`` a last window may hang over the end, unless it would start inside the end padding.

    Raises:
        InvalidArgument: an attribute does not fit the input, or a stride or dilation is not positive.
    """
    rank = len(spatial)
    if len(kernel) != rank:
        raise InvalidArgument(f"kernel_shape {tuple(kernel)} does not match the input spatial rank {rank}")
    kernel = tuple(int(k) for k in kernel)
    strides, dilations = steps(strides, dilations, rank)
    reach = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True))
    begin, end = padding(spatial, reach, strides, pads, auto_pad)
    counts = []
    for size, width, stride, before, after in zip(spatial, reach, strides, begin, end, strict=True):
        room = size + before + after - width
        count = -(-room // stride) + 1 if ceil_mode else room // stride + 1
        if ceil_mode and (count - 1) * stride >= size + before:
            count -= 1
        counts.append(count if room >= 0 or count > 0 else 0)
    return Windows(tuple(spatial), kernel, strides, dilations, begin, end, tuple(max(c, 0) for c in counts))


def padding(
    spatial: Sequence[int], reach: Sequence[int], strides: Sequence[int], pads: Sequence[int], auto_pad: str
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the padding before and after each axis that ``pads`` or ``auto_pad`` means."""
    rank = len(spatial)
    if auto_pad == "NOTSET" or not auto_pad:
        return edges(pads, rank)
    if auto_pad == "VALID":
        return (0,) * rank, (0,) * rank
    if auto_pad not in ("SAME_UPPER", "SAME_LOWER"):
        raise InvalidArgument(f"auto_pad is {auto_pad!r}, expected NOTSET, VALID, SAME_UPPER or SAME_LOWER")
    totals = [
        max(0, (-(-size // stride) - 1) * stride + width - size)
        for size, width, stride in zip(spatial, reach, strides, strict=True)
    ]
    return share_padding(totals, upper=auto_pad == "SAME_UPPER")


def share_padding(totals: Sequence[int], *, upper: bool) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Split total padding into before and after; an odd one goes after when ``upper``, else before."""
    small = tuple(t // 2 for t in totals)
    large = tuple(t - t // 2 for t in totals)
    return (small, large) if upper else (large, small)


def im2col(data: np.ndarray, windows: Windows) -> np.ndarray:
    """Return what every window reads, [N, C, *kernel, *counts], zero where it reads padding."""
    columns = np.zeros((*data.shape[:2], *windows.kernel, *windows.counts), data.dtype)
    for offset, window, position in windows.offsets():
        into: tuple[int | slice, ...] = (_ALL, _ALL, *offset, *window)
        columns[into] = data[(_ALL, _ALL, *position)]
    return columns


def col2im(columns: np.ndarray, windows: Windows) -> np.ndarray:
    """Add [N, C, *kernel, *counts] back to where each window reads: the transpose of ``im2col``."""
    image = np.zeros((*columns.shape[:2], *windows.spatial), columns.dtype)
    for offset, window, position in windows.offsets():
        source: tuple[int | slice, ...] = (_ALL, _ALL, *offset, *window)
        image[(_ALL, _ALL, *position)] += columns[source]
    return image
