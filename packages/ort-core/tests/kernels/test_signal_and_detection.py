"""Fourier transforms against sums of exponentials, suppression against a loop, images against what was encoded."""

import io

import ml_dtypes
import numpy as np
import pytest

from ort_core.errors import Fail, InvalidArgument
from ort_core.kernels.reference.images.detection import non_max_suppression
from ort_core.kernels.reference.images.image_decoder import image_decoder
from ort_core.kernels.reference.signals.signal import dft, dft_17, mel_weight_matrix, stft


def transform_matrix(length, sign=-1):
    return np.exp(sign * 2j * np.pi * np.outer(np.arange(length), np.arange(length)) / length)


def parts(values):
    return np.stack([values.real, values.imag], axis=-1)


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(np.float64, 1e-12), (np.float32, 1e-5), (np.float16, 1e-2), (ml_dtypes.bfloat16, 6e-2)]
)
def test_dft_sums_exponentials_along_its_axis(dtype, tolerance):
    x = np.random.default_rng(0).standard_normal((2, 5, 3, 1)).astype(dtype)
    expected = parts(np.einsum("kn,bnc->bkc", transform_matrix(5), x[..., 0].astype(np.float64)))
    y = dft(x, None, np.array(1))
    assert y.dtype == dtype
    np.testing.assert_allclose(y.astype(np.float64), expected, rtol=tolerance, atol=tolerance)
    np.testing.assert_array_equal(dft_17(x, axis=1), y)
    np.testing.assert_allclose(dft(x, None, np.array(1), onesided=1), y[:, :3], rtol=tolerance, atol=tolerance)


def test_dft_cuts_or_pads_the_signal():
    x = np.random.default_rng(1).standard_normal((1, 5, 2))
    signal = x[..., 0] + 1j * x[..., 1]
    for length in (3, 8):
        fitted = np.pad(signal[:, :length], [(0, 0), (0, max(0, length - 5))])
        np.testing.assert_allclose(dft(x, np.array(length)), parts(fitted @ transform_matrix(length)), atol=1e-10)


@pytest.mark.parametrize("length", [4, 5])
def test_inverse_dft_returns_the_signal(length):
    x = np.random.default_rng(2).standard_normal((2, length, 1))
    np.testing.assert_allclose(dft(dft(x), inverse=1)[..., :1], x, atol=1e-12)
    half = dft(x, onesided=1)
    np.testing.assert_allclose(dft(half, np.array(length), inverse=1, onesided=1), x, atol=1e-12)


def test_stft_transforms_windowed_frames():
    signal = np.random.default_rng(3).standard_normal((2, 11, 1))
    window = np.hanning(4)
    y = stft(signal, np.array(3), window)
    assert y.shape == (2, 3, 3, 2)
    for frame in range(3):
        part = signal[:, 3 * frame : 3 * frame + 4] * window[:, None]
        np.testing.assert_allclose(y[:, frame], dft(part, onesided=1), atol=1e-12)
    np.testing.assert_allclose(stft(signal, np.array(3), window, onesided=0)[:, :, :3], y, atol=1e-12)


def test_signal_operators_refuse_what_does_not_fit():
    with pytest.raises(InvalidArgument, match="expected a last axis of 1"):
        dft(np.zeros((2, 3)))
    with pytest.raises(InvalidArgument, match="do not fit a signal"):
        stft(np.zeros((1, 4, 1)), np.array(0), np.ones(2))


def test_mel_weight_matrix_agrees_with_onnxruntime(by_onnxruntime):
    inputs = [np.array(v, t) for v, t in ((8, np.int64), (32, np.int64), (8192, np.int64))]
    inputs += [np.array(v, np.float32) for v in (100.0, 4000.0)]
    expected = by_onnxruntime("MelWeightMatrix", inputs, 17)[0]
    np.testing.assert_allclose(mel_weight_matrix(*inputs), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("center_point_box", [0, 1])
def test_suppression_agrees_with_onnxruntime(center_point_box, by_onnxruntime):
    generator = np.random.default_rng(4)
    boxes = generator.random((2, 20, 4), np.float32)
    scores = generator.random((2, 3, 20), np.float32).round(1)  # rounded: equal scores keep their order
    inputs = [boxes, scores, np.array([5]), np.array([0.3], np.float32), np.array([0.4], np.float32)]
    expected = by_onnxruntime("NonMaxSuppression", inputs, 11, center_point_box=center_point_box)[0]
    np.testing.assert_array_equal(non_max_suppression(*inputs, center_point_box=center_point_box), expected)


def test_suppression_without_a_limit_selects_nothing():
    y = non_max_suppression(np.zeros((1, 2, 4), np.float32), np.ones((1, 1, 2), np.float32))
    assert y.shape == (0, 3)
    assert y.dtype == np.int64


@pytest.mark.parametrize("pixel_format", ["RGB", "BGR", "Grayscale"])
def test_image_decoder_returns_the_pixels_that_were_encoded(pixel_format):
    image = pytest.importorskip("PIL.Image", reason="pillow is not installed")
    pixels = np.random.default_rng(5).integers(0, 256, (4, 5, 3), np.uint8)
    stream = io.BytesIO()
    image.fromarray(pixels).save(stream, "PNG")
    y = image_decoder(np.frombuffer(stream.getvalue(), np.uint8), pixel_format=pixel_format)
    if pixel_format == "Grayscale":
        luma = pixels @ np.array([0.299, 0.587, 0.114])
        assert np.abs(y[..., 0] - luma).max() <= 1
    else:
        np.testing.assert_array_equal(y, pixels if pixel_format == "RGB" else pixels[..., ::-1])


def test_image_decoder_says_when_bytes_are_no_image():
    pytest.importorskip("PIL.Image", reason="pillow is not installed")
    with pytest.raises(Fail, match="cannot read an image from 3 bytes"):
        image_decoder(np.array([1, 2, 3], np.uint8))
