"""Tables of rows that Gather reads, quantized to 4 bits by blocks along one axis, for GatherBlockQuantized."""

from __future__ import annotations

import numpy as np

from ort_quantization.errors import InvalidQuantization
from ort_quantization.matmul_nbits_blocks import Array, pack

_SLAB = 1 << 22  # values at once


def quantized_rows(table: Array, axis: int, block_size: int, is_symmetric: bool) -> tuple[bytes, Array, bytes | None]:
    """Return packed numbers, scales and packed zero points (``None``: symmetric) of a table of floats.

    Args:
        table: any rank from 1.
        axis: of the blocks, counted from the front.
        block_size: values that share a scale: a power of two from 16 on.
        is_symmetric: numbers from -8 to 7; else from 0 to 15 with a zero point.

    Raises:
        InvalidQuantization: there is no such axis, or blocks are of another size.
    """
    if not 0 <= axis < table.ndim:
        raise InvalidQuantization(f"blocks along axis {axis} of a table of shape {table.shape}")
    if block_size < 16 or block_size & (block_size - 1):
        raise InvalidQuantization(f"a block of {block_size} values; GatherBlockQuantized has powers of two from 16 on")
    length = table.shape[axis]
    blocks = -(-length // block_size)
    inner = int(np.prod(table.shape[axis + 1 :], dtype=np.int64))
    source = table.reshape(-1, length, inner)
    numbers = np.empty(source.shape, np.uint8)
    scales, points = (
        np.empty((len(source), blocks, inner), table.dtype),
        np.empty((len(source), blocks, inner), np.uint8),
    )
    step = max(_SLAB // max(length * inner, 1), 1)
    for first in range(0, len(source), step):
        for block in range(blocks):
            part = slice(first, first + step), slice(block * block_size, (block + 1) * block_size)
            numbers[part], scales[part[0], block], points[part[0], block] = _block(source[part], is_symmetric)
    shape = (*table.shape[:axis], blocks, *table.shape[axis + 1 :])
    data = pack(numbers.reshape(-1), 4).tobytes()
    return data, scales.reshape(shape), None if is_symmetric else pack(points.reshape(-1), 4).tobytes()


def _block(values: Array, is_symmetric: bool) -> tuple[Array, Array, Array]:
    """Return numbers (two's complement of 4 bits where symmetric), scales and zero points of one block each."""
    least, most = values.min(axis=1, keepdims=True), values.max(axis=1, keepdims=True)
    kind = values.dtype.type
    if is_symmetric:
        peak = np.where(np.abs(most) > np.abs(least), most, least)
        scale = peak / kind(-8)
        ratio = np.divide(values, scale, out=np.zeros_like(values), where=scale != 0)
        return (
            ratio.round().clip(-8, 7).astype(np.int8).view(np.uint8) & 15,
            scale[:, 0],
            np.zeros_like(scale[:, 0], np.uint8),
        )
    least, most = np.minimum(least, kind(0)), np.maximum(most, kind(0))
    scale = (most - least) / kind(15)
    is_set = scale != 0
    middle = np.divide(-least, scale, out=np.full_like(scale, 8), where=is_set).round().clip(0, 15)
    shifted = np.divide(values, scale, out=np.zeros_like(values), where=is_set) + middle
    return shifted.round().clip(0, 15).astype(np.uint8), scale[:, 0], middle[:, 0].astype(np.uint8)
