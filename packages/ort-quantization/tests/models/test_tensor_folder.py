"""Models in files are quantized tensor by tensor: what is made of a large one lies in a file, too."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from float_models import Builder, feeds_of

import ort_core
from ort_quantization import QuantFormat, QuantType, quantize_dynamic, quantize_static
from ort_quantization.calibration.calibration_data import CalibrationDataReader
from ort_quantization.half_files import convert_file
from ort_quantization.matmul_bnb4_quantizer import MatMulBnb4Quantizer
from ort_quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
from ort_quantization.models import model_files, tensor_folder
from ort_quantization.models.tensor_folder import TensorFolder


def model():
    """Return a model whose opset is too old for 16 bits: a table, a product, and a Gemm whose weight is turned."""
    b = Builder(17)
    words = b.node("Gather", [b.weight("table", 32, 64), "ids"], "words")
    product = b.node("MatMul", [words, b.weight("w", 64, 64)], "product")
    b.node("Gemm", [b.node("Relu", [product], "r"), b.weight("gemm_w", 32, 64), b.weight("bias", 32)], "y", transB=1)
    return b.model({"ids": (5,)}, ["y"], {"ids": onnx.TensorProto.INT64})


class Data(CalibrationDataReader):
    def __init__(self):
        self._left = iter([{"ids": np.arange(5, dtype=np.int64) * place} for place in range(1, 4)])

    def get_next(self):
        return next(self._left, None)


def static(source, target, **choices):
    quantize_static(source, target, Data(), **choices)


def nbits(source, target, **choices):
    quantizer = MatMulNBitsQuantizer(source, block_size=32, **choices)
    quantizer.process()
    quantizer.model.save_model_to_file(target)


def bnb4(source, target):
    quantizer = MatMulBnb4Quantizer(source, 1, 32)
    quantizer.process()
    quantizer.model.save_model_to_file(target)


WAYS = {
    "dynamic": quantize_dynamic,
    "static": static,
    "channels": lambda source, target: static(source, target, per_channel=True),
    "operators": lambda source, target: static(source, target, quant_format=QuantFormat.QOperator),
    "16 bits": lambda source, target: static(
        source, target, activation_type=QuantType.QUInt16, weight_type=QuantType.QInt8
    ),
    "biases": lambda source, target: static(source, target, extra_options={"BiasCorrection": True}),
    "4 bits": nbits,
    "4 bits in blocks": lambda source, target: nbits(source, target, quant_format=QuantFormat.QDQ),
    "tables": lambda source, target: nbits(source, target, op_types_to_quantize=("MatMul", "Gather")),
    "4-bit floats": bnb4,
    "float16": convert_file,
    "bfloat16": lambda source, target: convert_file(source, target, "bfloat16"),
}


@pytest.fixture
def aside(monkeypatch):
    """The names of tensors that are set aside, small ones of this module's model among them."""
    names: list[str] = []
    plain = TensorFolder.set_aside

    def noted(self, tensor):
        found = plain(self, tensor)
        if found is not tensor:
            names.append(tensor.name)
        return found

    monkeypatch.setattr(tensor_folder, "SET_ASIDE_FROM", 512)
    monkeypatch.setattr(model_files, "SET_ASIDE_FROM", 512)
    monkeypatch.setattr(TensorFolder, "set_aside", noted)
    return names


@pytest.mark.parametrize("way", WAYS)
def test_a_model_in_files_becomes_the_same_as_one_in_memory(way, tmp_path, aside):
    inside, outside, first, second = (tmp_path / name for name in ("a.onnx", "b.onnx", "c.onnx", "d.onnx"))
    onnx.save(model(), inside)
    onnx.save(model(), outside, save_as_external_data=True, size_threshold=256, location="weights.bin")
    WAYS[way](outside, second)
    assert len(aside) >= 2, "nothing was kept out of the message"
    WAYS[way](inside, first)
    found, expected = onnx.load(second), onnx.load(first)
    assert [node.op_type for node in found.graph.node] == [node.op_type for node in expected.graph.node]
    results = [ort_core.InferenceSession(path).run(None, feeds_of(model())) for path in (first, second)]
    np.testing.assert_array_equal(results[0][0], results[1][0])


@pytest.mark.parametrize("way", ["dynamic", "static", "operators", "4 bits", "4-bit floats", "tables", "float16"])
def test_no_message_takes_what_is_made_of_a_large_tensor(way, tmp_path, aside, monkeypatch):
    outside, written = tmp_path / "b.onnx", []
    onnx.save(model(), outside, save_as_external_data=True, size_threshold=256, location="weights.bin")

    def noted(found, *rest):
        written.append({each.name: len(each.raw_data) for each in found.graph.initializer})
        return model_files.write_model(found, *rest)

    for module in ("onnx_model", "half_files", "models.streamed_model"):
        monkeypatch.setattr(f"ort_quantization.{module}.write_model", noted)
    WAYS[way](outside, tmp_path / "d.onnx")
    (sizes,) = written
    assert {name for name, size in sizes.items() if size >= 512} == set()


def test_a_location_that_a_model_names_is_never_that_of_tensors_set_aside(tmp_path, aside):
    folder = TensorFolder(str(tmp_path))
    kept = folder.set_aside(onnx.numpy_helper.from_array(np.ones(1000, np.float32), "w"))
    location = kept.external_data[0].value
    assert folder.opened(location) is not None
    assert TensorFolder(str(tmp_path)).opened(location) is None, "another folder takes it for its own"


def test_tensors_are_set_aside_where_the_scratch_folder_cannot_be_written(tmp_path, aside):
    folder = TensorFolder(str(tmp_path), tmp_path / "not there")
    kept = folder.set_aside(onnx.numpy_helper.from_array(np.arange(1000, dtype=np.float32), "w"))
    assert model_files.read_tensor(kept, folder).raw_data == np.arange(1000, dtype=np.float32).tobytes()
