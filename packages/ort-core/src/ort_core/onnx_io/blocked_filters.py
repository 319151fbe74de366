"""The filters of onnxruntime's blocked layout (com.microsoft.nchwc), and how large their blocks are.

A filter of M output and C input channels lies in one of two orders, b being the size of a block:

    both blocked       [M/b, C/b, H, W, b of C, b of M]     read by convolutions of blocked images
    outputs blocked    [M/b, C, H, W, b of M]               depthwise, or of images that are not blocked

M and C are filled up to whole blocks with zeros. Files do not say b, which is that of the machine that saved them: 16
where it has AVX-512 or is an ARM, else 8. It follows from the channels where they leave a rest or a file has zeros for
one; else from the filters' norms, which differ by channel in whatever was trained and are mixed by a wrong order.
"""

from __future__ import annotations

import importlib
import platform
from collections.abc import Iterable, Sequence, Set

import numpy as np

from ort_core.errors import InvalidGraph
from ort_core.frozen import frozen

SIZES = (16, 8)
MAX_JUDGED = 24  # filters whose norms are compared: enough for certainty, and few milliseconds
MIN_JUDGED_CHANNELS = 32  # fewer have one block of either size or two, whose spread says little
CERTAINTY = 4.0  # standard errors between the two orders: random filters stay below 2, trained SqueezeNet has 10


@frozen
class BlockedFilter:
    """A filter as it is stored; ``is_input_blocked`` tells its order, ``group`` the number of groups."""

    array: np.ndarray
    is_input_blocked: bool
    group: int = 1

    def plain(self, size: int) -> np.ndarray:
        """Return the filter as ONNX has it, [M, C, H, W], filled up to whole blocks."""
        m, c, h, w = self.array.shape
        if self.is_input_blocked:
            blocks = self.array.reshape(m // size, c // size, h, w, size, size)
            return blocks.transpose(0, 5, 1, 4, 2, 3).reshape(m, c, h, w)
        return self.array.reshape(m // size, c, h, w, size).transpose(0, 4, 1, 2, 3).reshape(m, c, h, w)

    def fits(self, size: int) -> bool:
        """Return whether blocks of that size can have given a filter of this shape."""
        m, c = self.array.shape[:2]
        if self.is_input_blocked:
            return (m // self.group) % size == 0 and c % size == 0
        return m % size == 0 and (self.group > 1 or c < size)


def find_block_size(
    filters: Sequence[BlockedFilter], channels: Iterable[tuple[int, int]], written: Set[int] = frozenset()
) -> tuple[int, str]:
    """Return the size of blocks, and what it was told by.

    Args:
        filters: all filters of a model.
        channels: (channels filled up to whole blocks, channels), of images of which both are known.
        written: sizes that the model says somewhere.

    Raises:
        InvalidGraph: no size fits.
    """
    channels = list(channels)
    sizes = [
        size
        for size in SIZES
        if written <= {size} and all(each.fits(size) for each in filters) and _fit(channels, size)
    ]
    if not sizes:
        raise InvalidGraph(
            "the convolutions of com.microsoft.nchwc have filters that are blocked neither by 8 nor by 16 channels; "
            "save the model anew, at a graph optimization level below ALL"
        )
    if len(sizes) == 1:
        return sizes[0], "the channels"
    with_rest = [size for size in sizes if any(_has_rest(each, size) for each in filters)]
    if len(with_rest) == 1:
        return with_rest[0], "zeros that fill up channels"
    told = _size_by_norms(filters)
    return (told, "the norms of filters") if told else (machine_block_size(), "this machine")


def _fit(channels: Iterable[tuple[int, int]], size: int) -> bool:
    return all(filled == -(-count // size) * size for filled, count in channels)


def _has_rest(stored: BlockedFilter, size: int) -> bool:
    """Return whether the last block of output channels ends in channels of zeros, and is not all zeros."""
    last = stored.plain(size)[-size:]
    return bool(last.any()) and not last[-1].any()


def _size_by_norms(filters: Sequence[BlockedFilter]) -> int | None:
    """Return the size under which the norms of output channels spread more, if they do so clearly."""
    judged = [each for each in filters if each.is_input_blocked and each.array.shape[0] >= MIN_JUDGED_CHANNELS]
    difference, variance = 0.0, 0.0
    for each in judged[:MAX_JUDGED]:
        spread = {size: _spread(each.plain(size)) for size in SIZES}
        difference += spread[16] - spread[8]
        variance += (spread[16] ** 2 + spread[8] ** 2) * 2 / (each.array.shape[0] - 1)
    if abs(difference) <= CERTAINTY * variance**0.5:
        return None
    return 16 if difference > 0 else 8


def _spread(plain: np.ndarray) -> float:
    """Return the variance of the logarithms of the channels' norms, of the outputs and of the inputs."""
    squares = np.square(plain, dtype=np.float64).sum(axis=(2, 3))
    return sum(_log_variance(squares.sum(axis=axis)) for axis in (0, 1))


def _log_variance(norms: np.ndarray) -> float:
    return float(np.log(np.maximum(norms, norms.mean() * 1e-6 + 1e-300)).var())


def machine_block_size() -> int:
    """Return the size that onnxruntime takes on this machine."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return 16
    try:
        features = importlib.import_module("numpy._core._multiarray_umath").__cpu_features__
    except (ImportError, AttributeError):  # numpy promises no such name
        return 8
    return 16 if features.get("AVX512F") else 8
