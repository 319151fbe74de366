"""GPTQ: rows of a weight are quantized in turn, and the rows that follow take over what each one loses.

With the Hessian H of the outputs' squared error and U the upper Cholesky factor of its inverse, the row i of weights
loses ``e = (w - q) / U[i, i]``, and the rows behind it become ``w - U[i, j] * e``. Scales of a block are found when its
first row is reached, from rows as they are then. They are the scales that the file gets: onnxruntime's tool rounds the
result once more, by scales of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ort_quantization.matmul_nbits_blocks import Array, Numbers

_GRID, _SHRINK, _NORM = 100, 80, 2.4  # ranges of 100 to 21 percent are tried; the error's power that is summed


@dataclass(frozen=True, slots=True)
class GptqSettings:
    """How GPTQ goes over a weight.

    Attributes:
        bits: of a number.
        block_size: rows that share a scale.
        is_symmetric: no zero points.
        damping: share of the mean of the Hessian's diagonal that is added to it.
        rows_at_once: rows whose corrections reach the others together.
        has_order: rows with the largest activations first.
        has_search: scales by the least error instead of the range.
    """

    bits: int
    block_size: int
    is_symmetric: bool
    damping: float = 0.01
    rows_at_once: int = 128
    has_order: bool = False
    has_search: bool = False


def gptq(weight: Array, hessian: Array, settings: GptqSettings) -> Numbers:
    """Return the numbers of a weight (K, N) whose operand has a Hessian (K, K)."""
    rows, columns = weight.shape
    size, blocks = settings.block_size, -(-rows // settings.block_size)
    left = weight.astype(np.float64)
    left[np.diag(hessian) == 0] = 0  # channels that no sample uses
    order = np.argsort(-np.diag(hessian), kind="stable") if settings.has_order else np.arange(rows)
    factor = inverse_factor(hessian[np.ix_(order, order)], settings.damping)
    scales, points = np.ones((blocks, columns)), np.zeros((blocks, columns))
    if settings.has_order:  # rows of a block come apart: its scale is that of the weight as it is
        for block in range(blocks):
            scales[block], points[block] = _block_parameters(left[block * size : (block + 1) * size], settings)
    left = left[order]
    numbers = np.zeros((rows, columns), np.uint8)
    for first in range(0, rows, settings.rows_at_once):
        last = min(first + settings.rows_at_once, rows)
        errors = np.empty((last - first, columns))
        for row in range(first, last):
            block = order[row] // size
            if not settings.has_order and row % size == 0:
                ahead = _current(left, factor, errors, (first, row, last), min(row + size, rows))
                scales[block], points[block] = _block_parameters(ahead, settings)
            numbers[order[row]], kept = _rounded(left[row], scales[block], points[block], settings.bits)
            errors[row - first] = (left[row] - kept) / factor[row, row]
            left[row + 1 : last] -= np.outer(factor[row, row + 1 : last], errors[row - first])
        left[last:] -= factor[first:last, last:].T @ errors
    return _blocks(numbers, scales, points, weight.dtype, settings)


def inverse_factor(hessian: Array, damping: float) -> Array:
    """Return the upper Cholesky factor of a Hessian's inverse; the diagonal grows until there is one."""
    damped = np.array(hessian, dtype=np.float64)
    diagonal = np.einsum("ii->i", damped)
    diagonal[diagonal == 0] = 1
    mean = diagonal.mean()
    for growth in (1, 10, 100, 1000):
        tried = damped.copy()
        np.einsum("ii->i", tried)[:] += mean * max(damping, 1e-8) * growth
        try:
            return np.linalg.cholesky(np.linalg.inv(tried)).T
        except np.linalg.LinAlgError:
            continue
    return np.diag(1 / np.sqrt(diagonal))


def _current(left: Array, factor: Array, errors: Array, done: tuple[int, int, int], stop: int) -> Array:
    """Return the rows of a block as they are now: those behind the rows at once have not been told of errors yet."""
    first, row, last = done
    if stop <= last:
        return left[row:stop]
    behind = left[last:stop] - factor[first:row, last:stop].T @ errors[: row - first]
    return np.concatenate([left[row:last], behind])


def _block_parameters(values: Array, settings: GptqSettings) -> tuple[Array, Array]:
    """Return scales and zero points (N,) of a block (rows, N)."""
    top = (1 << settings.bits) - 1
    least, most = np.minimum(values.min(axis=0), 0), np.maximum(values.max(axis=0), 0)
    if settings.is_symmetric:
        most = np.maximum(-least, most)
        least = -most
    is_flat = least == most
    least, most = np.where(is_flat, -1.0, least), np.where(is_flat, 1.0, most)
    scale, point = _parameters(least, most, top, settings.is_symmetric)
    if not settings.has_search:
        return scale, point
    best = np.full(scale.shape, np.inf)
    for step in range(_SHRINK):
        kept = 1 - step / _GRID
        tried = _parameters(least * kept, most * kept, top, settings.is_symmetric)
        numbers = np.clip(np.round(values / tried[0]) + tried[1], 0, top)
        error = (np.abs((numbers - tried[1]) * tried[0] - values) ** _NORM).sum(axis=0)
        is_better = error < best
        best = np.where(is_better, error, best)
        scale, point = np.where(is_better, tried[0], scale), np.where(is_better, tried[1], point)
    return scale, point


def _parameters(least: Array, most: Array, top: int, is_symmetric: bool) -> tuple[Array, Array]:
    scale = (most - least) / top
    return scale, np.full(scale.shape, (top + 1) / 2) if is_symmetric else np.round(-least / scale)


def _rounded(row: Array, scale: Array, point: Array, bits: int) -> tuple[Array, Array]:
    """Return the numbers of a row, and what they stand for."""
    numbers = np.clip(np.round(row / scale) + point, 0, (1 << bits) - 1)
    return numbers.astype(np.uint8), (numbers - point) * scale


def _blocks(numbers: Array, scales: Array, points: Array, dtype: np.dtype, settings: GptqSettings) -> Numbers:
    rows, columns = numbers.shape
    missing = -rows % settings.block_size
    whole = np.pad(numbers, ((0, missing), (0, 0)))
    values = np.ascontiguousarray(whole.T).reshape(columns, -1, settings.block_size)
    kept = None if settings.is_symmetric else np.ascontiguousarray(points.T).astype(np.uint8)
    return Numbers(values, np.ascontiguousarray(scales.T).astype(dtype), kept, settings.bits, rows)
