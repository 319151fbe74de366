"""What each value and weight of a quantized model lost: numbers beside numpy's, in every format, and the page."""

from __future__ import annotations

import json
from html.parser import HTMLParser

import numpy as np
import onnx
import pytest
from float_models import Builder, feeds_of, matmul
from onnx import numpy_helper
from static_models import residual_network
from typer.testing import CliRunner

from ort_core.cli.app import build_app
from ort_quantization import QuantFormat, QuantType, quantize_dynamic, quantize_static
from ort_quantization.calibration.sample_files import SampleReader
from ort_quantization.float16 import convert_float_to_float16
from ort_quantization.layer_page import layer_page
from ort_quantization.layer_report import layer_report
from ort_quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
from ort_quantization.targets.target_report import CandidateFacts, TargetReport

SAMPLES = [feeds_of(residual_network(), seed) for seed in range(3)]


def decibels(exact, found):
    return 10 * np.log10(np.square(exact).sum() / np.square(exact - found).sum())


def quantized(tmp_path, way):
    """A residual network and its quantized form."""
    source, target = tmp_path / "float.onnx", tmp_path / "small.onnx"
    onnx.save(residual_network(), source)
    if way == "dynamic":
        quantize_dynamic(source, target)
    elif way == "float16":
        onnx.save(convert_float_to_float16(onnx.load(source), keep_io_types=True), target)
    else:
        choices = {"activation_type": QuantType.QUInt8, "per_channel": way == "channels"}
        form = QuantFormat.QOperator if way == "qoperator" else QuantFormat.QDQ
        quantize_static(source, target, SampleReader(SAMPLES), form, **choices)
    return source, target


@pytest.mark.parametrize("way", ["qdq", "channels", "qoperator", "dynamic", "float16"])
def test_every_format_is_compared_layer_by_layer(tmp_path, way):
    report = layer_report(*quantized(tmp_path, way), SAMPLES)
    assert {"a0", "g0", "s0", "y"} <= {each.name for each in report.values}
    for each in report.values:
        assert 20 < each.decibels < 110, each
        assert 0 <= each.weight_share <= 1
    assert [each.is_result for each in report.values if each.name == "y"] == [True]
    by_name = {each.name: each.decibels for each in report.weights}
    assert all(30 < by_name[name] < 110 for name in ("w0", "w1", "w2", "w3")), by_name


def test_weights_and_activations_are_told_apart_beside_numpy(tmp_path):
    random = np.random.default_rng(3)
    model = matmul()
    samples = [{"x": random.normal(size=(8, 16)).astype(np.float32)} for _ in range(3)]
    source, target = tmp_path / "float.onnx", tmp_path / "small.onnx"
    onnx.save(model, source)
    quantize_static(
        source, target, SampleReader(samples), op_types_to_quantize=["MatMul"], activation_type=QuantType.QUInt16
    )
    report = layer_report(source, target, samples)
    small = {each.name: numpy_helper.to_array(each) for each in onnx.load(target).graph.initializer}
    plain = {each.name: numpy_helper.to_array(each).astype(np.float64) for each in model.graph.initializer}
    rounded = {name: small[f"{name}_quantized"].astype(np.float64) * small[f"{name}_scale"] for name in plain}
    x = np.concatenate([each["x"] for each in samples]).astype(np.float64)
    exact, middle = (np.maximum(x @ each["w"], 0) @ each["v"] for each in (plain, rounded))
    losses = {each.name: each for each in report.values}
    assert losses["y"].decibels == pytest.approx(decibels(exact, middle), abs=0.2)  # 16 bits lose hardly anything
    assert losses["y"].weight_share > 0.98
    by_name = {each.name: each for each in report.weights}
    for name, weight in plain.items():
        assert by_name[name].decibels == pytest.approx(decibels(weight, rounded[name]), abs=0.01)


def test_weights_in_blocks_are_what_their_node_makes_of_the_unit_matrix(tmp_path):
    model = matmul()
    onnx.save(model, tmp_path / "float.onnx")
    quantizer = MatMulNBitsQuantizer(onnx.load(tmp_path / "float.onnx"), block_size=16, accuracy_level=4)
    quantizer.process()
    quantizer.model.save_model_to_file(tmp_path / "small.onnx", False)
    samples = [feeds_of(model, seed) for seed in range(2)]
    report = layer_report(tmp_path / "float.onnx", tmp_path / "small.onnx", samples)
    assert [each.name for each in report.weights] == ["w", "v"]
    assert all(15 < each.decibels < 30 for each in report.weights), report.weights
    assert all(each.weight_share > 0.9 for each in report.values)


