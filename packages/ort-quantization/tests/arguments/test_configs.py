"""Configurations, and what quantize_static refuses: a sentence each."""

from __future__ import annotations

import importlib
import logging

import numpy as np
import onnx
import pytest
from beside_onnxruntime import assert_same_model
from float_models import feeds_of, matmul
from onnxruntime.quantization import QuantType as TheirType
from onnxruntime.quantization import get_qdq_config as their_config
from static_models import STATIC

from ort_quantization import (
    CalibrationMethod,
    DynamicQuantConfig,
    QuantFormat,
    QuantType,
    StaticQuantConfig,
    get_qdq_config,
    quantize,
    quantize_dynamic,
    quantize_static,
)
from ort_quantization.errors import InvalidCalibration, InvalidQuantization


class Reader:
    """Gives a few random samples of a model."""

    def __init__(self, model, count=3):
        self.left = iter([feeds_of(model, seed) for seed in range(count)])

    def get_next(self):
        return next(self.left, None)


def test_a_configuration_does_what_its_function_does(tmp_path):
    model = matmul()
    paths = [tmp_path / name for name in ("a", "b", "c", "d")]
    quantize(model, paths[0], DynamicQuantConfig(per_channel=True))
    quantize_dynamic(model, paths[1], per_channel=True)
    quantize(model, paths[2], StaticQuantConfig(Reader(model), activation_type=QuantType.QUInt8, reduce_range=True))
    quantize_static(model, paths[3], Reader(model), activation_type=QuantType.QUInt8, reduce_range=True)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert_same_model(paths[2], paths[3])


def test_the_function_is_found_whether_its_module_was_imported_before_or_not(tmp_path):
    module = importlib.import_module("ort_quantization.quantize")
    module(matmul(), tmp_path / "a", DynamicQuantConfig())
    assert (tmp_path / "a").exists()


@pytest.mark.parametrize(
    "choices",
    [
        {},
        {"activation_type": QuantType.QUInt16, "activation_symmetric": True, "keep_removable_activations": True},
        {"weight_type": QuantType.QInt4, "min_real_range": 0.1, "per_channel": True},
        {
            "nodes_to_exclude": ["Conv_0"],
            "op_types_to_quantize": ["Conv", "Gemm"],
            "extra_options": {"QuantizeBias": False},
        },
        {"calibrate_args": {"symmetric": True, "percentile": 99.0}},
    ],
    ids=str,
)
def test_choices_for_a_whole_model_are_onnxruntimes(choices):
    model = STATIC["residual network"]()
    theirs = {key: TheirType[each.name] if isinstance(each, QuantType) else each for key, each in choices.items()}
    found, expected = get_qdq_config(model, Reader(model), **choices), their_config(model, None, **theirs)
    for name in ("per_channel", "reduce_range", "extra_options", "nodes_to_exclude", "use_external_data_format"):
        assert getattr(found, name) == getattr(expected, name), name
    assert sorted(found.op_types_to_quantize) == sorted(expected.op_types_to_quantize)
    assert (found.activation_type.name, found.weight_type.name) == (
        expected.activation_type.name,
        expected.weight_type.name,
    )


def test_nodes_are_excluded_by_what_a_function_says(tmp_path):
    model = STATIC["residual network"]()
    config = get_qdq_config(model, Reader(model), nodes_to_exclude=lambda _, node: node.op_type == "Conv")
    quantize(model, tmp_path / "a.onnx", config)
    graph = onnx.load(tmp_path / "a.onnx").graph
    weights = {name for node in graph.node if node.op_type == "Conv" for name in node.input[1:2]}
    assert weights == {"w0", "w1", "w2"}


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"activation_type": QuantType.QInt8, "weight_type": QuantType.QUInt8}, "QUInt8 weights"),
        ({"activation_type": QuantType.QFLOAT8E4M3FN}, "8 bit floats"),
        ({"weight_type": QuantType.QFLOAT8E4M3FN}, "8 bit floats"),
        ({"activation_type": QuantType.QInt16, "quant_format": QuantFormat.QOperator}, "16-bit"),
        ({"weight_type": QuantType.QInt4, "quant_format": QuantFormat.QOperator}, "reads 4 bits"),
        (
            {
                "activation_type": QuantType.QFLOAT8E4M3FN,
                "weight_type": QuantType.QFLOAT8E4M3FN,
                "quant_format": QuantFormat.QOperator,
            },
            "reads 8-bit floats",
        ),
        ({"extra_options": {"TensorQuantOverrides": {"none": [{}]}}}, "no such tensor"),
        ({"extra_options": {"TensorQuantOverrides": {"w": {}}}}, "list of dictionaries"),
        ({"extra_options": {"TensorQuantOverrides": {"w": [{"scale": 1.0}]}}}, "zero_point"),
        ({"extra_options": {"TensorQuantOverrides": {"w": [{"tpye": 1}]}}}, "unknown key 'tpye'"),
        ({"extra_options": {"TensorQuantOverrides": {"h": [{"axis": 0}]}}}, "only initializers have channels"),
        ({"extra_options": {"TensorQuantOverrides": {"w": [{"axis": 5}]}}}, "axis 5 does not exist"),
        ({"extra_options": {"TensorQuantOverrides": {"w": [{"axis": 0}] * 3}}}, "16 channels"),
        ({"extra_options": {"CalibStridedMinMax": 2}}, "stride"),
    ],
    ids=str,
)
def test_what_cannot_be_followed_is_refused_in_a_sentence(tmp_path, choices, message):
    model = matmul()

    class Counted(Reader):
        def __len__(self):
            return 3

        def set_range(self, start_index, end_index):
            """Read on."""

    with pytest.raises(InvalidQuantization, match=message):
        quantize_static(model, tmp_path / "a.onnx", Counted(model), **choices)
    assert not list(tmp_path.iterdir())


