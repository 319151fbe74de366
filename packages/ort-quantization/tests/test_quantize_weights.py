"""``quantize_weights`` and ``ort quantize --weight-only``: few bits for weights of products, more for the last ones."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
from beside_onnxruntime import relative_error, run_onnxruntime
from float_models import Builder, feeds_of
from onnx import TensorProto, helper
from typer.testing import CliRunner

import ort_core
from ort_core.cli.app import build_app
from ort_quantization.calibration.sample_files import SampleReader
from ort_quantization.errors import InvalidCalibration, InvalidQuantization
from ort_quantization.quantize_weights import METHODS, quantize_weights


def decoder_like(names=("first", "second", "head", "score")):
    """Two products in a row, of which results give one, then two that no product follows."""
    b = Builder(17)
    hidden = b.node("MatMul", ["x", b.weight("w", 64, 64)], "h", names[0])
    inner = b.node("MatMul", [b.node("Relu", [hidden], "r"), b.weight("k", 64, 64)], "cache", names[1])
    joined = b.node("Add", [b.node("Tanh", [inner], "t"), hidden], "a")
    b.node("MatMul", [joined, b.weight("v", 64, 96)], "logits", names[2])
    b.node("Sigmoid", [b.node("MatMul", [joined, b.weight("s", 64, 4)], "z", names[3])], "score")
    return b.model({"x": (3, 64)}, ["logits", "cache", "score"])


@pytest.fixture
def source(tmp_path):
    onnx.save(decoder_like(), tmp_path / "float.onnx")
    return tmp_path / "float.onnx"


def bits_of(path):
    """The bits of each product, by the name of its result."""
    nodes = [node for node in onnx.load(path).graph.node if node.op_type == "MatMulNBits"]
    return {node.output[0]: next(each.i for each in node.attribute if each.name == "bits") for node in nodes}


def test_products_that_no_other_follows_get_8_bits(source, tmp_path):
    target = tmp_path / "small.onnx"
    quantize_weights(source, target)
    assert bits_of(target) == {"h": 4, "cache": 4, "logits": 8, "z": 8}
    quantize_weights(source, target, last_bits=4)
    assert bits_of(target) == {"h": 4, "cache": 4, "logits": 4, "z": 4}
    quantize_weights(source, target, 8, last_bits=4, nodes_to_exclude=["second"])
    assert bits_of(target) == {"h": 8, "logits": 8, "z": 8}


def test_nodes_without_names_and_before_bodies_are_told_apart(tmp_path):
    model = decoder_like(("", "", "", ""))
    branch = helper.make_graph(
        [helper.make_node("Identity", ["logits"], ["inner"])], "b", [],
        [helper.make_tensor_value_info("inner", onnx.TensorProto.FLOAT, None)],
    )  # fmt: skip
    model.graph.node.append(helper.make_node("If", ["flag"], ["last"], then_branch=branch, else_branch=branch))
    model.graph.input.append(helper.make_tensor_value_info("flag", onnx.TensorProto.BOOL, []))
    model.graph.output.append(helper.make_tensor_value_info("last", onnx.TensorProto.FLOAT, None))
    onnx.save(model, tmp_path / "float.onnx")
    quantize_weights(tmp_path / "float.onnx", tmp_path / "small.onnx")
    assert bits_of(tmp_path / "small.onnx") == {"h": 4, "cache": 4, "logits": 4, "z": 8}


@pytest.mark.parametrize(("bits", "method"), [*((4, method) for method in METHODS), (2, "hqq"), (8, "hqq")])
def test_files_of_each_method_give_in_onnxruntime_what_they_give_here(source, tmp_path, method, bits):
    target = tmp_path / "small.onnx"
    samples = [feeds_of(onnx.load(source), seed) for seed in range(2)]
    quantize_weights(source, target, bits, method=method, calibration_data_reader=SampleReader(samples))
    expected = run_onnxruntime(target, samples[0])
    here = ort_core.InferenceSession(str(target), providers=["ReferenceExecutionProvider"]).run(None, samples[0])
    assert relative_error(here, expected) < 1e-4
    assert relative_error(expected, run_onnxruntime(source, samples[0])) < {2: 0.8, 4: 0.15, 8: 0.02}[bits]


def exported():
    """A decoder as exporters write it: Gemm, also with a transposed weight, and a tied table as the head."""
    b = Builder(17)
    table = b.weight("table", 96, 64)
    rows = b.node("Gemm", ["x", b.weight("w", 64, 64), b.weight("b", 64)], "h", "first")
    inner = b.node("Gemm", [b.node("Relu", [rows], "r"), b.weight("k", 32, 64)], "i", "second", transB=1)
    joined = b.node("MatMul", [inner, b.weight("v", 32, 64)], "j", "third")
    b.node("MatMul", [joined, b.node("Transpose", [table], "turned", perm=[1, 0])], "logits", "head")
    b.node("Gather", [table, "ids"], "embedded", "look-up")
    b.node("Gemm", ["x", b.weight("f", 64, 8), b.weight("c", 8)], "factors", "factors", alpha=0.5)
    return b.model({"x": (3, 64), "ids": (4,)}, ["logits", "embedded", "factors"], {"ids": TensorProto.INT64})


@pytest.mark.parametrize("method", ["default", "gptq"])
@pytest.mark.parametrize("is_external", [False, True])
def test_products_in_the_forms_of_exporters_are_quantized(tmp_path, method, is_external):
    source, target = tmp_path / "float.onnx", tmp_path / "small.onnx"
    onnx.save(exported(), source, save_as_external_data=is_external, location="weights", size_threshold=64)
    feeds = {"x": feeds_of(decoder_like())["x"], "ids": np.array([3, 0, 95, 7])}
    quantize_weights(source, target, method=method, calibration_data_reader=SampleReader([feeds]))
    kinds = [node.op_type for node in onnx.load(target).graph.node]
    assert kinds.count("MatMulNBits") == 4
    assert "Transpose" not in kinds
    assert kinds.count("Gemm") == 1, "a factor is no part of MatMulNBits"
    assert sorted(bits_of(target).values()) == [4, 4, 4, 8]
    expected, found = run_onnxruntime(source, feeds), run_onnxruntime(target, feeds)
    assert relative_error(found[:1], expected[:1]) < 0.25
    np.testing.assert_array_equal(found[1], expected[1])  # the table itself stays as it is


def test_excluded_products_keep_the_form_they_have(tmp_path):
    onnx.save(exported(), tmp_path / "float.onnx")
    quantize_weights(tmp_path / "float.onnx", tmp_path / "small.onnx", nodes_to_exclude=["first", "head"])
    kinds = {node.name: node.op_type for node in onnx.load(tmp_path / "small.onnx").graph.node}
    assert kinds["first"] == "Gemm"
    assert kinds["head"] == "MatMul"
    assert list(kinds.values()).count("MatMulNBits") == 2


def test_what_is_unknown_is_refused_in_a_sentence(source, tmp_path):
    with pytest.raises(InvalidQuantization, match="'best' is no method; known: hqq"):
        quantize_weights(source, tmp_path / "a.onnx", method="best")
    with pytest.raises(InvalidQuantization, match="2, 4 or 8 bits, not to 3"):
        quantize_weights(source, tmp_path / "a.onnx", 3)
    with pytest.raises(InvalidCalibration, match="awq needs data"):
        quantize_weights(source, tmp_path / "a.onnx", method="awq")


def test_the_command_writes_and_compares(source, tmp_path):
    np.savez(tmp_path / "sample.npz", **feeds_of(onnx.load(source)))
    page = tmp_path / "page.html"
    asked = ["--weight-only", "4", "--data", tmp_path / "sample.npz", "--layers", "--report", page, "--json"]
    done = CliRunner().invoke(build_app(), ["quantize", str(source), *map(str, asked)])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["signal_to_noise_db"]["logits"] > 15
    assert bits_of(tmp_path / "float.quantized.onnx")["logits"] == 8
    assert "logits" in page.read_text(encoding="utf-8")


def test_4_bits_without_data_are_refused_with_the_way_to_them(source):
    done = CliRunner().invoke(build_app(), ["quantize", str(source), "--weights", "int4"])
    assert done.exit_code != 0
    assert "--weight-only" in done.output
