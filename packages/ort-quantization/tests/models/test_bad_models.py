"""Models that are broken, sparse or named so that quantizing them meets itself: a sentence, or the right file."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from beside_onnxruntime import relative_error, run_onnxruntime, run_ours
from float_models import Builder, conv, feeds_of, matmul
from onnx import helper, numpy_helper

from ort_quantization import QuantFormat, QuantType, quantize_dynamic, quantize_static
from ort_quantization.errors import InvalidCalibration, InvalidQuantization
from ort_quantization.float16 import convert_float_to_float16
from ort_quantization.matmul_bnb4_quantizer import MatMulBnb4Quantizer
from ort_quantization.matmul_nbits_quantizer import GPTQWeightOnlyQuantConfig, MatMulNBitsQuantizer


class Reader:
    """Gives two random samples."""

    def __init__(self, model):
        self.left = iter([feeds_of(model, seed) for seed in range(2)])

    def get_next(self):
        return next(self.left, None)


def by_blocks(make, model, target):
    quantizer = make(model)
    quantizer.process()
    quantizer.model.save_model_to_file(target)


def statically(model, target, form=QuantFormat.QDQ):
    quantize_static(model, target, Reader(model), form, activation_type=QuantType.QUInt8)


WAYS = {
    "dynamic": quantize_dynamic,
    "QDQ": statically,
    "QOperator": lambda model, target: statically(model, target, QuantFormat.QOperator),
    "blocks": lambda model, target: by_blocks(lambda each: MatMulNBitsQuantizer(each, 8, 16), model, target),
    "bnb4": lambda model, target: by_blocks(lambda each: MatMulBnb4Quantizer(each, 1, 16), model, target),
    "float16": lambda model, target: onnx.save(convert_float_to_float16(model, keep_io_types=True), target),
}


def sparse(has_pairs: bool, rows: int = 16) -> onnx.ModelProto:
    """A product with a weight of three numbers that are not zero."""
    b = Builder()
    b.node("MatMul", ["x", "w"], "y")
    model = b.model({"x": (2, rows)}, ["y"])
    values = numpy_helper.from_array(np.array([1.0, -2.0, 0.5], np.float32), "w")
    places = np.array([[0, 3], [2, 1], [7, 0]], np.int64) if has_pairs else np.array([3, 9, 28], np.int64)
    indices = numpy_helper.from_array(places, "w_indices")
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [rows, 4]))
    return model


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("has_pairs", [False, True])
def test_sparse_weights_are_quantized_as_dense_ones(tmp_path, way, has_pairs):
    model, target = sparse(has_pairs), tmp_path / "small.onnx"
    onnx.save(model, tmp_path / "float.onnx")
    expected = run_onnxruntime(tmp_path / "float.onnx", feeds_of(model))
    WAYS[way](sparse(has_pairs), target)
    small = onnx.load(target).graph
    assert not small.sparse_initializer
    assert way in ("float16",) or {node.op_type for node in small.node} != {"MatMul"}
    assert relative_error(run_ours(target, feeds_of(model)), expected) < (0.3 if way == "bnb4" else 0.05)


def test_sparse_weights_that_no_file_holds_as_dense_ones_are_refused():
    model = sparse(False)
    model.graph.sparse_initializer[0].dims[0] = 1 << 30
    with pytest.raises(InvalidQuantization, match=r"'w' of shape .* takes 17179869184 bytes"):
        quantize_dynamic(model, "unused.onnx")


@pytest.mark.parametrize("way", ["dynamic", "QDQ", "blocks"])
def test_a_model_in_memory_without_its_files_is_refused_with_their_name(tmp_path, way):
    onnx.save_model(matmul(), tmp_path / "a.onnx", save_as_external_data=True, location="numbers", size_threshold=0)
    model = onnx.load(tmp_path / "a.onnx", load_external_data=False)
    with pytest.raises(InvalidQuantization, match="in the file 'numbers', which cannot be read from this folder: give"):
        WAYS[way](model, tmp_path / "small.onnx")


def cut() -> onnx.ModelProto:
    model = matmul()
    model.graph.initializer[0].raw_data = model.graph.initializer[0].raw_data[:10]
    return model


def given_twice() -> onnx.ModelProto:
    model = matmul()
    model.graph.node.append(model.graph.node[0])
    return model


def without_opset() -> onnx.ModelProto:
    model = matmul()
    model.ClearField("opset_import")
    return model


@pytest.mark.parametrize("way", [way for way in WAYS if way != "float16"])
@pytest.mark.parametrize(
    ("make", "told"),
    [
        (cut, r"'w' of shape \(16, 24\) needs 1536 bytes and has 10"),
        (given_twice, "two nodes give the value 'h'"),
        (without_opset, "imports one version of ONNX's operators"),
    ],
    ids=["cut", "given twice", "without opset"],
)
def test_a_broken_model_is_refused_in_a_sentence(tmp_path, way, make, told):
    with pytest.raises(InvalidQuantization, match=told):
        WAYS[way](make(), tmp_path / "small.onnx")


def with_names_of_quantizing() -> onnx.ModelProto:
    """Values that are called as what quantizing their neighbors adds."""
    b = Builder()
    b.node("MatMul", ["x", b.weight("w", 16, 16)], "h")
    b.node("Mul", ["h", b.weight("w_scale", 16)], "h_scale")
    b.node("Add", ["h_scale", b.weight("w_quantized", 16)], "h_quantized")
    b.node("MatMul", ["h_quantized", b.weight("h_zero_point", 16, 16)], "x_DequantizeLinear_Output")
    b.node("Sigmoid", ["x_DequantizeLinear_Output"], "y")
    return b.model({"x": (2, 16)}, ["y"])


@pytest.mark.parametrize("way", ["dynamic", "QDQ", "QOperator"])
def test_values_that_are_called_as_what_quantizing_adds_get_other_names(tmp_path, way):
    model, target = with_names_of_quantizing(), tmp_path / "small.onnx"
    onnx.save(model, tmp_path / "float.onnx")
    expected = run_onnxruntime(tmp_path / "float.onnx", feeds_of(model))
    WAYS[way](tmp_path / "float.onnx" if way == "dynamic" else model, target)
    for run in (run_ours, run_onnxruntime):
        assert relative_error(run(target, feeds_of(model)), expected) < 0.05


def test_an_input_that_is_called_as_what_quantizing_adds_is_refused(tmp_path):
    b = Builder()
    b.node("MatMul", ["x", b.weight("w", 4, 4)], "h")
    b.node("Mul", ["h", "x_scale"], "y")
    model = b.model({"x": (2, 4), "x_scale": (1,)}, ["y"])
    with pytest.raises(InvalidQuantization, match="'x_scale', which is what quantizing 'x' adds: rename one"):
        quantize_dynamic(model, tmp_path / "small.onnx")


def test_a_model_that_was_quantized_dynamically_can_be_quantized_statically(tmp_path):
    """Its ranges are values of the model, called as the scales that are added."""
    once, twice = tmp_path / "once.onnx", tmp_path / "twice.onnx"
    quantize_dynamic(conv(), once)
    quantize_static(once, twice, Reader(conv()), activation_type=QuantType.QUInt8)
    for run in (run_ours, run_onnxruntime):
        results = run(twice, feeds_of(conv())), run(once, feeds_of(conv()))
        assert relative_error(*results) < 0.05


@pytest.mark.parametrize("place", ["/proc/small.onnx", "/proc/there/small.onnx"])
def test_a_folder_that_takes_no_files_is_told_of_before_the_work(place, tmp_path):
    if not (tmp_path.root == "/" and onnx.os.path.isdir("/proc/self")):
        pytest.skip("the system has no folder /proc")
    with pytest.raises(InvalidQuantization, match="files cannot be made in /proc"):
        quantize_dynamic(matmul(), place)


def test_samples_that_gptq_cannot_run_are_told_of_with_their_number():
    config = GPTQWeightOnlyQuantConfig([feeds_of(matmul()), {"other": np.zeros((4, 16), np.float32)}])
    with pytest.raises(InvalidCalibration, match=r"calibration sample 1: .*'x'"):
        MatMulNBitsQuantizer(matmul(), block_size=16, algo_config=config).process()
