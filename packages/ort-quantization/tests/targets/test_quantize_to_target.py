"""The fastest mixture of types that loses no more than allowed: choice, noise, measurements and the command."""

from __future__ import annotations

import itertools
import json

import numpy as np
import onnx
import pytest
from float_models import Builder
from onnx import helper
from typer.testing import CliRunner

import ort_core
from ort_core.cli.app import build_app
from ort_quantization.calibrate import create_calibrator
from ort_quantization.calibration.sample_files import SampleReader
from ort_quantization.comparison.reports import report_of
from ort_quantization.errors import InvalidCalibration, InvalidQuantization
from ort_quantization.quantize_to_target import quantize_to_target
from ort_quantization.targets import target_times
from ort_quantization.targets.target_choice import assignments, at_price, first_that_meets
from ort_quantization.targets.target_layers import layer_model, layers_of, name_nodes, signature
from ort_quantization.targets.target_noise import pair_noises, relative_noise, roundings, switched_model
from ort_quantization.targets.target_schemes import SCHEMES, assigned, suits

NUMPY = ["ReferenceExecutionProvider"]


def network():
    """A convolution, a product of a matrix, a Gemm, and what stands between."""
    b = Builder()
    hidden = b.node("Conv", ["x", b.weight("w0", 8, 3, 3, 3), b.weight("b0", 8)], "c0", pads=[1, 1, 1, 1])
    hidden = b.node("Relu", [hidden], "r0")
    hidden = b.node("Conv", [hidden, b.weight("w1", 8, 8, 3, 3)], "c1", pads=[1, 1, 1, 1])
    hidden = b.node("Add", [hidden, "r0"], "a1")
    hidden = b.node("GlobalAveragePool", [hidden], "g")
    hidden = b.node("Flatten", [hidden], "f")
    hidden = b.node("MatMul", [hidden, b.weight("w2", 8, 32)], "m")
    hidden = b.node("Sigmoid", [hidden], "s")
    b.node("Gemm", [hidden, b.weight("w3", 5, 32), b.weight("b3", 5)], "y", transB=1)
    model = b.model({"x": ("n", 3, 8, 8)}, ["y"])
    name_nodes(model)
    return onnx.shape_inference.infer_shapes(model)


def samples_of(count=3):
    random = np.random.default_rng(0)
    return [{"x": random.normal(size=(4, 3, 8, 8)).astype(np.float32)} for _ in range(count)]


@pytest.fixture
def ranges(tmp_path):
    onnx.save(network(), tmp_path / "float.onnx")
    calibrator = create_calibrator(tmp_path / "float.onnx", None, tmp_path / "a.onnx")
    calibrator.collect_data(SampleReader(samples_of()))
    return calibrator.compute_data()


@pytest.fixture
def short_turns(monkeypatch):
    """Measure each model for a tenth of the time: how exact the times are decides nothing."""
    monkeypatch.setattr(target_times, "_TURN_S", 0.003)


def results(model, samples):
    session = ort_core.InferenceSession(model.SerializeToString(), providers=NUMPY)
    return [session.run(None, sample) for sample in samples]


def test_nodes_belong_to_the_layer_that_they_follow():
    layers = {each.name: each for each in layers_of(network())}
    assert [each.op_type for each in layers.values()] == ["Conv", "Conv", "MatMul", "Gemm"]
    first, second, product, _ = layers.values()
    assert first.nodes == ("Conv_0", "Relu_1")
    assert second.nodes == ("Conv_2", "Add_3", "GlobalAveragePool_4", "Flatten_5")
    assert product.nodes == ("MatMul_6", "Sigmoid_7")
    assert product.followers == ("MatMul_6",), "a Sigmoid stays in floats beside a layer of 8 bits"
    assert first.weights == ("w0", "b0")


def test_layers_of_one_form_are_measured_once():
    def two(second, stride=1):
        b = Builder()
        hidden = b.node("MatMul", ["x", b.weight("v", 16, 16)], "h")
        hidden = b.node("Relu", [hidden], "r")
        b.node(second, [hidden, b.weight("w", 16, 16)], "y")
        model = onnx.shape_inference.infer_shapes(b.model({"x": (2, 16)}, ["y"]))
        return [signature(layer_model(model, each), {"x": (2, 16), "r": (2, 16)}) for each in layers_of(model)]

    b = Builder()
    hidden = "x"
    for place in range(3):
        hidden = b.node("MatMul", [hidden, b.weight(f"w{place}", 16, 16)], f"h{place}")
        hidden = b.node("Relu", [hidden], f"r{place}")
    model = onnx.shape_inference.infer_shapes(b.model({"x": (2, 16)}, [hidden]))
    shapes = dict.fromkeys(("x", "r0", "r1"), (2, 16))
    found = {signature(layer_model(model, each), shapes) for each in layers_of(model)}
    assert len(found) == 1
    assert len(set(two("MatMul"))) == 2, "a layer without its Relu is another"
    assert signature(layer_model(model, layers_of(model)[0]), {"x": (4, 16)}) not in found, "sizes count"