def test_ranges_say_how_much_they_cut_off(tmp_path):
    random = np.random.default_rng(0)
    samples = [{"x": random.normal(size=(64, 16)).astype(np.float32)} for _ in range(4)]
    onnx.save(matmul(), tmp_path / "float.onnx")
    overrides = {"x": [{"rmin": np.float32(-1.0), "rmax": np.float32(1.0)}]}
    quantize_static(
        tmp_path / "float.onnx", tmp_path / "small.onnx", SampleReader(samples),
        activation_type=QuantType.QUInt8, extra_options={"TensorQuantOverrides": overrides},
    )  # fmt: skip
    report = layer_report(tmp_path / "float.onnx", tmp_path / "small.onnx", samples)
    plots = {each.name: each for each in report.ranges}
    numbers = np.concatenate([each["x"] for each in samples])
    assert plots["x"].low == pytest.approx(-1, abs=0.01)
    assert plots["x"].high == pytest.approx(1, abs=0.01)
    assert plots["x"].clipped == pytest.approx(np.mean(np.abs(numbers) > 1), abs=0.01)
    assert sum(plots["x"].counts) == numbers.size
    assert plots["w"].is_weight
    assert plots["w"].clipped == 0


def test_without_samples_only_weights_are_compared(tmp_path):
    report = layer_report(*quantized(tmp_path, "qdq"), [])
    assert report.values == []
    assert len(report.weights) == 4


class Tags(HTMLParser):
    """Counts elements, and notes what a page would load from elsewhere."""

    def __init__(self):
        super().__init__()
        self.counts, self.foreign = {}, []

    def handle_starttag(self, tag, attrs):
        self.counts[tag] = self.counts.get(tag, 0) + 1
        self.foreign += [value for name, value in attrs if name in ("src", "href")]


def test_the_page_stands_alone_and_has_a_row_for_each_value(tmp_path):
    source, target = quantized(tmp_path, "qdq")
    report = layer_report(source, target, SAMPLES)
    tags = Tags()
    tags.feed(layer_page(report))
    assert tags.foreign == []
    assert tags.counts["figure"] == len(report.ranges)
    assert tags.counts["tr"] == len(report.values) + len(report.weights) + 2
    assert tags.counts["g"] == len(report.values)


def test_names_of_a_model_are_text_on_the_page(tmp_path):
    model = matmul()
    for node in model.graph.node:
        for names in (node.input, node.output):
            for place, name in enumerate(names):
                names[place] = "<script>h" if name == "h" else name
    onnx.save(model, tmp_path / "float.onnx")
    samples = [feeds_of(model)]
    quantize_static(tmp_path / "float.onnx", tmp_path / "small.onnx", SampleReader(samples))
    page = layer_page(layer_report(tmp_path / "float.onnx", tmp_path / "small.onnx", samples))
    assert "<script>h" not in page


def test_the_command_shows_layers_and_writes_the_page(tmp_path):
    onnx.save(residual_network(), tmp_path / "net.onnx")
    np.savez(tmp_path / "sample.npz", **SAMPLES[0])
    arguments = ["quantize", tmp_path / "net.onnx", "--data", tmp_path / "sample.npz", "--layers"]
    page = tmp_path / "report.html"
    done = CliRunner().invoke(build_app(), [str(each) for each in [*arguments, "--report", page, "--json"]])
    assert done.exit_code == 0, done.output
    layers = json.loads(done.stdout)["layers"]
    assert {each["name"] for each in layers["values"]} >= {"a0", "y"}
    assert layers["model"] == str(tmp_path / "net.onnx")
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    done = CliRunner().invoke(build_app(), [str(each) for each in arguments])
    assert "Values that lost most" in done.output
    assert "|" in done.output


def test_the_page_says_what_did_not_change_and_which_models_were_judged(tmp_path):
    source = quantized(tmp_path, "qdq")[0]
    report = layer_report(source, source, SAMPLES[:1])
    judged = [
        CandidateFacts("all in int8", {"int8": 3}, 12.5, False, None),
        CandidateFacts("float32", {}, 90.0, True, 2e-3),
    ]
    numbers = 90.0, 90.0, 2e-3, 2e-3
    target = TargetReport(source, source, ("CPU",), "at least 30 dB", *numbers, [], judged, {}, 1.0, [])
    page = layer_page(report, target)
    assert "no difference from the float model" in page
    assert "inf dB" not in page
    assert "over 1 sample." in page
    assert "<td>all in int8</td><td>3 int8</td><td>12.5</td><td>no</td><td></td>" in page
    assert "<td>all float32</td><td>90</td><td>yes</td><td>2" in page


def test_what_did_not_change_has_no_shares_and_no_bars(tmp_path):
    """A search that stays in float compares the float model with itself."""
    b = Builder()
    b.node("Relu", [b.node("MatMul", ["x", b.weight("w", 6, 4)], "h")], "y")
    model = b.model({"x": (3, 6)}, ["y"])
    onnx.save(model, tmp_path / "float.onnx")
    report = layer_report(tmp_path / "float.onnx", tmp_path / "float.onnx", [feeds_of(model)])
    page = layer_page(report)
    assert "No value differs from the float model's." in page
    assert "No weight is stored in fewer bits." in page
    assert "The file gives no ranges." in page
    assert '<td class="n">equal</td><td class="n"></td><td class="n"></td>' in page
    assert "inf" not in page.partition("<body>")[2].partition("<script>")[0]
