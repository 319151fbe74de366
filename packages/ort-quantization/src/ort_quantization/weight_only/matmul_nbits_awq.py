"""AWQ: weights are scaled by what their operand's channels carry, so that rounding costs the large channels less.

``x @ W`` is ``(x / s) @ (s * W)``. With the Hessian H of the operand, the error that a rounded weight Q leaves in the
outputs is ``sum((W - Q / s) * (H @ (W - Q / s)))``: scales, and ranges of blocks, are chosen by it, without a run.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ort_quantization.weight_only.matmul_nbits_blocks import Array, columns_in_blocks
from ort_quantization.weight_only.matmul_nbits_rounding import round_to_nearest
from ort_quantization.weight_only.matmul_nbits_settings import Settings
from ort_quantization.weight_only.matmul_nbits_statistics import OperandState

_STEPS = 20  # powers of the mean sizes from 0 to 1
_COLUMNS = 512  # of each weight that scales are chosen by
_RATIOS = np.arange(1.0, 0.45, -0.05)  # of a block's range


def channel_scales(weights: Sequence[Array], state: OperandState, settings: Settings) -> Array | None:
    """Return scales (K,) of the rows of all weights (K, N) that one operand meets; ``None`` where none helps."""
    sizes = np.maximum(state.mean_sizes, 1e-8)
    samples = [_spread_columns(weight).astype(np.float32) for weight in weights]
    hessian = state.hessian.astype(np.float32)
    best, found = np.inf, None
    for step in range(_STEPS):
        scales = sizes ** (step / _STEPS)
        scales = np.maximum(scales / np.sqrt(scales.max() * scales.min()), 1e-4).astype(np.float32)
        error = sum(output_error(each, _kept(each, scales, settings), hessian) for each in samples)
        if error < best:
            best, found = error, scales if step else None
    return found


def output_error(weight: Array, kept: Array, hessian: Array) -> float:
    """Return the mean squared error that a weight (K, N) leaves in its product, summed over columns."""
    lost = weight - kept
    return float(np.sum(lost * (hessian @ lost), dtype=np.float64))


def with_cut_ranges(weight: Array, state: OperandState, settings: Settings) -> Array:
    """Return a weight whose blocks are cut to the ranges that leave the least error in the product."""
    rows, columns = weight.shape
    size = settings.block_of(rows)
    blocks = columns_in_blocks(weight.astype(np.float32), size)
    hessian = np.pad(state.hessian, (0, -rows % size)).astype(np.float32)
    found = np.empty_like(blocks)
    for block in range(blocks.shape[1]):
        part = slice(block * size, (block + 1) * size)
        found[:, block] = _cut(blocks[:, block], hessian[part, part], settings)
    return np.ascontiguousarray(found.reshape(columns, -1)[:, :rows].T)


def _cut(values: Array, hessian: Array, settings: Settings) -> Array:
    """Return values (N, block_size) cut to the best share of their range."""
    least, most = values.min(axis=1, keepdims=True), values.max(axis=1, keepdims=True)
    best, found = np.full(len(values), np.inf), values
    for ratio in _RATIOS.astype(np.float32):
        tried = np.clip(values, least * ratio if ratio < 1 else least, most * ratio if ratio < 1 else most)
        kept = round_to_nearest(tried.T, settings.bits, values.shape[1], settings.is_symmetric).dequantized().T
        lost = values - kept
        error = np.sum(lost * (lost @ hessian), axis=1)
        is_better = error < best
        best = np.where(is_better, error, best)
        found = np.where(is_better[:, None], tried, found)
    return found


def _kept(weight: Array, scales: Array, settings: Settings) -> Array:
    scaled = weight * scales[:, None]
    block = settings.block_of(len(weight))
    return round_to_nearest(scaled, settings.bits, block, settings.is_symmetric).dequantized() / scales[:, None]


def _spread_columns(weight: Array) -> Array:
    columns = weight.shape[1]
    return weight[:, np.linspace(0, columns - 1, min(columns, _COLUMNS)).astype(np.int64)]
