"""Sliding windows over arrays: which input each offset of the kernel reads.

``ops.windows`` says how many windows there are and what is padded. One relation carries convolution, pooling and their
transposes: along each axis, window ``o`` reads at kernel offset ``k`` the position ``o * stride + k * dilation -
pad_begin``. ``offsets`` yields, per kernel offset, the slice of windows whose position lies inside the input and the
slice of those positions, so that no padded copy is ever made.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from ort_core.frozen import frozen
from ort_core.ops.windows import known_sizes, window_axes

Slices = tuple[slice, ...]
_ALL = slice(None)


@frozen
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


def slide(
    spatial: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int] = (),
    dilations: Sequence[int] = (),
    pads: Sequence[int] = (),
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
) -> Windows:
    """Return the windows over an array's axes. Raises as ``window_axes``."""
    kernel = tuple(int(k) for k in kernel)
    axes = window_axes(spatial, kernel, strides, dilations, pads, auto_pad, ceil_mode=ceil_mode != 0)
    return Windows(
        tuple(spatial),
        kernel,
        tuple(axis.stride for axis in axes),
        tuple(axis.dilation for axis in axes),
        known_sizes(axis.before for axis in axes),
        known_sizes(axis.after for axis in axes),
        known_sizes(axis.count for axis in axes),
    )


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
