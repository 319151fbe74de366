"""Complex numbers as pairs on the last axis: products, and Fourier transforms of real signals."""

from __future__ import annotations

import numpy as np

from ort_core import errors
from ort_core.kernels.kernel import kernel
from ort_core.kernels.reference.arrays.widening import narrow, widen


def _complex(x: np.ndarray) -> np.ndarray:
    if x.ndim == 0 or x.shape[-1] != 2:
        raise errors.InvalidArgument(f"complex values need a last axis of 2 (real, imaginary); found shape {x.shape}")
    wide = widen(x)
    return wide[..., 0] + 1j * wide[..., 1]


def _pairs(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    return narrow(np.stack([values.real, values.imag], axis=-1), dtype)


@kernel("ComplexMul", domain="com.microsoft")
def complex_mul(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """C = A * B."""
    return _pairs(_complex(a) * _complex(b), a.dtype)


@kernel("ComplexMulConj", domain="com.microsoft")
def complex_mul_conjugate(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """C = A * conjugate(B)."""
    return _pairs(_complex(a) * np.conj(_complex(b)), a.dtype)


def _signal_axes(rank: int, signal_ndim: int, normalized: int, onesided: int) -> tuple[int, ...]:
    if normalized or not onesided or not 1 <= signal_ndim <= rank:
        raise errors.InvalidArgument(
            f"normalized {normalized}, onesided {onesided}, signal_ndim {signal_ndim}: expected 0, 1 and 1 to {rank}"
        )
    return tuple(range(rank - signal_ndim, rank))


@kernel("Rfft", domain="com.microsoft")
def rfft(x: np.ndarray, *, normalized: int = 0, onesided: int = 1, signal_ndim: int = 1) -> np.ndarray:
    """The one-sided transform of a real signal over the last ``signal_ndim`` axes."""
    axes = _signal_axes(x.ndim, signal_ndim, normalized, onesided)
    return _pairs(np.fft.rfftn(widen(x), axes=axes), x.dtype)


@kernel("Irfft", domain="com.microsoft")
def irfft(x: np.ndarray, *, signal_ndim: int, normalized: int = 0, onesided: int = 1) -> np.ndarray:
    """The real signal, of even length, that has this one-sided transform."""
    values = _complex(x)
    axes = _signal_axes(values.ndim, signal_ndim, normalized, onesided)
    return narrow(np.fft.irfftn(values, axes=axes), x.dtype)
