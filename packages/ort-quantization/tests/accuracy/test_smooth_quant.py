"""SmoothQuant: the same results in float, outliers shared between activations and weights, and less lost by bytes."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
from beside_onnxruntime import relative_error, run_onnxruntime, run_ours
from float_models import Builder
from onnx import numpy_helper

from ort_quantization import QuantFormat, QuantType, quantize_static
from ort_quantization.accuracy.smooth_quant import KeptReader, smooth
from ort_quantization.calibration.activation_capture import Samples
from ort_quantization.errors import InvalidCalibration, InvalidQuantization
from ort_quantization.models.model_files import read_with_shapes


def outliers(is_normalized: bool = True, dtype=np.float32):
    """A LayerNormalization, or nothing, whose channels lie a factor of 200 apart, two products and a Gemm of it.

    Weights of the large channels are small, as in language models: all channels count as much.
    """
    b = Builder()
    gain = np.ones(16)
    gain[[3, 7]] = 200.0
    if is_normalized:
        hidden = b.node("LayerNormalization", ["x", b.constant("gain", gain.astype(dtype)),
                                               b.constant("shift", np.zeros(16, dtype))], "n")  # fmt: skip
    else:
        hidden = "x"
    left, right = (b.constant(n, (b.random.normal(size=(16, 8)) / gain[:, None]).astype(dtype)) for n in "wv")
    left = b.node("MatMul", [hidden, left], "a")
    right = b.node("MatMul", [hidden, right], "c")
    turned = (b.random.normal(size=(8, 16)) / gain).astype(dtype)
    third = b.node("Gemm", [hidden, b.constant("u", turned), b.weight("t", 8, dtype=dtype)], "g", transB=1)
    b.node("Sum", [left, right, third], "y")
    return b.model({"x": (4, 16)}, ["y"])


def samples(is_normalized: bool = True, count: int = 4):
    random = np.random.default_rng(0)
    spread = np.ones(16, np.float32)
    if not is_normalized:
        spread[[3, 7]] = 200.0
    return [{"x": (random.normal(size=(4, 16)) * spread).astype("f")} for _ in range(count)]


class Reader:
    """Gives each sample once: it cannot be copied, nor read again."""

    def __init__(self, given):
        self.left = (sample for sample in given)

    def get_next(self):
        return next(self.left, None)


@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.5, 1.0])
@pytest.mark.parametrize("is_folded", [True, False])
@pytest.mark.parametrize("is_normalized", [True, False])
def test_a_smoothed_model_gives_the_same_and_shares_the_spread(tmp_path, is_normalized, is_folded, alpha):
    source = outliers(is_normalized)
    model, folder = read_with_shapes(source)
    given = samples(is_normalized)
    with Samples(Reader(given)) as kept:
        added = smooth(model, folder, kept, ["MatMul", "Gemm"], [], alpha, is_folded)
    assert len(added) == (0 if is_normalized and is_folded else 1)
    onnx.save(model, tmp_path / "smoothed.onnx")
    onnx.save(source, tmp_path / "float.onnx")
    for feeds in given:
        found, expected = (run_onnxruntime(tmp_path / name, feeds) for name in ("smoothed.onnx", "float.onnx"))
        np.testing.assert_allclose(found[0], expected[0], rtol=1e-4, atol=1e-3)
    weights, kept = ({each.name: numpy_helper.to_array(each) for each in m.graph.initializer} for m in (source, model))
    value = np.concatenate([each["x"] for each in given])
    if is_normalized:
        centered = value - value.mean(1, keepdims=True)
        value = centered / np.sqrt((centered**2).mean(1, keepdims=True) + 1e-5) * weights["gain"]
    peaks = np.abs(value.astype(np.float64)).max(0)
    rows = np.max([np.abs(weights["w"]).max(1), np.abs(weights["v"]).max(1), np.abs(weights["u"]).max(0)], axis=0)
    factors = peaks**alpha / rows ** (1 - alpha)
    np.testing.assert_allclose(kept["w"], weights["w"] * factors[:, None], rtol=1e-4)
    np.testing.assert_allclose(kept["u"], weights["u"] * factors, rtol=1e-4)


@pytest.mark.parametrize("quant_format", list(QuantFormat), ids=str)
@pytest.mark.parametrize("is_normalized", [True, False])
def test_smoothed_models_lose_less_by_bytes(tmp_path, is_normalized, quant_format):
    model, source = outliers(is_normalized), tmp_path / "float.onnx"
    onnx.save(model, source)
    feeds = samples(is_normalized, 1)[0]
    expected, errors = run_onnxruntime(source, feeds), {}
    for is_smooth in (False, True):
        target = tmp_path / f"{is_smooth}.onnx"
        quantize_static(
            source, target, Reader(samples(is_normalized)), quant_format, activation_type=QuantType.QUInt8,
            op_types_to_quantize=["MatMul", "Gemm"], nodes_to_exclude=[], extra_options={"SmoothQuant": is_smooth},
        )  # fmt: skip
        found = run_onnxruntime(target, feeds)
        assert relative_error(run_ours(target, feeds), found) < 0.01
        errors[is_smooth] = relative_error(found, expected)
    # An activation's step is 400 / 255: channels of size 1 keep a bit, unless they are smoothed.
    assert errors[True] < 0.2 * errors[False]


def test_shared_weights_and_other_readers_keep_theirs(tmp_path):
    """A weight that two operands meet gets a form for each; the operand that an Add reads stays as it is."""
    b = Builder()
    w = b.weight("w", 6, 6)
    first = b.node("MatMul", ["x", w], "h")
    second = b.node("MatMul", [first, w], "g")
    b.node("Add", [second, first], "y")
    source = b.model({"x": (3, 6)}, ["y", "h"])
    model, folder = read_with_shapes(source)
    feeds = {"x": np.random.default_rng(1).normal(size=(3, 6)).astype("f")}
    with Samples(Reader([feeds])) as kept:
        assert len(smooth(model, folder, kept, ["MatMul"], [])) == 2
    for place, each in enumerate((model, source)):
        onnx.save(each, tmp_path / f"{place}.onnx")
    results = [run_onnxruntime(tmp_path / f"{place}.onnx", feeds) for place in range(2)]
    for found, expected in zip(*results, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_ranges_of_a_smoothed_model_are_marked_and_not_used_for_another(tmp_path):
    source, ranges = tmp_path / "float.onnx", tmp_path / "ranges.json"
    onnx.save(outliers(), source)
    options = {"extra_options": {"SmoothQuant": True}, "calibration_cache_path": ranges}
    quantize_static(source, tmp_path / "a.onnx", Reader(samples()), **options)
    assert json.loads(ranges.read_text())["smooth_quant"] is True
    quantize_static(source, tmp_path / "b.onnx", Reader(samples()), calibration_cache_path=ranges)
    assert json.loads(ranges.read_text())["smooth_quant"] is False
    with pytest.raises(InvalidCalibration, match="no calibration_data_reader"):  # factors follow from samples
        quantize_static(source, tmp_path / "c.onnx", None, **options)


@pytest.mark.parametrize("alpha", [-0.1, 1.5])
def test_a_share_out_of_its_bounds_is_refused(tmp_path, alpha):
    options = {"SmoothQuant": True, "SmoothQuantAlpha": alpha}
    onnx.save(outliers(), tmp_path / "float.onnx")
    with pytest.raises(InvalidQuantization, match="a number between 0 and 1 is expected"):
        quantize_static(tmp_path / "float.onnx", tmp_path / "a.onnx", Reader(samples()), extra_options=options)


def test_kept_samples_are_read_again_and_in_ranges():
    with Samples(Reader(samples())) as kept:
        assert sum(1 for _ in kept) == 4
        reader = KeptReader(kept)
        assert len(reader) == 4
        reader.set_range(1, 3)
        read = [reader.get_next() for _ in range(3)]
    np.testing.assert_array_equal(read[0]["x"], samples()[1]["x"])
    assert read[2] is None
