"""Quantizers of weights by blocks, as ``onnxruntime.capi._pybind_state`` has them: results go into the caller's arrays.

A block is ``block_size`` values of one column of a matrix (rows, columns). Its scale maps the larger side of its range
to the most negative number (symmetric), or its range with 0 to all numbers (with a zero point). The results are those
of onnxruntime bit for bit: float32 arithmetic, halves away from zero, a scale that is rounded to the type of the
weights before values are divided by it. What does not fit is refused; onnxruntime writes past the arrays there.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ort_core.errors import InvalidType, InvalidValue

BLOCK_SIZES = (16, 32, 64, 128, 256)
_SLAB = 1 << 16  # values at once: float32 and its temporaries stay in the second-level cache
_FP4, _NF4 = 0, 1
_FP4_PIVOTS = (0.00260417, 0.0859375, 0.20833333, 0.29166667, 0.4166667, 0.583333, 0.8333333)
_FP4_CODES = np.array([0, 1, 6, 7, 4, 5, 2, 3], np.uint8)  # of magnitudes between the pivots; the sign is bit 3
_NF4_PIVOTS = (
    -0.8480964004993439, -0.6106329262256622, -0.4599952697753906, -0.33967943489551544, -0.23460740596055984,
    -0.13791173323988914, -0.045525018125772476, 0.03979014977812767, 0.1202552504837513, 0.2035212516784668,
    0.2920137718319893, 0.3893125355243683, 0.5016634166240692, 0.6427869200706482, 0.8614784181118011,
)  # fmt: skip


def quantize_matmul_2bits(
    packed: np.ndarray, weights: np.ndarray, scales: np.ndarray, zero_points: np.ndarray,
    block_size: int, columns: int, rows: int, is_symmetric: bool,
) -> None:  # fmt: skip
    """Quantize to 2 bits; arguments and errors as of ``quantize_matmul_4bits``."""
    _by_columns(2, packed, weights, scales, zero_points, block_size, (rows, columns), is_symmetric)


def quantize_matmul_4bits(
    packed: np.ndarray, weights: np.ndarray, scales: np.ndarray, zero_points: np.ndarray,
    block_size: int, columns: int, rows: int, is_symmetric: bool,
) -> None:  # fmt: skip
    """Quantize to 4 bits in the layout of MatMulNBits.

    Args:
        packed: uint8 (columns, blocks, block_size * bits / 8), written; low bits first.
        weights: float32 or float16 (rows, columns); further rows, which fill a last block, are not read.
        scales: of the type of the weights (columns, blocks), written.
        zero_points: uint8 (columns, ceil(blocks * bits / 8)), written unless ``is_symmetric``.
        block_size: 16, 32, 64, 128 or 256.
        columns: of the weights.
        rows: of the weights.
        is_symmetric: whether there are no zero points.

    Raises:
        InvalidType: an array has another element type.
        InvalidValue: an array is too small or cannot be written, or there is no such block size.
    """
    _by_columns(4, packed, weights, scales, zero_points, block_size, (rows, columns), is_symmetric)


def quantize_matmul_8bits(
    packed: np.ndarray, weights: np.ndarray, scales: np.ndarray, zero_points: np.ndarray,
    block_size: int, columns: int, rows: int, is_symmetric: bool,
) -> None:  # fmt: skip
    """Quantize to 8 bits; arguments and errors as of ``quantize_matmul_4bits``."""
    _by_columns(8, packed, weights, scales, zero_points, block_size, (rows, columns), is_symmetric)


def quantize_qdq_matmul_2bits(
    packed: np.ndarray, weights: np.ndarray, scales: np.ndarray, zero_points: np.ndarray,
    block_size: int, columns: int, rows: int, is_symmetric: bool,
) -> bool:  # fmt: skip
    """Quantize to 2 bits; arguments, result and errors as of ``quantize_qdq_matmul_4bits``, four numbers a byte."""
    return _in_order(2, packed, weights, scales, zero_points, block_size, (rows, columns), is_symmetric)


def quantize_qdq_matmul_4bits(
    packed: np.ndarray, weights: np.ndarray, scales: np.ndarray, zero_points: np.ndarray,
    block_size: int, columns: int, rows: int, is_symmetric: bool,
) -> bool:  # fmt: skip
    """Quantize to 4 bits in the layout of DequantizeLinear; return whether numbers are signed.

    ``packed`` has the order of the weights, ``scales`` and ``zero_points`` are (blocks, columns), two numbers a byte.
    A block may have any size. Errors as of ``quantize_matmul_4bits``.
    """
    return _in_order(4, packed, weights, scales, zero_points, block_size, (rows, columns), is_symmetric)


def _in_order(
    bits: int, packed: np.ndarray, weights: np.ndarray, scales: np.ndarray, zero_points: np.ndarray,
    block_size: int, shape: tuple[int, int], is_symmetric: bool,
) -> bool:  # fmt: skip
    if block_size < 1:
        raise InvalidValue(f"a block of {block_size} values; expected 1 or more")
    (rows, columns), in_byte = shape, 8 // bits
    source, blocks = _matrix(weights, rows, columns), -(-rows // block_size)
    point_bytes = -(-blocks * columns // in_byte)
    data = _target("packed", packed, np.uint8, -(-rows * columns // in_byte))
    factors = _target("scales", scales, source.dtype, blocks * columns).reshape(blocks, columns)
    points = None if is_symmetric else _target("zero_points", zero_points, np.uint8, point_bytes)
    least, most = (-(1 << bits - 1), (1 << bits - 1) - 1) if is_symmetric else (0, (1 << bits) - 1)
    found = np.empty((rows, columns), np.uint8)
    centers = np.empty((blocks, columns), np.uint8)
    for index, block in enumerate(range(0, rows, block_size)):
        values = source[block : block + block_size].astype(np.float32)
        factors[index : index + 1], center = _parameters(values[None], bits, source.dtype, is_symmetric)
        inverse = _inverse(factors[index].astype(np.float32))
        centers[index] = 0 if center is None else center[0]
        rounded = _rounded(values * inverse) + centers[index].astype(np.float32)
        found[block : block + block_size] = np.clip(rounded, least, most).astype(np.int8).view(np.uint8)
    _pack_in_order(found.reshape(-1), data, bits)
    if points is not None:
        _pack_in_order(centers.reshape(-1), points, bits)
    return bool(is_symmetric)


def quantize_matmul_bnb4(
    packed: np.ndarray, weights: np.ndarray, absmax: np.ndarray, block_size: int, quant_type: int,
    columns: int, rows: int,
) -> None:  # fmt: skip
    """Quantize to 4-bit floats of bitsandbytes, in the layout of MatMulBnb4.

    Args:
        packed: uint8 (ceil(rows * columns / 2),), written; high bits first.
        weights: float32 or float16, transposed and flat: (columns, rows).
        absmax: of the type of the weights (blocks,), written.
        block_size: 16, 32, 64, 128 or 256.
        quant_type: 0 for FP4, 1 for NF4.
        columns: of the weights.
        rows: of the weights.

    Raises:
        InvalidType: an array has another element type.
        InvalidValue: an array is too small or cannot be written, or there is no such block size or type.
    """
    _check_block_size(block_size)
    if quant_type not in (_FP4, _NF4):
        raise InvalidValue(f"quant_type {quant_type}; expected 0 (FP4) or 1 (NF4)")
    source = _matrix(weights, columns, rows).reshape(-1)
    count, blocks = source.size, -(-source.size // block_size)
    data = _target("packed", packed, np.uint8, (count + 1) // 2)
    largest = _target("absmax", absmax, source.dtype, blocks)
    step = _SLAB // block_size
    for first in range(0, blocks, step):
        part = source[first * block_size : (first + step) * block_size].astype(np.float32)
        values = np.zeros((-(-part.size // block_size), block_size), np.float32)
        values.reshape(-1)[: part.size] = part
        peaks = np.fmax.reduce(np.abs(values), axis=1, initial=np.float32(0))
        largest[first : first + len(peaks)] = peaks
        values *= _inverse(peaks)[:, None]
        codes = _codes(values.reshape(-1), quant_type)
        start, pairs = first * block_size // 2, (part.size + 1) // 2
        data[start : start + pairs] = (codes[0::2] << 4 | codes[1::2])[:pairs]


def _codes(values: np.ndarray, quant_type: int) -> np.ndarray:
    """Return the 4-bit codes of values in [-1, 1]."""
    magnitudes = np.abs(values) if quant_type == _FP4 else values
    above = np.zeros(values.size, np.uint8)
    for pivot in _FP4_PIVOTS if quant_type == _FP4 else _NF4_PIVOTS:
        above += magnitudes > np.float32(pivot)
    return _FP4_CODES[above] | (values < 0).astype(np.uint8) << 3 if quant_type == _FP4 else above


def _by_columns(
    bits: int, packed: np.ndarray, weights: np.ndarray, scales: np.ndarray, zero_points: np.ndarray,
    block_size: int, shape: tuple[int, int], is_symmetric: bool,
) -> None:  # fmt: skip
    _check_block_size(block_size)
    (rows, columns), in_byte = shape, 8 // bits
    source, blocks = _matrix(weights, rows, columns), -(-rows // block_size)
    row_bytes, point_bytes = blocks * block_size // in_byte, -(-blocks // in_byte)
    data = _target("packed", packed, np.uint8, columns * row_bytes).reshape(columns, row_bytes)
    factors = _target("scales", scales, source.dtype, columns * blocks).reshape(columns, blocks)
    found = np.zeros((-(-rows // in_byte) * in_byte, columns), np.uint8)
    centers = np.full((columns, point_bytes * in_byte), 1 << bits - 1, np.uint8)
    for first, last in _slabs(rows, columns, block_size):
        values = _blocks(source[first:last], block_size)
        start, stop = first // block_size, -(-last // block_size)
        scale, center = _parameters(values, bits, source.dtype, is_symmetric)
        factors[:, start:stop] = scale.T
        if center is not None:
            centers[:, start:stop] = center.T
        values *= _inverse(scale.astype(np.float32))[:, None]
        values += centers[:, start:stop].T.astype(np.float32)[:, None]
        numbers = np.clip(_rounded(values), 0, (1 << bits) - 1).astype(np.uint8)
        found[first:last] = numbers.reshape(-1, columns)[: last - first]
    _fill_last_byte(found, rows, in_byte, block_size)
    written = found.shape[0] // in_byte
    data[:, :written] = _packed(found.T.reshape(columns, written, in_byte), bits)
    if not is_symmetric:
        points = _target("zero_points", zero_points, np.uint8, columns * point_bytes).reshape(columns, point_bytes)
        points[:] = _packed(centers.reshape(columns, point_bytes, in_byte), bits)


def _slabs(rows: int, columns: int, block_size: int) -> Iterator[tuple[int, int]]:
    step = max(_SLAB // max(columns * block_size, 1), 1) * block_size
    return ((first, min(first + step, rows)) for first in range(0, rows, step))


def _blocks(rows: np.ndarray, block_size: int) -> np.ndarray:
    """Return float32 (blocks, block_size, columns); the last row is repeated where a block ends short."""
    missing = -len(rows) % block_size
    whole = np.pad(rows, ((0, missing), (0, 0)), mode="edge") if missing else rows
    return whole.reshape(-1, block_size, rows.shape[1]).astype(np.float32)


def _parameters(
    values: np.ndarray, bits: int, dtype: np.dtype, is_symmetric: bool
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return scales and zero points (``None``: symmetric), each (blocks, columns), of (blocks, block_size, columns)."""
    least: np.ndarray = np.fmin.reduce(values, axis=1)
    most: np.ndarray = np.fmax.reduce(values, axis=1)
    if is_symmetric:
        peak = np.where(np.abs(most) > np.abs(least), most, least)
        return (-peak / np.float32(1 << bits - 1)).astype(dtype), None
    least, most = np.minimum(least, np.float32(0)), np.maximum(most, np.float32(0))
    top = np.float32((1 << bits) - 1)
    scale = (most - least) / top
    point = np.divide(-least, scale, out=-least, where=scale != 0)
    return scale.astype(dtype), _rounded(np.clip(point, 0, top)).astype(np.uint8)


