"""Static quantization of what lies in bodies of If, Loop and Scan: calibrated there, quantized there, right there."""

from __future__ import annotations

import logging

import numpy as np
import onnx
import onnxruntime
import pytest
from beside_onnxruntime import relative_error, run_onnxruntime, run_ours
from body_models import BODIES, bodies, masked_loop, op_types
from float_models import feeds_of

from ort_quantization import CalibrationMethod, QuantFormat, QuantType, quantize_dynamic, quantize_static
from ort_quantization.calibrate import create_calibrator
from ort_quantization.errors import InvalidQuantization

OPTIONS = {"EnableSubgraph": True}


class Reader:
    """Random samples; flags are true in every other one."""

    def __init__(self, model, count=6):
        self.samples = [feeds_of(model, seed) for seed in range(count)]
        for place, sample in enumerate(self.samples):
            if "flag" in sample:
                sample["flag"] = np.array(bool(place % 2))
        self.left = iter(self.samples)

    def get_next(self):
        return next(self.left, None)


def quantized(tmp_path, name, quant_format=QuantFormat.QDQ, reader=None, **choices):
    """Quantize a model with its bodies; return the paths of both and a sample."""
    model, source, target = BODIES[name](), tmp_path / "float.onnx", tmp_path / "quantized.onnx"
    onnx.save(model, source)
    reader = reader or Reader(model)
    extra = {**OPTIONS, **choices.pop("extra", {})}
    quantize_static(
        source, target, reader, quant_format, activation_type=QuantType.QUInt8, extra_options=extra, **choices
    )
    return source, target, reader.samples


@pytest.mark.parametrize("quant_format", list(QuantFormat), ids=str)
@pytest.mark.parametrize("name", BODIES)
def test_bodies_are_quantized_and_give_nearly_what_floats_give(tmp_path, name, quant_format):
    source, target, samples = quantized(tmp_path, name, quant_format, per_channel=True)
    model = onnx.load(target)
    onnx.checker.check_model(model)
    inside = set().union(*(op_types(body) for body in bodies(model.graph)))
    if quant_format is QuantFormat.QOperator:
        assert "QLinearMatMul" in inside
        assert "MatMul" not in inside
    else:
        assert {"QuantizeLinear", "DequantizeLinear", "MatMul"} <= inside
        assert not any(tensor.data_type == onnx.TensorProto.FLOAT and len(tensor.dims) == 2
                       for body in bodies(model.graph) for tensor in body.initializer)  # fmt: skip
    for feeds in samples[:2]:
        expected = run_onnxruntime(source, feeds)
        found = run_onnxruntime(target, feeds)
        assert relative_error(found, expected) < 0.1  # errors of turns add up
    assert relative_error(run_ours(target, feeds), found) < 0.03


@pytest.mark.parametrize("method", list(CalibrationMethod)[:3], ids=str)
@pytest.mark.parametrize("name", BODIES)
def test_values_of_bodies_have_the_ranges_that_they_have_as_results(tmp_path, name, method):
    """The Loop gives all its turns as a result, the branches theirs: numpy tells their extremes."""
    model, source = BODIES[name](), tmp_path / "float.onnx"
    onnx.save(model, source)
    options = {"calibrate_subgraphs": True, "percentile": 100.0, "num_bins": 2048, "symmetric": False}
    reader = Reader(model)
    calibrator = create_calibrator(source, None, tmp_path / "augmented.onnx", method, extra_options=options)
    calibrator.collect_data(reader)
    found = calibrator.compute_data()
    results = [run_onnxruntime(source, feeds) for feeds in reader.samples]
    if name == "branches":
        inner = {value: [r[0] for r, s in zip(results, reader.samples, strict=True) if bool(s["flag"]) == flag]
                 for value, flag in (("then_y", True), ("other_y", False))}  # fmt: skip
    else:
        inner = {{"loop": "next", "scan": "given", "branch in a loop": "then_y"}[name]: [r[-1] for r in results]}
    for value, arrays in inner.items():
        ends = min(each.min() for each in arrays), max(each.max() for each in arrays)
        if method is CalibrationMethod.MinMax:
            np.testing.assert_allclose([np.squeeze(end) for end in found[value].range_value], ends, rtol=1e-5)
        else:
            assert found[value].range_value[0] <= ends[1]
            assert found[value].range_value[1] >= ends[0]


