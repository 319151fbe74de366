"""Static quantization of what lies in bodies of If, Loop and Scan: calibrated there, quantized there, right there."""

from __future__ import annotations

import logging

import numpy as np
import onnx
import onnxruntime
import pytest
from beside_onnxruntime import relative_error, run_onnxruntime, run_ours
from body_models import BODIES, bodies, op_types
from float_models import feeds_of

from ort_quantization import CalibrationMethod, QuantFormat, QuantType, quantize_static
from ort_quantization.calibrate import create_calibrator

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
    quantize_static(
        source, target, reader, quant_format, activation_type=QuantType.QUInt8, extra_options=OPTIONS, **choices
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