def _inverse(scale: np.ndarray) -> np.ndarray:
    return np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=scale != 0)


def _rounded(values: np.ndarray) -> np.ndarray:
    """Round, halves away from zero: adding a half would carry the number just below it over."""
    whole = np.trunc(values)
    return whole + np.copysign((np.abs(values - whole) >= np.float32(0.5)).astype(np.float32), values)


def _fill_last_byte(found: np.ndarray, rows: int, in_byte: int, block_size: int) -> None:
    """Fill the rest of each column's last byte as onnxruntime does: with the numbers of the byte before."""
    start = rows // (block_size * in_byte) * block_size * in_byte  # what one thread works on
    for row in range(rows, len(found)):
        found[row] = found[row - in_byte] if row - in_byte >= start else 0


def _packed(numbers: np.ndarray, bits: int) -> np.ndarray:
    """Return bytes of (..., numbers in a byte), low bits first."""
    found = numbers[..., 0].copy()
    for place in range(1, numbers.shape[-1]):
        found |= numbers[..., place] << place * bits
    return found


def _pack_in_order(numbers: np.ndarray, target: np.ndarray, bits: int) -> None:
    """Write numbers, several a byte, low bits first; bits of a last byte that get none stay as they were."""
    in_byte, mask = 8 // bits, np.uint8((1 << bits) - 1)
    whole = numbers.size // in_byte
    target[:whole] = _packed(numbers[: whole * in_byte].reshape(whole, in_byte) & mask, bits)
    for place, number in enumerate(numbers[whole * in_byte :]):
        kept = target[whole] & ~(mask << place * bits)
        target[whole] = kept | (number & mask) << place * bits