@pytest.mark.parametrize("schemes", list(itertools.product(SCHEMES, repeat=2)), ids="-".join)
def test_any_two_schemes_go_together_in_one_model(ranges, schemes):
    model, samples = network(), samples_of()
    layers = layers_of(model)
    wanted = {layer.name: schemes[place % 2] for place, layer in enumerate(layers)}
    chosen = {layer.name: wanted[layer.name] for layer in layers if not suits(layer, wanted[layer.name])}
    small = assigned(model, layers, chosen, ranges)
    noise = relative_noise(results(model, samples), iter(results(small, samples)))
    operators = {node.op_type for node in small.graph.node}
    assert noise < 0.01, -10 * np.log10(noise)
    expected = {"int8": "QuantizeLinear", "dynamic": "DynamicQuantizeLinear", "int4": "MatMulNBits"}
    for scheme in chosen.values():
        assert expected.get(scheme, "Cast") in operators or scheme == "float32"


def test_unknown_schemes_are_refused_with_the_known_ones(ranges):
    layers = layers_of(network())
    with pytest.raises(InvalidQuantization, match="'int3' is no scheme; known: int8"):
        assigned(network(), layers, {layers[0].name: "int3"}, ranges)


def test_switches_make_the_noise_of_the_model_that_is_built(ranges):
    model, samples = network(), samples_of()
    layers = layers_of(model)
    rounding = roundings(model, layers, SCHEMES, ranges)
    exact = results(model, samples)
    for pair in pair_noises(switched_model(model, layers, rounding), layers, rounding, samples, NUMPY):
        built = assigned(model, layers, {pair.layer: pair.scheme}, ranges)
        true = relative_noise(exact, iter(results(built, samples)))
        assert abs(10 * np.log10(pair.noise / true)) < 4, (pair, true)  # decibels; int4 computes activations in int8


PAIRS = {
    "a": {"int8": (5.0, 1.0), "float16": (2.0, 0.1)},
    "b": {"int8": (1.0, 4.0)},
    "c": {"int8": (3.0, 0.2), "int4": (4.0, 3.0)},
}


def test_the_line_of_assignments_trades_gain_for_noise():
    line = assignments(PAIRS)
    sums = [np.sum([PAIRS[name][scheme] for name, scheme in each.items()], axis=0) for each in line[:-1]]
    assert line[0] == {"a": "int8", "b": "int8", "c": "int4"}
    assert line[-1] == {}
    gains, noises = zip(*sums, strict=True)
    assert list(gains) == sorted(gains, reverse=True)
    assert list(noises) == sorted(noises, reverse=True)


def test_each_assignment_of_the_line_is_the_best_at_its_noise():
    every = []
    for chosen in itertools.product(*([None, *schemes] for schemes in PAIRS.values())):
        picked = [PAIRS[name][scheme] for name, scheme in zip(PAIRS, chosen, strict=True) if scheme]
        every.append(np.sum(picked, axis=0) if picked else np.zeros(2))
    for price in (0.01, 0.3, 1.0, 2.5, 40.0):
        found = at_price(PAIRS, price)
        gain, noise = np.sum([PAIRS[n][s] for n, s in found.items()], axis=0) if found else (0.0, 0.0)
        assert gain - price * noise == pytest.approx(max(g - price * n for g, n in every))


@pytest.mark.parametrize("first", [0, 3, 6, None])
def test_halving_finds_the_first_that_meets_the_target(first):
    asked = []

    def meets(place):
        asked.append(place)
        return first is not None and place >= first

    assert first_that_meets(7, meets) == first
    assert len(asked) == len(set(asked)) <= 3


def pretended(times):
    """Measurements by the operators of a model: seconds of each node, others take none."""

    def measure(paths, sample):
        found = {}
        for name, path in paths.items():
            nodes = onnx.load(path).graph.node
            found[name] = sum(times.get(node.op_type, 0.0) for node in nodes) + 1e-6
        return found

    return measure


# In the QDQ format a Conv stays a Conv: it is the DequantizeLinear before it that tells
SLOW_INT8 = {"Conv": 1e-3, "MatMul": 1e-3, "Gemm": 1e-3, "QuantizeLinear": 1e-3, "MatMulNBits": 2e-4, "Cast": 1e-2}


