"""Dropout fused with a bias and a residual or with a bit-packed mask, and the check for finite gradients."""

from __future__ import annotations

import numpy as np

from ort_core import errors
from ort_core.kernels.kernel import KernelContext, kernel
from ort_core.kernels.reference.arrays.widening import narrow, widen

Optional = np.ndarray | None


def _kept(
    shape: tuple[int, ...], ratio: Optional, training_mode: Optional, seed: int | None, ctx: KernelContext
) -> tuple[np.ndarray, np.float32]:
    """Return (the mask of what stays, the factor that makes up for the rest)."""
    share = 0.5 if ratio is None else float(ratio.reshape(()))
    if not 0 <= share < 1:
        raise errors.InvalidArgument(f"ratio {share} must be in [0, 1)")
    if training_mode is None or not bool(training_mode.reshape(())) or share == 0:
        return np.ones(shape, bool), np.float32(1)
    generator = ctx.generator(None if seed is None else float(seed))
    return generator.random(shape) >= share, np.float32(1 / (1 - share))


def _packed(mask: np.ndarray) -> np.ndarray:
    """Return a bool mask as uint32 words, the first element in the lowest bit."""
    flat = mask.reshape(-1)
    padded = np.concatenate([flat, np.zeros(-flat.size % 32, bool)])
    return np.packbits(padded, bitorder="little").view("<u4").astype(np.uint32)


@kernel("BiasDropout", domain="com.microsoft")
def bias_dropout(
    data: np.ndarray,
    bias: np.ndarray,
    residual: Optional = None,
    ratio: Optional = None,
    training_mode: Optional = None,
    *,
    seed: int | None = None,
    ctx: KernelContext,
) -> tuple[np.ndarray, np.ndarray]:
    """Y = Dropout(data + bias) + residual; also the mask."""
    mask, factor = _kept(data.shape, ratio, training_mode, seed, ctx)
    result = (widen(data) + widen(bias)) * mask * factor
    return narrow(result if residual is None else result + widen(residual), data.dtype), mask


@kernel("BitmaskBiasDropout", domain="com.microsoft")
def bitmask_bias_dropout(
    data: np.ndarray,
    bias: np.ndarray,
    residual: Optional = None,
    ratio: Optional = None,
    training_mode: Optional = None,
    *,
    seed: int | None = None,
    ctx: KernelContext,
) -> tuple[np.ndarray, np.ndarray]:
    """BiasDropout with its mask packed to bits."""
    result, mask = bias_dropout(data, bias, residual, ratio, training_mode, seed=seed, ctx=ctx)
    return result, _packed(mask)


@kernel("BitmaskDropout", domain="com.microsoft")
def bitmask_dropout(
    data: np.ndarray,
    ratio: Optional = None,
    training_mode: Optional = None,
    *,
    seed: int | None = None,
    ctx: KernelContext,
) -> tuple[np.ndarray, np.ndarray]:
    """Dropout with its mask packed to bits."""
    mask, factor = _kept(data.shape, ratio, training_mode, seed, ctx)
    return narrow(widen(data) * mask * factor, data.dtype), _packed(mask)


@kernel("IsAllFinite", domain="com.microsoft")
def is_all_finite(*inputs: np.ndarray, isinf_only: int = 0, isnan_only: int = 0) -> np.ndarray:
    """Whether no value of any input is infinite or NaN, or only the one that is asked about."""
    if isinf_only and isnan_only:
        raise errors.InvalidArgument("isinf_only and isnan_only exclude each other")
    wrong = np.isinf if isinf_only else np.isnan if isnan_only else lambda x: ~np.isfinite(x)
    return np.array(not any(wrong(widen(x)).any() for x in inputs))
