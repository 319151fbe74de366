"""Signals: Fourier transforms whose last axis holds real (and imaginary) parts, and the mel filter bank."""

from __future__ import annotations

import numpy as np

from ort_core.errors import InvalidArgument
from ort_core.ir.types import DataType
from ort_core.kernels.kernel import KernelContext, kernel
from ort_core.kernels.reference.arrays.axes import check_size
from ort_core.kernels.reference.arrays.widening import narrow, to_real


def _scalar(value: np.ndarray) -> int:
    return int(value.reshape(-1)[0])


@kernel("DFT", since=20)
def dft(
    x: np.ndarray,
    dft_length: np.ndarray | None = None,
    axis: np.ndarray | None = None,
    *,
    inverse: int = 0,
    onesided: int = 0,
    ctx: KernelContext | None = None,
) -> np.ndarray:
    """Transform along ``axis`` (default: the last but the parts), cut or padded with zeros to ``dft_length``."""
    length = None if dft_length is None else _scalar(dft_length)
    return _transform(x, length, -2 if axis is None else _scalar(axis), bool(inverse), bool(onesided), ctx)


@kernel("DFT", since=17, until=19)
def dft_17(
    x: np.ndarray,
    dft_length: np.ndarray | None = None,
    *,
    axis: int = 1,
    inverse: int = 0,
    onesided: int = 0,
    ctx: KernelContext | None = None,
) -> np.ndarray:
    """Transform along ``axis``, which was an attribute at first."""
    length = None if dft_length is None else _scalar(dft_length)
    return _transform(x, length, axis, bool(inverse), bool(onesided), ctx)


def _transform(
    x: np.ndarray, length: int | None, axis: int, inverse: bool, onesided: bool, ctx: KernelContext | None
) -> np.ndarray:
    if x.ndim < 2 or x.shape[-1] not in (1, 2):
        raise InvalidArgument(f"DFT: input has shape {x.shape}, expected a last axis of 1 (real) or 2 (complex)")
    if not -x.ndim <= axis < x.ndim or axis % x.ndim == x.ndim - 1:
        raise InvalidArgument(f"DFT: axis {axis} is not a signal axis of shape {x.shape}")
    axis %= x.ndim
    returns_real = inverse and onesided
    if returns_real and x.shape[-1] != 2:
        raise InvalidArgument(f"DFT: inverse with onesided needs a complex input, whose last axis has 2; got {x.shape}")
    if length is None:
        length = 2 * (x.shape[axis] - 1) if returns_real else x.shape[axis]
    if length <= 0:
        raise InvalidArgument(f"DFT: dft_length is {length}, expected a positive number")
    check_size((*x.shape[:axis], length, *x.shape[axis + 1 : -1], 2), x.dtype, "DFT", ctx)
    signal = _joined(to_real(x))
    if returns_real:
        return narrow(np.fft.irfft(signal, n=length, axis=axis)[..., None], x.dtype)
    if not inverse and onesided and signal.dtype.kind == "f":
        return _parts(np.fft.rfft(signal, n=length, axis=axis), x.dtype)
    out = (np.fft.ifft if inverse else np.fft.fft)(signal, n=length, axis=axis)
    if onesided:
        out = out[(slice(None),) * axis + (slice(length // 2 + 1),)]
    return _parts(out, x.dtype)


def _joined(x: np.ndarray) -> np.ndarray:
    """Return real or complex numbers from parts."""
    return x[..., 0] if x.shape[-1] == 1 else x[..., 0] + 1j * x[..., 1]


def _parts(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return the real and imaginary parts as a last axis of 2."""
    return narrow(np.stack([values.real, values.imag], axis=-1), dtype)


@kernel("STFT", since=17)
def stft(
    signal: np.ndarray,
    frame_step: np.ndarray,
    window: np.ndarray | None = None,
    frame_length: np.ndarray | None = None,
    *,
    onesided: int = 1,
) -> np.ndarray:
    """Transform frames of [batch, length, parts] that start ``frame_step`` apart: [batch, frames, bins, 2]."""
    if signal.ndim == 2:
        signal = signal[..., None]
    if signal.ndim != 3 or signal.shape[-1] not in (1, 2):
        raise InvalidArgument(f"STFT: signal has shape {signal.shape}, expected [batch, length, 1 or 2]")
    if window is None and frame_length is None:
        raise InvalidArgument("STFT: one of the inputs window and frame_length must be there")
    step = _scalar(frame_step)
    size = signal.shape[1] if window is None else window.shape[0]
    if frame_length is not None:
        size = _scalar(frame_length)
    if step <= 0 or not 0 < size <= signal.shape[1]:
        raise InvalidArgument(
            f"STFT: frame_step {step} and frame_length {size} do not fit a signal of {signal.shape[1]}"
        )
    if window is not None and window.shape != (size,):
        raise InvalidArgument(f"STFT: window has shape {window.shape}, expected ({size},): the frame length")
    if onesided and signal.shape[-1] == 2:
        raise InvalidArgument("STFT: onesided needs a real signal, found a complex one; set onesided to 0")
    frames = np.lib.stride_tricks.sliding_window_view(_joined(to_real(signal)), size, axis=1)[:, ::step]
    weighted = frames if window is None else frames * to_real(window)
    return _parts((np.fft.rfft if onesided else np.fft.fft)(weighted, axis=-1), signal.dtype)


@kernel("MelWeightMatrix", since=17)
def mel_weight_matrix(
    num_mel_bins: np.ndarray,
    dft_length: np.ndarray,
    sample_rate: np.ndarray,
    lower_edge_hertz: np.ndarray,
    upper_edge_hertz: np.ndarray,
    *,
    output_datatype: int = 1,
    ctx: KernelContext | None = None,
) -> np.ndarray:
    """Return the matrix [spectrogram bins, mel bins] of triangles that stand evenly on the mel scale."""
    bins, length, rate = _scalar(num_mel_bins), _scalar(dft_length), _scalar(sample_rate)
    spectrum = length // 2 + 1
    check_size((spectrum, bins), np.dtype(np.float64), "MelWeightMatrix", ctx)
    low, high = (2595 * np.log10(1 + float(edge.reshape(-1)[0]) / 700) for edge in (lower_edge_hertz, upper_edge_hertz))
    mels = low + np.arange(bins + 2) * ((high - low) / (bins + 2))
    points = ((length + 1) * (700 * (10 ** (mels / 2595) - 1)) // rate).astype(np.int64)
    if bins < 0 or (points.size and (points.min() < 0 or points.max() >= spectrum)):
        raise InvalidArgument(
            f"MelWeightMatrix: edges {lower_edge_hertz} and {upper_edge_hertz} Hz with {bins} bins leave the "
            f"{spectrum} frequencies below half the sample rate {rate}"
        )
    left, center, right = points[:-2], points[1:-1], points[2:]
    at = np.arange(spectrum)[:, None]
    rising = (at - left) / np.maximum(center - left, 1)
    falling = (right - at) / np.maximum(right - center, 1)
    out = np.where((at >= left) & (at <= center) & (center > left), rising, 0)
    out = np.where((at == center) & (center == left), 1, out)
    out = np.where((at >= center) & (at < right), falling, out)
    return narrow(out, DataType(output_datatype).numpy)
