"""Attributes of sliding windows, of convolutions and pools, as vertical and horizontal numbers."""

from __future__ import annotations

from collections.abc import Sequence

from ort_core.cpu.lowering.steps import NotLowered
from ort_core.plugin.ir import KnownDim, Node


def pair(values: tuple[int, ...] | None, rank: int) -> tuple[int, int]:
    """Return an attribute with one number per axis of space as (vertical, horizontal)."""
    if not values:
        return (1, 1)
    return (1, values[0]) if rank == 3 else (values[0], values[1])


def pads_of(
    node: Node,
    rank: int,
    window: Sequence[int],
    strides: tuple[int, int],
    dilations: tuple[int, int],
    sizes: Sequence[KnownDim],
) -> tuple[int, int, int, int]:
    """Return top, left, bottom, right."""
    mode = node.string_attribute("auto_pad", "NOTSET")
    if mode == "VALID":
        return (0, 0, 0, 0)
    if mode == "NOTSET":
        given = node.ints_attribute("pads") or (0,) * (2 * (rank - 2))
        if any(pad < 0 for pad in given):
            raise NotLowered("negative pads")
        return (0, given[0], 0, given[1]) if rank == 3 else (given[0], given[1], given[2], given[3])
    kernel = (1, window[0]) if rank == 3 else (window[0], window[1])
    before, after = [], []
    for size, taps, stride, dilation in zip(sizes, kernel, strides, dilations):
        if not isinstance(size, int):
            raise NotLowered("automatic pads of an axis of unknown size")
        total = max((-(-size // stride) - 1) * stride + (taps - 1) * dilation + 1 - size, 0)
        small = total // 2
        before.append(small if mode == "SAME_UPPER" else total - small)
        after.append(total - small if mode == "SAME_UPPER" else small)
    return (before[0], before[1], after[0], after[1])
