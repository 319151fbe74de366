"""Sliding windows over the spatial axes of (N, C, spatial...) arrays: paddings, output sizes, strided views."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ort_core import errors


@dataclass(frozen=True, slots=True)
class Windows:
    """Where windows lie: one entry per spatial axis; ``before`` and ``after`` are paddings, ``counts`` the outputs."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    counts: tuple[int, ...]


def place_windows(
    spatial: tuple[int, ...],
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
    pads: tuple[int, ...],
    auto_pad: str,
    ceil_mode: int = 0,
) -> Windows:
    """Return the windows that the attributes of a convolution or pooling describe (empty tuples: ONNX defaults).

    Raises:
        InvalidArgument: the attributes and the spatial shape differ in rank, or no window fits.
    """
    rank = len(spatial)
    strides, dilations, pads = strides or (1,) * rank, dilations or (1,) * rank, pads or (0,) * (2 * rank)
    if not len(kernel) == len(strides) == len(dilations) == rank == len(pads) // 2:
        raise errors.InvalidArgument(
            f"kernel_shape {kernel}, strides {strides}, dilations {dilations} and pads {pads} must fit the "
            f"{rank} spatial axes of the input"
        )
    before, after, counts = list(pads[:rank]), list(pads[rank:]), []
    for axis in range(rank):
        reach = (kernel[axis] - 1) * dilations[axis] + 1
        if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
            count = -(-spatial[axis] // strides[axis])
            missing = max((count - 1) * strides[axis] + reach - spatial[axis], 0)
            less, more = missing // 2, missing - missing // 2
            before[axis], after[axis] = (less, more) if auto_pad == "SAME_UPPER" else (more, less)
        elif auto_pad == "VALID":
            before[axis] = after[axis] = 0
        room = spatial[axis] + before[axis] + after[axis] - reach
        count = room // strides[axis] + 1
        if ceil_mode and room % strides[axis]:
            # A last window that would start in the padding after the input is left out.
            count += (count * strides[axis]) < spatial[axis] + before[axis]
        if count < 1 and room < 0:
            raise errors.InvalidArgument(f"no window of reach {reach} fits axis {axis} of {spatial[axis]} with {pads}")
        counts.append(count)
    return Windows(tuple(kernel), tuple(strides), tuple(dilations), tuple(before), tuple(after), tuple(counts))


def window_view(x: np.ndarray, windows: Windows, fill: float) -> np.ndarray:
    """Return (N, C, outputs..., kernel...) windows over ``x``, padded with ``fill``; a read-only strided view."""
    rank = len(windows.kernel)
    needed = []
    for axis in range(rank):
        end = (windows.counts[axis] - 1) * windows.strides[axis]
        end += (windows.kernel[axis] - 1) * windows.dilations[axis] + 1
        have = windows.before[axis] + x.shape[2 + axis]
        needed.append((windows.before[axis], max(end - have, windows.after[axis], 0)))
    padded = np.pad(x, [(0, 0), (0, 0), *needed], constant_values=x.dtype.type(fill))
    steps = padded.strides[2:]
    return np.lib.stride_tricks.as_strided(
        padded,
        padded.shape[:2] + windows.counts + windows.kernel,
        padded.strides[:2]
        + tuple(step * stride for step, stride in zip(steps, windows.strides, strict=True))
        + tuple(step * dilation for step, dilation in zip(steps, windows.dilations, strict=True)),
        writeable=False,
    )


def pad_counts(x: np.ndarray, windows: Windows, include_pad: bool) -> np.ndarray:
    """Return how many positions each window averages over, shape (1, 1, outputs...).

    Padding that the attributes ask for counts when ``include_pad``; what only ``ceil_mode`` adds never does.
    """
    ones = np.ones((1, 1, *x.shape[2:]), np.float32)
    if include_pad:
        spans = [(b, a) for b, a in zip(windows.before, windows.after, strict=True)]
        ones = np.pad(ones, [(0, 0), (0, 0), *spans], constant_values=1)
        zero = (0,) * len(windows.kernel)
        windows = Windows(windows.kernel, windows.strides, windows.dilations, zero, zero, windows.counts)
    rank = len(windows.kernel)
    return window_view(ones, windows, 0).sum(axis=tuple(range(-rank, 0)))