def _check_block_size(block_size: int) -> None:
    if block_size not in BLOCK_SIZES:
        raise InvalidValue(f"block size {block_size}: only block size 16, 32, 64, 128, 256 are supported.")


def _matrix(weights: np.ndarray, rows: int, columns: int) -> np.ndarray:
    source = np.asarray(weights)
    if source.dtype not in (np.float32, np.float16):
        raise InvalidType(f"weights are {source.dtype}, expected float32 or float16")
    if source.ndim == 2 and source.shape[1] == columns and source.shape[0] > rows > 0:
        source = source[:rows]  # programs pad them to whole blocks
    if rows < 1 or columns < 1 or source.size != rows * columns:
        raise InvalidValue(f"weights of shape {source.shape} are not a matrix of {rows} rows and {columns} columns")
    return np.ascontiguousarray(source).reshape(rows, columns)


def _target(name: str, array: np.ndarray, dtype: type | np.dtype, count: int) -> np.ndarray:
    """Return the first ``count`` elements of an array of the caller, to write."""
    if not isinstance(array, np.ndarray) or array.dtype != dtype:
        found = array.dtype if isinstance(array, np.ndarray) else type(array).__name__
        raise InvalidType(f"{name} is {found}, expected an array of {np.dtype(dtype)}")
    if not array.flags.c_contiguous or not array.flags.writeable or array.size < count:
        raise InvalidValue(f"{name} of shape {array.shape} must be contiguous, writeable, of {count} elements or more")
    return array.reshape(-1)[:count]