def test_a_branch_that_no_sample_reaches_stays_in_reals(tmp_path, caplog):
    model = BODIES["branches"]()
    reader = Reader(model)
    for sample in reader.samples:
        sample["flag"] = np.array(True)
    with caplog.at_level(logging.WARNING):
        source, target, _ = quantized(tmp_path, "branches", reader=reader)
    assert "no sample reached it" in caplog.text
    feeds = {**feeds_of(model), "flag": np.array(False)}
    assert relative_error(run_onnxruntime(target, feeds), run_onnxruntime(source, feeds)) < 0.03


def test_without_the_option_bodies_stay_as_they_are(tmp_path):
    model, source, target = BODIES["loop"](), tmp_path / "float.onnx", tmp_path / "quantized.onnx"
    onnx.save(model, source)
    quantize_static(source, target, Reader(model), activation_type=QuantType.QUInt8)
    assert [op_types(body) for body in bodies(onnx.load(target).graph)] == [{"Identity", "MatMul", "Relu"}]
    onnxruntime.InferenceSession(str(target))


def inner_tensors(path):
    """The initializers of all bodies of a model, by name without the number of the body."""
    found = [tensor for body in bodies(onnx.load(path).graph) for tensor in body.initializer]
    return {tensor.name.partition("_body_")[0]: onnx.numpy_helper.to_array(tensor) for tensor in found}


@pytest.mark.parametrize(
    ("name", "choice", "tensor", "expected"),
    [
        ("loop", {"own": [{"quant_type": QuantType.QInt16}]}, "own_quantized", np.int16),
        ("loop", {"own": [{"axis": 1}]}, "own_scale", (6,)),
        ("loop", {"outer": [{"axis": 1}]}, "outer_copied_scale", (6,)),
        ("loop", {"state": [{"rmin": np.float32(-4), "rmax": np.float32(11)}]}, "state_scale", np.float32(15 / 255)),
        ("scan", {"product": [{"scale": np.float32(0.25), "zero_point": np.uint8(7)}]}, "product_zero_point", 7),
        ("scan", {"product": [{"quant_type": QuantType.QUInt16}]}, "product_zero_point", np.uint16),
        ("branch in a loop", {"then_y": [{"quant_type": QuantType.QUInt16}]}, "then_y_zero_point", np.uint16),
    ],
    ids=lambda each: next(iter(each)) if isinstance(each, dict) else None,
)
def test_single_tensors_of_bodies_are_chosen_for(tmp_path, name, choice, tensor, expected):
    source, target, samples = quantized(tmp_path, name, extra={"TensorQuantOverrides": choice})
    onnx.checker.check_model(onnx.load(target), full_check=True)
    found = inner_tensors(target)[tensor]
    if isinstance(expected, type):
        assert found.dtype == expected
    elif isinstance(expected, tuple):
        assert found.shape == expected
    else:
        assert found == expected
    result = run_onnxruntime(target, samples[1])
    assert relative_error(result, run_onnxruntime(source, samples[1])) < 0.2
    assert relative_error(run_ours(target, samples[1]), result) < 0.03


