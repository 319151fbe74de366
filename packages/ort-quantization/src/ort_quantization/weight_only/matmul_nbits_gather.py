"""Tables of rows that Gather reads, quantized to 4 or 8 bits by blocks along one axis, for GatherBlockQuantized."""

from __future__ import annotations

import numpy as np

from ort_quantization.errors import InvalidQuantization
from ort_quantization.weight_only.matmul_nbits_blocks import Array, pack

_SLAB = 1 << 22  # values at once


def quantized_rows(
    table: Array, axis: int, block_size: int, is_symmetric: bool, bits: int = 4
) -> tuple[bytes, Array, bytes | None]:
    """Return packed numbers, scales and packed zero points (``None``: symmetric) of a table of floats.

    Args:
        table: any rank from 1.
        axis: of the blocks, counted from the front.
        block_size: values that share a scale: a power of two from 16 on.
        is_symmetric: numbers from -8 to 7 (of 8 bits from 0 to 255, 128 being zero); else from 0 on with a zero point.
        bits: 4, or 8, of which the operator has blocks along the last axis only.

    Raises:
        InvalidQuantization: there is no such axis, or blocks are of another size.
    """
    if not 0 <= axis < table.ndim:
        raise InvalidQuantization(f"blocks along axis {axis} of a table of shape {table.shape}")
    if bits == 8 and axis != table.ndim - 1:
        raise InvalidQuantization(
            f"blocks of 8 bits along axis {axis} of a table of shape {table.shape}: the operator has them along "
            "the last axis; quant_axes says which, as in (('Gather', 1),)"
        )
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
            numbers[part], scales[part[0], block], points[part[0], block] = _block(source[part], is_symmetric, bits)
    shape = (*table.shape[:axis], blocks, *table.shape[axis + 1 :])
    data = pack(numbers.reshape(-1), bits).tobytes()
    return data, scales.reshape(shape), None if is_symmetric else pack(points.reshape(-1), bits).tobytes()


def _block(values: Array, is_symmetric: bool, bits: int) -> tuple[Array, Array, Array]:
    """Return numbers (two's complement of 4 bits where symmetric), scales and zero points of one block each."""
    least, most = values.min(axis=1, keepdims=True), values.max(axis=1, keepdims=True)
    kind, half, top = values.dtype.type, 1 << bits - 1, (1 << bits) - 1
    if is_symmetric:
        peak = np.where(np.abs(most) > np.abs(least), most, least)
        scale = peak / kind(-half)
        ratio = np.divide(values, scale, out=np.zeros_like(values), where=scale != 0)
        signed = ratio.round().clip(-half, half - 1).astype(np.int8)
        found = signed.view(np.uint8) & 15 if bits == 4 else signed.view(np.uint8) ^ np.uint8(half)
        return found, scale[:, 0], np.zeros_like(scale[:, 0], np.uint8)
    least, most = np.minimum(least, kind(0)), np.maximum(most, kind(0))
    scale = (most - least) / kind(top)
    is_set = scale != 0
    middle = np.divide(-least, scale, out=np.full_like(scale, half), where=is_set).round().clip(0, top)
    shifted = np.divide(values, scale, out=np.zeros_like(values), where=is_set) + middle
    return shifted.round().clip(0, top).astype(np.uint8), scale[:, 0], middle[:, 0].astype(np.uint8)