def test_what_does_not_pay_is_left_out_with_the_reason(tmp_path):
    report = quantize_to_target(
        network(), tmp_path / "small.onnx", samples_of(), min_decibels=10,
        schemes=["int8", "int4", "float16"], measure=pretended(SLOW_INT8),
    )  # fmt: skip
    pairs = {(layer.op_type, pair.scheme): pair for layer in report.layers for pair in layer.pairs}
    assert pairs["Conv", "int8"].left_out.startswith("slower than float here: ")
    assert pairs["MatMul", "float16"].left_out.startswith("slower than float here: ")
    assert "only products with a matrix" in pairs["Conv", "int4"].left_out
    assert pairs["MatMul", "int4"].left_out == ""
    assert [each.scheme for each in report.layers] == ["float32", "float32", "int4", "float32"]
    assert "MatMulNBits" in {node.op_type for node in onnx.load(tmp_path / "small.onnx").graph.node}
    assert json.loads((tmp_path / "small.onnx.json").read_text())["layers"][2]["scheme"] == "int4"


FAST_INT8 = {"Conv": 3e-3, "MatMul": 3e-3, "Gemm": 3e-3, "QuantizeLinear": -1e-3, "MatMulNBits": 1e-3, "Cast": 1e-2}


def test_a_tighter_target_leaves_more_layers_in_floats_and_is_met(tmp_path):
    samples = samples_of()
    counts = []
    for decibels in (15, 45, 60, 300):
        target = tmp_path / "small.onnx"
        report = quantize_to_target(
            network(), target, samples, min_decibels=decibels, schemes=["int8", "int4"], measure=pretended(FAST_INT8)
        )
        counts.append(sum(layer.scheme != "float32" for layer in report.layers))
        noise = relative_noise(results(network(), samples), iter(results(onnx.load(target), samples)))
        assert noise == 0 or -10 * np.log10(noise) > decibels - 1, "the file must reach what was asked for"
        assert report.value >= decibels
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > counts[-1] == 0
    assert "stays in float32" in report.notes[-1]


def test_a_metric_is_kept_within_the_loss_that_is_allowed(tmp_path):
    samples = samples_of(6)
    truth = [np.argmax(each[0], axis=1) for each in results(network(), samples)]

    def accuracy(session):
        found = [np.argmax(session.run(None, sample)[0], axis=1) for sample in samples]
        return float(np.mean(np.concatenate(found) == np.concatenate(truth)))

    report = quantize_to_target(
        network(), tmp_path / "small.onnx", samples, metric=accuracy, allowed_loss=0.1, schemes=["int8"],
        measure=pretended(FAST_INT8),
    )  # fmt: skip
    assert report.float_value == 1.0
    assert report.value >= 0.9
    assert report.seconds < report.float_s
    assert accuracy(ort_core.InferenceSession(str(tmp_path / "small.onnx"))) >= 0.9


@pytest.mark.usefixtures("short_turns")
def test_the_same_measurements_lead_to_the_same_model(tmp_path):
    samples = samples_of()
    first = quantize_to_target(network(), tmp_path / "a.onnx", samples, min_decibels=30, budget_s=3600)

    def never(paths, sample):
        raise AssertionError(f"measured again: {list(paths)}")

    second = quantize_to_target(
        network(), tmp_path / "b.onnx", samples, min_decibels=30, measure=never, measurements=first.measurements
    )
    assert [each.scheme for each in second.layers] == [each.scheme for each in first.layers]
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()


@pytest.mark.parametrize(("decibels", "expected"), [(10, "int8"), (300, "float32")])
def test_a_model_that_is_faster_as_a_whole_needs_no_time_for_its_layers(tmp_path, decibels, expected):
    report = quantize_to_target(
        network(), tmp_path / "small.onnx", samples_of(), min_decibels=decibels, budget_s=0, schemes=["int8"],
        measure=pretended(FAST_INT8),
    )  # fmt: skip
    assert {each.scheme for each in report.layers} == {expected}
    assert all(not pair.left_out for each in report.layers for pair in each.pairs if pair.scheme == each.scheme)
    judged = {each.name: each.meets for each in report.candidates}
    assert judged["all in int8"] is (expected == "int8")


def test_when_the_time_is_up_what_is_not_measured_stays_in_floats(tmp_path):
    report = quantize_to_target(
        network(), tmp_path / "small.onnx", samples_of(), min_decibels=10, budget_s=0, measure=pretended(SLOW_INT8),
        schemes=["int8", "float16"],
    )  # fmt: skip
    assert {each.scheme for each in report.layers} == {"float32"}
    assert "raise budget_s" in report.notes[-1]
    reasons = {pair.left_out for layer in report.layers for pair in layer.pairs if not pair.left_out.startswith("only")}
    assert any("not measured within the time" in each for each in reasons)
    np.testing.assert_allclose(
        results(onnx.load(tmp_path / "small.onnx"), samples_of(1))[0][0], results(network(), samples_of(1))[0][0],
        rtol=1e-5, atol=1e-6,
    )  # fmt: skip


