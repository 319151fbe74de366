"""Moving elements without computing: channels to space and back, and cropping or padding around the center."""

from __future__ import annotations

import numpy as np

from ort_core.errors import InvalidArgument
from ort_core.kernels.kernel import KernelContext, kernel
from ort_core.kernels.reference.arrays.axes import check_size

# Channels hold (row, column, depth) in DCR and (depth, row, column) in CRD.
_TO_SPACE = {"DCR": (0, 3, 4, 1, 5, 2), "CRD": (0, 1, 4, 2, 5, 3)}
_TO_DEPTH = {"DCR": (0, 3, 5, 1, 2, 4), "CRD": (0, 1, 3, 5, 2, 4)}


@kernel("DepthToSpace")
def depth_to_space(x: np.ndarray, *, blocksize: int, mode: str = "DCR") -> np.ndarray:
    """Spread blocks of channels over squares of ``blocksize``."""
    batch, depth, height, width = _check(x, blocksize, mode)
    if depth % blocksize**2:
        raise InvalidArgument(
            f"DepthToSpace requires input depth to be a multiple of (block_size * block_size): {depth}"
        )
    inner = depth // blocksize**2
    split = (blocksize, blocksize, inner) if mode == "DCR" else (inner, blocksize, blocksize)
    blocks = x.reshape(batch, *split, height, width).transpose(_TO_SPACE[mode])
    return blocks.reshape(batch, inner, height * blocksize, width * blocksize)


@kernel("SpaceToDepth")
def space_to_depth(x: np.ndarray, *, blocksize: int, mode: str = "DCR") -> np.ndarray:
    """Gather squares of ``blocksize`` into channels."""
    batch, depth, height, width = _check(x, blocksize, mode)
    if height % blocksize or width % blocksize:
        raise InvalidArgument(f"SpaceToDepth requires input height and width to be a multiple of block_size: {x.shape}")
    rows, columns = height // blocksize, width // blocksize
    blocks = x.reshape(batch, depth, rows, blocksize, columns, blocksize).transpose(_TO_DEPTH[mode])
    return blocks.reshape(batch, depth * blocksize**2, rows, columns)


def _check(x: np.ndarray, blocksize: int, mode: str) -> tuple[int, ...]:
    if x.ndim != 4:
        raise InvalidArgument(f"expected input of rank 4 [N, C, H, W], found shape {x.shape}")
    if blocksize <= 0:
        raise InvalidArgument(f"blocksize must be positive, found {blocksize}")
    if mode not in _TO_SPACE:
        raise InvalidArgument(f"mode is {mode!r}, expected DCR or CRD")
    return x.shape


@kernel("CenterCropPad", since=18)
def center_crop_pad(
    data: np.ndarray, shape: np.ndarray, *, axes: tuple[int, ...] = (), ctx: KernelContext | None = None
) -> np.ndarray:
    """Crop or pad with zeros around the center; what is odd goes to the end."""
    named = tuple(axes) or tuple(range(data.ndim))
    if len(named) != shape.size or any(not -data.ndim <= axis < data.ndim for axis in named):
        raise InvalidArgument(f"CenterCropPad: axes {named} and shape {shape.tolist()} do not fit input {data.shape}")
    if shape.size and shape.min() < 0:
        raise InvalidArgument(f"CenterCropPad: shape {shape.tolist()} has a negative size")
    sizes = list(data.shape)
    taken = [slice(None)] * data.ndim
    placed = [slice(None)] * data.ndim
    for axis, size in zip(named, shape.tolist(), strict=True):
        have = data.shape[axis]
        common, sizes[axis] = min(have, size), size
        first = (have - common) // 2
        taken[axis] = slice(first, first + common)
        start = (size - common) // 2
        placed[axis] = slice(start, start + common)
    check_size(sizes, data.dtype, "CenterCropPad", ctx)
    out = np.full(sizes, "", object) if data.dtype == object else np.zeros(sizes, data.dtype)
    out[tuple(placed)] = data[tuple(taken)]
    return out