def test_without_samples_and_ranges_nothing_is_quantized(tmp_path):
    with pytest.raises(InvalidCalibration, match="calibration_data_reader"):
        quantize_static(matmul(), tmp_path / "a.onnx")
    with pytest.raises(InvalidCalibration, match="gave no sample"):
        quantize_static(matmul(), tmp_path / "a.onnx", Reader(matmul(), 0))


def test_ranges_of_another_method_are_refused(tmp_path):
    model, cache = matmul(), tmp_path / "ranges.json"
    quantize_static(model, tmp_path / "a.onnx", Reader(model), calibration_cache_path=cache)
    quantize_static(model, tmp_path / "b.onnx", calibration_cache_path=cache)
    assert_same_model(tmp_path / "b.onnx", tmp_path / "a.onnx")
    with pytest.raises(InvalidQuantization, match="found by MinMax"):
        quantize_static(
            model, tmp_path / "c.onnx", calibration_cache_path=cache, calibrate_method=CalibrationMethod.Entropy
        )
    cache.write_text("{")
    with pytest.raises(InvalidQuantization, match="no file of calibrated ranges"):
        quantize_static(model, tmp_path / "c.onnx", calibration_cache_path=cache)


def test_ranges_of_another_model_are_refused(tmp_path):
    cache = tmp_path / "ranges.json"
    quantize_static(STATIC["conv1d"](), tmp_path / "a.onnx", Reader(STATIC["conv1d"]()), calibration_cache_path=cache)
    with pytest.raises(InvalidQuantization, match="calibration has no range for it"):
        quantize_static(matmul(), tmp_path / "b.onnx", calibration_cache_path=cache)


def test_an_unknown_option_is_told_of_with_the_nearest(tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        quantize_static(matmul(), tmp_path / "a.onnx", Reader(matmul()), extra_options={"ActivationSymetric": True})
    assert "did you mean 'ActivationSymmetric'" in caplog.text


def test_constant_and_zero_values_are_quantized(tmp_path):
    model = matmul()
    for tensor in model.graph.initializer:
        zeros = np.zeros(list(tensor.dims), np.float32)
        tensor.CopyFrom(onnx.numpy_helper.from_array(zeros, tensor.name))
    quantize_static(model, tmp_path / "a.onnx", Reader(model))
    quantize_dynamic(model, tmp_path / "b.onnx")
    scales = {each.name: onnx.numpy_helper.to_array(each) for each in onnx.load(tmp_path / "a.onnx").graph.initializer}
    assert scales["w_scale"] == scales["y_scale"] == 1


def test_weights_that_are_no_numbers_are_named(tmp_path):
    model = matmul()
    values = onnx.numpy_helper.to_array(model.graph.initializer[0]).copy()
    values[0, 0] = np.nan
    model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(values, "w"))
    with pytest.raises(InvalidQuantization, match="weight 'w'"):
        quantize_dynamic(model, tmp_path / "a.onnx")


def test_a_quantized_model_is_quantized_again_with_a_warning(tmp_path, caplog):
    model = STATIC["embedding"]()
    quantize_dynamic(model, tmp_path / "a.onnx")
    with caplog.at_level(logging.WARNING):
        quantize_dynamic(tmp_path / "a.onnx", tmp_path / "b.onnx")
    assert "quantized before" in caplog.text
