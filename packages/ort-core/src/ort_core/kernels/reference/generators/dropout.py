"""Dropout: identity in inference; in training each element is kept with probability ``1 - ratio`` and scaled up."""

from __future__ import annotations

import numpy as np

from ort_core.errors import InvalidArgument
from ort_core.kernels.kernel import KernelContext, kernel
from ort_core.kernels.reference.arrays.widening import narrow, widen


@kernel("Dropout", since=12)
def dropout(
    data: np.ndarray,
    ratio: np.ndarray | None = None,
    training_mode: np.ndarray | None = None,
    *,
    seed: int | None = None,
    ctx: KernelContext | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Drop elements only where the input ``training_mode`` is true; the mask is true where an element was kept."""
    rate = 0.5 if ratio is None else float(np.asarray(ratio).reshape(()))
    if not 0 <= rate < 1:
        raise InvalidArgument(f"ratio must be in the range [0, 1), found {rate}")
    if training_mode is None or not bool(np.asarray(training_mode).reshape(())) or rate == 0:
        return data, np.ones(data.shape, bool)
    return _drop(data, rate, seed, ctx)


def _drop(data: np.ndarray, rate: float, seed: int | None, ctx: KernelContext | None) -> tuple[np.ndarray, np.ndarray]:
    mask = _uniform(data.shape, seed, ctx) >= rate
    wide = widen(data)
    return narrow(np.where(mask, wide * wide.dtype.type(1 / (1 - rate)), wide.dtype.type(0)), data.dtype), mask


def _uniform(shape: tuple[int, ...], seed: int | None, ctx: KernelContext | None) -> np.ndarray:
    """Return numbers in [0, 1); a given seed fixes them to those that the ONNX reference implementation draws."""
    if seed is not None:
        return np.random.RandomState(seed & 0xFFFFFFFF).uniform(0, 1, shape)
    generator = np.random.default_rng() if ctx is None else ctx.generator(None)
    return generator.random(shape)


@kernel("Dropout", since=10, until=11)
def dropout_10(data: np.ndarray, *, ratio: float = 0.5) -> tuple[np.ndarray, np.ndarray]:
    """Return the input: these versions know inference only. The unused mask is filled with zeros, as in onnxruntime."""
    return data, np.zeros(data.shape, bool)


@kernel("Dropout", since=7, until=9)
def dropout_7(data: np.ndarray, *, ratio: float = 0.5) -> tuple[np.ndarray, np.ndarray]:
    """Return the input and a mask of zeros of the input's type."""
    return data, np.zeros(data.shape, data.dtype)


@kernel("Dropout", since=1, until=6)
def dropout_1(
    data: np.ndarray,
    *,
    consumed_inputs: tuple[int, ...] = (),
    is_test: int = 0,
    ratio: float = 0.5,
    ctx: KernelContext | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Train unless ``is_test``. ``consumed_inputs`` was a hint for memory and means nothing here."""
    if is_test or ratio == 0:
        return data, np.ones(data.shape, data.dtype)
    y, mask = _drop(data, ratio, None, ctx)
    return y, mask.astype(data.dtype)