def test_progress_goes_forward(tmp_path):
    seen = []
    quantize_to_target(
        network(), tmp_path / "small.onnx", samples_of(), min_decibels=30, schemes=["int8"],
        measure=pretended(FAST_INT8), progress=lambda text, share: seen.append((text, share)),
    )  # fmt: skip
    shares = [share for _, share in seen]
    assert shares == sorted(shares)
    assert shares[-1] > 0.9
    assert len({text for text, _ in seen}) > 4


@pytest.mark.parametrize(
    ("choices", "error", "message"),
    [
        ({}, InvalidQuantization, "a target is a signal to noise"),
        ({"min_decibels": 3, "metric": len}, InvalidQuantization, "a target is a signal to noise"),
        ({"min_decibels": 3, "schemes": ["int3"]}, InvalidQuantization, "'int3' is no scheme"),
        ({"min_decibels": 3, "data": []}, InvalidCalibration, "there is no data"),
    ],
)
def test_what_is_asked_wrongly_is_told(tmp_path, choices, error, message):
    data = choices.pop("data", samples_of(1))
    with pytest.raises(error, match=message):
        quantize_to_target(network(), tmp_path / "small.onnx", data, **choices)


def test_a_model_without_layers_stays_as_it_is(tmp_path):
    b = Builder()
    b.node("Relu", ["x"], "y")
    report = quantize_to_target(
        b.model({"x": (1, 3)}, ["y"]), tmp_path / "small.onnx", [{"x": np.ones((1, 3), np.float32)}], min_decibels=30
    )
    assert report.layers == []
    assert "no layer with a constant weight" in report.notes[-1]


@pytest.mark.usefixtures("short_turns")
def test_the_command_reaches_a_target(tmp_path):
    onnx.save(network(), tmp_path / "net.onnx")
    np.savez(tmp_path / "sample.npz", **samples_of(1)[0])
    arguments = ["quantize", tmp_path / "net.onnx", "--data", tmp_path / "sample.npz", "--to-target", "30"]
    choices = ["--scheme", "int8", "--scheme", "int4", "--report", tmp_path / "r.html", "--json"]
    done = CliRunner().invoke(build_app(), [str(each) for each in [*arguments, *choices]])
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert {pair["scheme"] for layer in report["layers"] for pair in layer["schemes"]} == {"int8", "int4"}
    assert report["value"] == "Infinity" or report["value"] >= 30
    assert (tmp_path / "net.quantized.onnx").exists()
    assert "Schemes" in (tmp_path / "r.html").read_text(encoding="utf-8")
    done = CliRunner().invoke(build_app(), [str(each) for each in arguments])
    assert "at least 30 dB" in done.output
    assert "Layers" in done.output


def test_the_command_needs_data_for_a_target(tmp_path):
    onnx.save(network(), tmp_path / "net.onnx")
    done = CliRunner().invoke(build_app(), ["quantize", str(tmp_path / "net.onnx"), "--to-target", "30"])
    assert done.exit_code != 0
    assert "--data" in done.output


def with_maps(scores):
    """A classifier whose scores leave as maps, and as a tensor if that is asked for."""
    b = Builder()
    hidden = b.node("Softmax", [b.node("MatMul", ["x", b.weight("w", 8, 3)], "h")], "scores")
    model = b.model({"x": (2, 8)}, [hidden])
    model.graph.node.append(
        helper.make_node("ZipMap", ["scores"], ["maps"], "zip", domain="ai.onnx.ml", classlabels_int64s=[0, 1, 2])
    )
    value = helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, [])
    maps = helper.make_sequence_type_proto(helper.make_map_type_proto(onnx.TensorProto.INT64, value))
    model.graph.output.append(helper.make_value_info("maps", maps))
    model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 1))
    if not scores:
        del model.graph.output[0]
    return model


def test_results_that_are_maps_are_not_compared_and_refused_if_there_is_nothing_else(tmp_path):
    samples = [{"x": np.random.default_rng(0).normal(size=(2, 8)).astype(np.float32)}]
    choices = {"min_decibels": 10, "schemes": ["int8"], "measure": pretended(FAST_INT8)}
    report = quantize_to_target(with_maps(True), tmp_path / "small.onnx", samples, **choices)
    assert report.value >= 10
    assert set(report_of(tmp_path / "small.onnx", tmp_path / "small.onnx", samples, None).signals) == {"scores"}
    onnx.save(with_maps(False), tmp_path / "maps.onnx")
    assert report_of(tmp_path / "maps.onnx", tmp_path / "maps.onnx", samples, None).signals == {}
    with pytest.raises(InvalidQuantization, match=r"maps is seq\(map.*give a metric"):
        quantize_to_target(with_maps(False), tmp_path / "small.onnx", samples, **choices)
