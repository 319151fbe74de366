"""Graphs as other tools leave them: what is written loads in onnxruntime, and gives nearly what floats give."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from beside_onnxruntime import relative_error, run_onnxruntime, run_ours
from onnx import TensorProto, helper, numpy_helper

from ort_quantization import QuantFormat, QuantType, quantize_dynamic, quantize_static

WAYS = pytest.mark.parametrize("way", ["QDQ", "QOperator", "dynamic"])
NEAR = 0.06


def _weight(name, *shape, dtype="f", seed=0):
    values = np.random.default_rng([seed, *map(ord, name)]).normal(size=shape) / 4
    return numpy_helper.from_array(values.astype(dtype), name)


def _model(nodes, tensors, shape, kind=TensorProto.FLOAT):
    given, result = (
        helper.make_tensor_value_info(name, kind, each) for name, each in (("x", list(shape)), ("y", None))
    )
    graph = helper.make_graph(nodes, "other", [given], [result], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def _written(tmp_path, model, way, dtype="f"):
    """The results of the float model and of the one that is written, and its nodes."""
    shape = [size.dim_value for size in model.graph.input[0].type.tensor_type.shape.dim]
    samples = [{"x": np.random.default_rng(seed).normal(size=shape).astype(dtype)} for seed in range(3)]
    left = iter(samples)
    reader = type("Reader", (), {"get_next": lambda _: next(left, None)})()
    source, target = tmp_path / "float.onnx", tmp_path / "small.onnx"
    onnx.save(model, source)
    if way == "dynamic":
        quantize_dynamic(source, target, per_channel=True)
    else:
        quantize_static(
            source, target, reader, QuantFormat[way], per_channel=True, activation_type=QuantType.QUInt8
        )  # fmt: skip
    return source, target, samples[0]


@WAYS
@pytest.mark.parametrize("shape", [(16,), (3, 16, 8)])
def test_scales_for_each_column_need_a_matrix(tmp_path, shape, way):
    given = (2, 16) if len(shape) == 1 else (3, 2, 16)
    model = _model([helper.make_node("MatMul", ["x", "w"], ["y"], "n")], [_weight("w", *shape)], given)
    source, target, feeds = _written(tmp_path, model, way)
    expected = run_onnxruntime(source, feeds)
    assert all(relative_error(run(target, feeds), expected) < NEAR for run in (run_onnxruntime, run_ours))


@WAYS
def test_nodes_of_one_name_have_scales_of_their_own(tmp_path, way):
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"], "n"), helper.make_node("MatMul", ["h", "v"], ["y"], "n")]
    large = numpy_helper.from_array(numpy_helper.to_array(_weight("v", 16, 16)) * np.float32(20), "v")
    _, target, feeds = _written(tmp_path, _model(nodes, [_weight("w", 16, 16), large], (2, 16)), way)
    for node, name in zip(nodes, "ab", strict=True):  # onnxruntime loads no two nodes of one name
        node.name = name
    onnx.save(_model(nodes, [_weight("w", 16, 16), large], (2, 16)), tmp_path / "apart.onnx")
    expected = run_onnxruntime(tmp_path / "apart.onnx", feeds)
    assert relative_error(run_onnxruntime(target, feeds), expected) < NEAR


@WAYS
def test_float16_models_get_boundaries_that_take_float16(tmp_path, way):
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"], "a"), helper.make_node("Relu", ["h"], ["y"], "b")]
    model = _model(nodes, [_weight("w", 16, 16, dtype=np.float16)], (2, 16), TensorProto.FLOAT16)
    source, target, feeds = _written(tmp_path, model, way, np.float16)
    assert relative_error(run_onnxruntime(target, feeds), run_onnxruntime(source, feeds)) < NEAR
    assert (way == "QDQ") == any(node.op_type == "QuantizeLinear" for node in onnx.load(target).graph.node)


def test_weights_read_along_two_axes_get_one_scale_whoever_reads_last(tmp_path):
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], "a"), helper.make_node("Gemm", ["h", "w"], ["i"], "b", transB=1),
        helper.make_node("MatMul", ["i", "w"], ["y"], "c"),
    ]  # fmt: skip
    source, target, feeds = _written(tmp_path, _model(nodes, [_weight("w", 16, 16)], (2, 16)), "QDQ")
    assert relative_error(run_onnxruntime(target, feeds), run_onnxruntime(source, feeds)) < NEAR
    scales = {each.name: each for each in onnx.load(target).graph.initializer}["w_scale"]
    assert numpy_helper.to_array(scales).size == 1
