"""Methods that look at weights alone: onnxruntime's native rounding, round to nearest, k-quant, HQQ.

Each takes a weight (K, N) of float32 or float16 and returns blocks. Work goes by groups of columns, so that memory
stays a few times that of a group. Scales are those of onnxruntime's tool, but for blocks whose values all lie on one
side of 0: its round to nearest and k-quant cut their zero point there, and with it the values; here the range of a
block always holds 0.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ort_core.plugin.kernels import (
    quantize_matmul_2bits,
    quantize_matmul_4bits,
    quantize_matmul_8bits,
    quantize_qdq_matmul_2bits,
    quantize_qdq_matmul_4bits,
)
from ort_quantization.weight_only.matmul_nbits_blocks import (
    Array,
    LinearBlocks,
    Numbers,
    PackedBlocks,
    columns_in_blocks,
    packed_blocks,
)
from ort_quantization.weight_only.matmul_nbits_grids import find_grids, has_symmetric_grid

_NATIVE = {2: quantize_matmul_2bits, 4: quantize_matmul_4bits, 8: quantize_matmul_8bits}
_NATIVE_LINEAR = {2: quantize_qdq_matmul_2bits, 4: quantize_qdq_matmul_4bits}
_GROUP = 1 << 22  # values at once
_STEPS, _WIDTH = 20, 0.1  # of the search of k-quant: widths of the range from -1 to +0.9 numbers
_ITERATIONS, _NORM, _BETA, _GROWTH = 20, 0.7, 10.0, 1.01  # of HQQ: the published values

Method = Callable[[Array], tuple[Array, Array, Array | None]]


def native_blocks(weight: Array, bits: int, block_size: int, is_symmetric: bool) -> PackedBlocks:
    """Return onnxruntime's blocks of a weight, bit for bit."""
    rows, columns = weight.shape
    blocks, in_byte = -(-rows // block_size), 8 // bits
    data = np.zeros((columns, blocks, block_size // in_byte), np.uint8)
    scales = np.zeros((columns, blocks), weight.dtype)
    points = np.zeros((columns, -(-blocks // in_byte)), np.uint8)
    _NATIVE[bits](data, weight, scales, points, block_size, columns, rows, is_symmetric)
    return PackedBlocks(data, scales, None if is_symmetric else points, bits, rows)


def native_linear_blocks(weight: Array, bits: int, block_size: int, is_symmetric: bool) -> LinearBlocks:
    """Return onnxruntime's blocks of 2 or 4 bits in the order of the weight, bit for bit."""
    rows, columns = weight.shape
    blocks, in_byte = -(-rows // block_size), 8 // bits
    data = np.zeros(-(-rows * columns // in_byte), np.uint8)
    scales = np.zeros((blocks, columns), weight.dtype)
    points = np.zeros(-(-blocks * columns // in_byte), np.uint8)
    _NATIVE_LINEAR[bits](data, weight, scales, points, block_size, columns, rows, is_symmetric)
    return LinearBlocks(
        data.tobytes(), scales, None if is_symmetric else points.tobytes(), bits, rows, block_size
    )  # fmt: skip


def round_to_nearest(weight: Array, bits: int, block_size: int, is_symmetric: bool, ratio: float = 1.0) -> Numbers:
    """Return numbers of the nearest values; ``ratio`` of each range is kept."""
    top = (1 << bits) - 1

    def method(blocks: Array) -> tuple[Array, Array, Array | None]:
        least, most = _range(blocks)
        least, most = least * ratio, most * ratio
        if is_symmetric:
            peak = np.maximum(np.abs(least), np.abs(most)).astype(np.float64)
            scale = np.where(peak > 0, peak * 2 / top, 1.0)
            return _rounded(blocks, scale, float(1 << bits - 1), top), scale, None
        scale = np.where(most > least, (most - least).astype(np.float64) / top, 1.0)
        point = np.clip(np.round(-least / scale), 0, top)
        return _rounded(blocks, scale, point, top), scale, point.astype(np.uint8)

    return _by_groups(weight, bits, block_size, method)


def real_zero_points(weight: Array, bits: int, block_size: int) -> Numbers:
    """Return numbers with zero points that are floats: a block's least value is number 0, its greatest the last.

    Scales and zero points are then those with the least squares for these numbers, where that is nearer. What was
    quantized before, in blocks that hold these, comes back as it was: its numbers are on a grid, and the grid is found.
    """
    top = (1 << bits) - 1

    def method(blocks: Array) -> tuple[Array, Array, Array | None]:
        values = blocks.astype(np.float32)
        least, most = values.min(axis=-1, keepdims=True), values.max(axis=-1, keepdims=True)
        scale = np.where(most > least, (most - least) / np.float32(top), np.float32(1)).astype(np.float32)
        numbers = np.clip(np.round((values - least) / scale), 0, top)
        ones = np.ones_like(values)
        sums = np.full_like(scale, values.shape[-1]), np.sum(values, axis=-1, keepdims=True)
        fitted = _least_squares(values, ones, numbers, sums)
        errors = [np.sum((s * numbers + m - values) ** 2, axis=-1, keepdims=True) for s, m in (fitted, (scale, least))]
        is_nearer = (errors[0] < errors[1]) & (fitted[0] > 0)
        scale, least = np.where(is_nearer, fitted[0], scale), np.where(is_nearer, fitted[1], least)
        grids = find_grids(values, scale, least, top)
        if grids[0] is not scale:
            scale, least = grids
            numbers = np.clip(np.round((values - least) / scale), 0, top)
        return numbers.astype(np.uint8), scale, -least / scale

    return _by_groups(weight, bits, block_size, method)


def symmetric_bytes(weight: Array, block_size: int) -> PackedBlocks:
    """Return blocks of 8 bits without zero points: onnxruntime's, but of what was quantized so before its own.

    Q8_0's greatest value is number 127, onnxruntime's is 128.
    """
    if not has_symmetric_grid(columns_in_blocks(weight, block_size).astype(np.float32)):
        return native_blocks(weight, 8, block_size, True)

    def method(blocks: Array) -> tuple[Array, Array, Array | None]:
        peak = np.abs(blocks).max(axis=-1, keepdims=True).astype(np.float32)
        scale = np.where(peak > 0, peak / np.float32(127), np.float32(1))
        return (np.round(blocks / scale) + 128).astype(np.uint8), scale, None

    return packed_blocks(_by_groups(weight, 8, block_size, method))


def k_quant(weight: Array, bits: int, block_size: int) -> Numbers:
    """Return numbers whose scales and least values have the least squares, weighted by the size of the values."""
    top = (1 << bits) - 1

    def method(blocks: Array) -> tuple[Array, Array, Array | None]:
        values = blocks.astype(np.float32)
        scale, least = _fitted(values, top)
        point = np.clip(np.round(-least / scale), 0, top)
        wide = scale.astype(np.float64)
        return _rounded(values, wide, point, top), wide, point.astype(np.uint8)

    return _by_groups(weight, bits, block_size, method)


def _fitted(values: Array, top: int) -> tuple[Array, Array]:
    """Return scales and least values (n, blocks, 1), float32, of values (n, blocks, block_size)."""
    weights = np.sqrt(np.sum(values**2, axis=-1, keepdims=True) / values.shape[-1]) + np.abs(values)
    least, most = _range(values)
    scale = np.where(most > least, (most - least) / np.float32(top), np.float32(1)).astype(np.float32)
    numbers = np.clip(np.round((values - least) / scale), 0, top)
    best = np.sum(weights * (scale * numbers + least - values) ** 2, axis=-1, keepdims=True)
    sums = np.sum(weights, axis=-1, keepdims=True), np.sum(weights * values, axis=-1, keepdims=True)
    for step in range(_STEPS):
        spread, factor = most - least, np.float32(-1 + _WIDTH * step + top)
        inverse = np.divide(factor, spread, out=np.ones_like(spread), where=spread != 0)
        numbers = np.clip(np.round(inverse * (values - least)), 0, top)
        found_scale, found_least = _least_squares(values, weights, numbers, sums)
        error = np.sum(weights * (found_scale * numbers + found_least - values) ** 2, axis=-1, keepdims=True)
        has_zero = (found_least <= 0) & (-found_least <= found_scale * np.float32(top + 0.5))  # a zero point fits
        is_better = (error < best) & (found_scale > 0) & has_zero
        best = np.where(is_better, error, best)
        scale, least = np.where(is_better, found_scale, scale), np.where(is_better, found_least, least)
    return scale, least


def _least_squares(values: Array, weights: Array, numbers: Array, sums: tuple[Array, Array]) -> tuple[Array, Array]:
    """Return the scale and the least value that fit values to numbers best; 0 and 0 where all numbers are one."""
    sum_w, sum_x = sums
    weighted = weights * numbers
    sum_l, sum_l2 = (np.sum(each, axis=-1, keepdims=True) for each in (weighted, weighted * numbers))
    sum_xl = np.sum(weighted * values, axis=-1, keepdims=True)
    below = sum_w * sum_l2 - sum_l**2
    zeros = np.zeros_like(below)
    scale = np.divide(sum_w * sum_xl - sum_x * sum_l, below, out=zeros, where=below > 0)
    return scale, np.divide(sum_l2 * sum_x - sum_l * sum_xl, below, out=zeros.copy(), where=below > 0)


def half_quadratic(weight: Array, bits: int, block_size: int) -> Numbers:
    """Return numbers with float zero points, moved from the range's own towards an error with few large values.

    Those of 8 bits are whole numbers, which is what engines take, and 256 numbers leave little to gain by others.
    The range's own stays where nothing that the iteration visits loses less: weights that lie on such a grid already
    keep their values.
    """
    if bits == 8:
        return round_to_nearest(weight, bits, block_size, is_symmetric=False)
    top = (1 << bits) - 1

    def method(blocks: Array) -> tuple[Array, Array, Array | None]:
        values = blocks.astype(np.float32)
        least, most = values.min(axis=-1, keepdims=True), values.max(axis=-1, keepdims=True)
        spread = np.where(most > least, most - least, np.float32(top))
        inverse = np.minimum(np.float32(top) / spread, np.float32(_steepest(weight.dtype)))
        point = _moved(values, inverse, -least * inverse, top)
        return np.clip(np.round(values * inverse + point), 0, top).astype(np.uint8), 1 / inverse, point

    return _by_groups(weight, bits, block_size, method)


def _steepest(dtype: np.dtype) -> float:
    """Return the largest inverse of a scale that the type of the weights holds without losing digits."""
    return 2e4 if dtype == np.float16 else 1e30


def _moved(values: Array, inverse: Array, start: Array, top: int) -> Array:
    """Return the zero points with the least mean error among a start and those that the iteration visits."""
    point = np.round(start)
    best_error, best = np.full(point.shape, np.inf, np.float32), point
    beta = _BETA
    for _ in range(_ITERATIONS):
        numbers, left = _numbers_and_loss(values, inverse, point, top)
        size = np.abs(left)
        error = size.mean(axis=-1, keepdims=True)
        best = np.where(error < best_error, point, best)
        if not (error < best_error).any():
            break
        best_error = np.minimum(best_error, error)
        sparse = np.sign(left) * np.maximum(size - (size + np.float32(1e-8)) ** (_NORM - 1) / np.float32(beta), 0)
        point = np.mean(numbers - (values - sparse) * inverse, axis=-1, keepdims=True)
        beta *= _GROWTH
    own_error = np.abs(_numbers_and_loss(values, inverse, start, top)[1]).mean(axis=-1, keepdims=True)
    return np.where(own_error < best_error, start, best)


def _numbers_and_loss(values: Array, inverse: Array, point: Array, top: int) -> tuple[Array, Array]:
    numbers = np.clip(np.round(values * inverse + point), 0, top)
    return numbers, values - (numbers - point) / inverse


def _range(blocks: Array) -> tuple[Array, Array]:
    """Return least and greatest values (n, blocks, 1) of ranges that hold 0."""
    zero = blocks.dtype.type(0)
    least, most = blocks.min(axis=-1, keepdims=True), blocks.max(axis=-1, keepdims=True)
    return np.minimum(least, zero), np.maximum(most, zero)


def _rounded(blocks: Array, scale: Array, point: Array | float, top: int) -> Array:
    return np.clip(np.round(blocks / scale + point), 0, top).astype(np.uint8)


def _by_groups(weight: Array, bits: int, block_size: int, method: Method) -> Numbers:
    """Quantize groups of columns one after another; scales get the type of the weight."""
    rows, columns = weight.shape
    blocks = -(-rows // block_size)
    values = np.empty((columns, blocks, block_size), np.uint8)
    scales = np.empty((columns, blocks), weight.dtype)
    points: Array | None = None
    step = max(_GROUP // (blocks * block_size), 1)
    for first in range(0, columns, step):
        part = slice(first, min(first + step, columns))
        values[part], scale, point = method(columns_in_blocks(weight[:, part], block_size))
        scales[part] = scale[..., 0]
        if point is not None:
            if points is None:
                points = np.empty((columns, blocks), np.uint8 if point.dtype == np.uint8 else weight.dtype)
            points[part] = point[..., 0]
    return Numbers(values, scales, points, bits, rows)
