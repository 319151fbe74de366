"""GPTQ: rows of a weight are quantized in turn, and the rows that follow take over what each one loses.

With the Hessian H of the outputs' squared error and U the upper Cholesky factor of its inverse, the row i of weights
loses ``e = (w - q) / U[i, i]``, and the rows behind it become ``w - U[i, j] * e``. Scales of a block are found when its
first row is reached, from rows as they are then. They are the scales that the file gets: onnxruntime's tool rounds the
result once more, by scales of its own. Columns do not meet: they are worked on by groups.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ort_quantization.weight_only.factors_in_place import factor_in_place, invert_in_place
from ort_quantization.weight_only.matmul_nbits_blocks import Array, Numbers
from ort_quantization.weight_only.matmul_nbits_ranges import ZeroPoints, block_parameters

_COLUMNS = 1 << 21  # values of a weight that are worked on at once


@dataclass(frozen=True, slots=True)
class GptqSettings:
    """How GPTQ goes over a weight.

    Attributes:
        bits: of a number.
        block_size: rows that share a scale.
        is_symmetric: no zero points.
        rows_at_once: rows whose corrections reach the others together.
        has_order: rows come in the errors' own order, in blocks that are fixed before.
        has_search: scales by the least error instead of the range.
        has_real_points: zero points are floats.
    """

    bits: int
    block_size: int
    is_symmetric: bool
    rows_at_once: int = 128
    has_order: bool = False
    has_search: bool = False
    has_real_points: bool = False


@dataclass(frozen=True, slots=True)
class RowErrors:
    """What errors of rows cost, and what other rows can make up for: the same for each weight that meets an operand.

    Attributes:
        order: int64 (K,), the row that is quantized in each turn.
        factor: float32 (K, K), upper triangular, rows and columns in that order.
        is_unused: bool (K,), whether no sample uses a row; in the order of the weight.
        importance: float32 (K,), what a squared error of a row costs; in the order of the weight.
    """

    order: Array
    factor: Array
    is_unused: Array
    importance: Array

    @classmethod
    def of_hessian(cls, hessian: Array, damping: float, has_order: bool) -> RowErrors:
        """Return the errors that follow from a Hessian.

        Args:
            hessian: (K, K).
            damping: share of the mean of its diagonal that is added to it.
            has_order: rows with the largest activations come first.
        """
        diagonal = np.diag(hessian)
        order = np.argsort(-diagonal, kind="stable") if has_order else np.arange(len(diagonal))
        factor = inverse_factor(hessian[np.ix_(order, order)] if has_order else hessian, damping)
        importance = np.empty(len(order), np.float32)
        importance[order] = np.diag(factor) ** -2.0
        return cls(order, factor.astype(np.float32), diagonal == 0, importance)


def gptq(weight: Array, errors: RowErrors, settings: GptqSettings) -> Numbers:
    """Return the numbers of a weight (K, N) whose operand's channels have errors of K rows."""
    rows, columns = weight.shape
    blocks = -(-rows // settings.block_size)
    point_type = weight.dtype if settings.has_real_points else np.dtype(np.uint8)
    found = Numbers(
        np.zeros((columns, blocks, settings.block_size), np.uint8),
        np.empty((columns, blocks), weight.dtype),
        None if settings.is_symmetric else np.empty((columns, blocks), point_type),
        settings.bits, rows,
    )  # fmt: skip
    step = max(_COLUMNS // rows, 1)
    for first in range(0, columns, step):
        part = slice(first, first + step)
        numbers, scales, points = _of_columns(weight[:, part], errors, settings)
        missing = ((0, 0), (0, -rows % settings.block_size))
        found.values[part] = np.pad(numbers.T, missing).reshape(-1, blocks, settings.block_size)
        found.scales[part] = scales.T
        if found.zero_points is not None:
            found.zero_points[part] = points.T
    return found


def _of_columns(weight: Array, rows_lose: RowErrors, settings: GptqSettings) -> tuple[Array, Array, Array]:
    """Return numbers (K, N), scales and zero points (blocks, N) of a weight (K, N)."""
    rows, columns = weight.shape
    size, order, factor = settings.block_size, rows_lose.order, rows_lose.factor
    blocks = -(-rows // size)
    left = weight.astype(np.float32)
    left[rows_lose.is_unused] = 0
    scales, points = np.ones((2, blocks, columns), np.float32)
    if settings.has_order:  # rows of a block come apart: its scale is that of the weight as it is
        for block in range(blocks):
            part = slice(block * size, (block + 1) * size)
            scales[block], points[block] = _parameters(left[part], rows_lose.importance[part], settings, weight.dtype)
        left = left[order]
    numbers = np.zeros((rows, columns), np.uint8)
    for first in range(0, rows, settings.rows_at_once):
        last = min(first + settings.rows_at_once, rows)
        errors = np.empty((last - first, columns), np.float32)
        for row in range(first, last):
            block = order[row] // size
            if not settings.has_order and row % size == 0:
                stop = min(row + size, rows)
                ahead = _current(left, factor, errors, (first, row, last), stop)
                scales[block], points[block] = _parameters(
                    ahead, rows_lose.importance[row:stop], settings, weight.dtype
                )  # fmt: skip
            numbers[order[row]], kept = _rounded(left[row], scales[block], points[block], settings.bits)
            errors[row - first] = (left[row] - kept) / factor[row, row]
            left[row + 1 : last] -= np.outer(factor[row, row + 1 : last], errors[row - first])
        left[last:] -= factor[first:last, last:].T @ errors
    return numbers, scales, points


def inverse_factor(hessian: Array, damping: float) -> Array:
    """Return the upper Cholesky factor of a Hessian's inverse; the diagonal grows until there is one."""
    diagonal = np.diag(hessian).astype(np.float64)
    diagonal[diagonal == 0] = 1
    mean = diagonal.mean()
    for growth in (1, 10, 100, 1000):
        tried = np.array(hessian[::-1, ::-1], dtype=np.float64, order="C")
        np.einsum("ii->i", tried)[:] = (diagonal + mean * max(damping, 1e-8) * growth)[::-1]
        try:
            factor_in_place(tried)
        except np.linalg.LinAlgError:
            continue
        invert_in_place(tried)
        return tried[::-1, ::-1]  # with rows and columns reversed, the factor of the inverse is the inverted factor
    return np.diag(1 / np.sqrt(diagonal))


def _current(left: Array, factor: Array, errors: Array, done: tuple[int, int, int], stop: int) -> Array:
    """Return the rows of a block as they are now: those behind the rows at once have not been told of errors yet."""
    first, row, last = done
    if stop <= last:
        return left[row:stop]
    behind = left[last:stop] - factor[first:row, last:stop].T @ errors[: row - first]
    return np.concatenate([left[row:last], behind])


def _parameters(values: Array, importance: Array, settings: GptqSettings, dtype: np.dtype) -> tuple[Array, Array]:
    """Return scales and zero points (N,) of a block (rows, N)."""
    kind: ZeroPoints = "symmetric" if settings.is_symmetric else "real" if settings.has_real_points else "whole"
    found = block_parameters(values, importance if settings.has_search else None, settings.bits, kind, dtype)
    return found[0].astype(dtype).astype(np.float32), found[1].astype(dtype).astype(np.float32)  # as the file has them


def _rounded(row: Array, scale: Array, point: Array, bits: int) -> tuple[Array, Array]:
    """Return the numbers of a row, and what they stand for."""
    numbers = np.clip(np.round(row / scale + point), 0, (1 << bits) - 1)
    return numbers.astype(np.uint8), (numbers - point) * scale