@pytest.mark.parametrize(
    ("name", "choice", "tensor", "expected"),
    [
        ("loop", {"own": [{"quant_type": QuantType.QUInt8}]}, "own_quantized", np.uint8),
        ("loop", {"outer": [{"quant_type": QuantType.QUInt8}]}, "outer_quantized", np.uint8),
        ("loop", {"state": [{"rmin": np.float32(-4), "rmax": np.float32(11)}]}, "state_scale", np.float32(15 / 255)),
        ("scan", {"product": [{"scale": np.float32(0.25), "zero_point": np.uint8(7)}]}, "product_zero_point", 7),
        ("branch in a loop", {"then_y": [{"rmin": np.float32(0), "rmax": np.float32(4)}],
                              "then_product": [{"rmin": np.float32(-1), "rmax": np.float32(4)}]},
         "then_product_zero_point", 51),
        ("branches", {"then_y": [{"scale": np.float32(0.25), "zero_point": np.uint8(99)}]}, "then_y_scale", 0.25),
    ],
    ids=lambda each: next(iter(each)) if isinstance(each, dict) else None,
)  # fmt: skip
def test_single_tensors_of_bodies_are_chosen_for_in_operators_of_integers(tmp_path, name, choice, tensor, expected):
    source, target, samples = quantized(tmp_path, name, QuantFormat.QOperator, extra={"TensorQuantOverrides": choice})
    model = onnx.load(target)
    onnx.checker.check_model(model, full_check=True)
    around = {each.name: onnx.numpy_helper.to_array(each) for each in model.graph.initializer}
    found = {**around, **inner_tensors(target)}[tensor]
    assert found.dtype == expected if isinstance(expected, type) else found == expected
    result = run_onnxruntime(target, samples[1])
    assert relative_error(result, run_onnxruntime(source, samples[1])) < 0.2
    assert relative_error(run_ours(target, samples[1]), result) < 0.03


@pytest.mark.parametrize("quant_format", list(QuantFormat), ids=str)
def test_masks_in_bodies_stay_in_reals(tmp_path, monkeypatch, quant_format):
    monkeypatch.setitem(BODIES, "masked", masked_loop)
    source, target, samples = quantized(tmp_path, "masked", quant_format)
    assert inner_tensors(target).keys().isdisjoint({"masked_scale", "mask_scale"})
    expected = run_onnxruntime(source, samples[1])
    assert relative_error(run_onnxruntime(target, samples[1]), expected) < 0.03
    assert relative_error(run_ours(target, samples[1]), expected) < 0.03


def test_a_weight_of_a_body_is_chosen_for_where_activations_are_quantized_at_run_time(tmp_path):
    source, target = tmp_path / "float.onnx", tmp_path / "quantized.onnx"
    onnx.save(BODIES["loop"](), source)
    choice = {"own": [{"quant_type": QuantType.QUInt8}]}
    quantize_dynamic(source, target, extra_options={**OPTIONS, "TensorQuantOverrides": choice})
    found = inner_tensors(target)
    assert (found["own_quantized"].dtype, found["own_zero_point"].dtype) == (np.uint8, np.uint8)
    feeds = feeds_of(BODIES["loop"]())
    assert relative_error(run_onnxruntime(target, feeds), run_onnxruntime(source, feeds)) < 0.2


def test_a_choice_for_a_body_that_is_not_quantized_says_how_to_quantize_it(tmp_path):
    model, source = BODIES["loop"](), tmp_path / "float.onnx"
    onnx.save(model, source)
    choice = {"TensorQuantOverrides": {"own": [{"quant_type": QuantType.QInt16}]}}
    with pytest.raises(InvalidQuantization, match=r"'own': it lies in a body .*EnableSubgraph"):
        quantize_static(source, tmp_path / "quantized.onnx", Reader(model), extra_options=choice)
    with pytest.raises(InvalidQuantization, match="'nowhere': the model has no such tensor"):
        quantized(tmp_path, "loop", extra={"TensorQuantOverrides": {"nowhere": [{}]}})


@pytest.mark.parametrize("quant_format", list(QuantFormat), ids=str)
@pytest.mark.parametrize(
    ("choices", "expected"),
    [({"nodes_to_exclude": ["then_p"]}, {"other"}), ({"nodes_to_quantize": ["then_p"]}, {"then"}),
     ({"op_types_to_quantize": ["MatMul"]}, {"then", "other"}), ({"op_types_to_quantize": ["Conv"]}, set())],
    ids=["excluded", "chosen", "by operator", "another operator"],
)  # fmt: skip
def test_nodes_of_bodies_are_chosen_by_name_and_operator(tmp_path, quant_format, choices, expected):
    _, target, _ = quantized(tmp_path, "branch in a loop", quant_format, **choices)
    found = {body.name for body in bodies(onnx.load(target).graph) for tensor in body.initializer
             if tensor.name.endswith("scale") or "_scale_body" in tensor.name}  # fmt: skip
    assert found & {"then", "other"} == expected
