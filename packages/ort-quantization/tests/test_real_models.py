"""Trained models, quantized by both tools with the same ranges: the same files. They are external test data."""

from __future__ import annotations

import os

import numpy as np
import onnx
import pytest
from beside_onnxruntime import assert_same_model, run_onnxruntime
from onnx import numpy_helper
from onnxruntime import quantization as theirs

import ort_quantization as ours

ALL = "ORT_TEST_QUANTIZED_FILES" in os.environ  # set by nox -s quantized_files: minutes; one model otherwise
MODELS = ("mnist_cntk", "mnist_pytorch_cnn", "magika_v3_3", "ultraface_rfb_320") if ALL else ("mnist_pytorch_cnn",)
STATIC = [("QUInt8", "QInt8", False), ("QInt8", "QInt8", True), ("QUInt8", "QUInt8", True)]


class Reader:
    """The inputs of a model's test data."""

    def __init__(self, folder):
        model = onnx.load(folder / "model.onnx")
        given = {tensor.name for tensor in model.graph.initializer}
        names = [each.name for each in model.graph.input if each.name not in given]
        self.samples = [
            {name: _array(each / f"input_{place}.pb") for place, name in enumerate(names)}
            for each in sorted(folder.glob("test_data_set_*"))
        ]
        self.left = iter(self.samples)

    def get_next(self):
        return next(self.left, None)


def _array(path):
    tensor = onnx.TensorProto()
    tensor.ParseFromString(path.read_bytes())
    return numpy_helper.to_array(tensor)


@pytest.fixture
def folder(request, external_test_data):
    """The folder of a trained model."""
    found = external_test_data / "models" / "real" / request.param
    if not found.is_dir():
        pytest.skip(f"no {request.param} in the external test data")
    return found


@pytest.mark.parametrize("folder", MODELS, indirect=True)
@pytest.mark.parametrize(("weights", "per_channel"), [("QInt8", False), ("QUInt8", True)])
def test_trained_models_are_quantized_dynamically_as_onnxruntime_does(tmp_path, folder, weights, per_channel):
    for package, name in ((ours, "here.onnx"), (theirs, "there.onnx")):
        kind = package.QuantType[weights]
        package.quantize_dynamic(folder / "model.onnx", tmp_path / name, weight_type=kind, per_channel=per_channel)
    assert_same_model(tmp_path / "here.onnx", tmp_path / "there.onnx")


@pytest.mark.parametrize("folder", MODELS, indirect=True)
@pytest.mark.parametrize("quant_format", ["QDQ", "QOperator"])
@pytest.mark.parametrize(("activations", "weights", "per_channel"), STATIC)
def test_trained_models_are_quantized_statically_as_onnxruntime_does(
    tmp_path, folder, quant_format, activations, weights, per_channel
):
    source, ranges = folder / "model.onnx", tmp_path / "ranges.json"
    model = onnx.load(source)
    if per_channel and quant_format == "QDQ" and model.opset_import[0].version < 13:
        # The tool writes scales by channel in opsets whose DequantizeLinear has no axis: files that nothing loads
        source = tmp_path / "newer.onnx"
        onnx.save(onnx.version_converter.convert_version(model, 13), source)
    options = {"KeepFragileValues": False}  # the tool has no such option, and passes over it
    for package, name, reader in ((ours, "here.onnx", Reader(folder)), (theirs, "there.onnx", None)):
        package.quantize_static(
            source, tmp_path / name, reader, package.QuantFormat[quant_format], per_channel=per_channel,
            activation_type=package.QuantType[activations], weight_type=package.QuantType[weights],
            calibration_cache_path=ranges, extra_options=dict(options),
        )  # fmt: skip
    assert_same_model(tmp_path / "here.onnx", tmp_path / "there.onnx")


@pytest.mark.skipif(not ALL, reason="minutes: nox -s quantized_files")
@pytest.mark.parametrize("folder", ["mobilenet_qdq_imagenet"], indirect=True)
def test_a_trained_qdq_model_is_quantized_around_what_it_has(tmp_path, folder):
    reader = Reader(folder)
    ours.quantize_static(folder / "model.onnx", tmp_path / "again.onnx", reader)
    paths = tmp_path / "again.onnx", folder / "model.onnx"
    found, expected = (run_onnxruntime(path, reader.samples[0]) for path in paths)
    assert np.argmax(found[0]) == np.argmax(expected[0])
