"""quant_pre_process and its command line: shapes, folding, older opsets, operators of one's own."""

from __future__ import annotations

import runpy
import sys

import numpy as np
import onnx
import pytest
from beside_onnxruntime import run_onnxruntime
from float_models import Builder, attention, feeds_of, matmul
from onnx import helper
from static_models import residual_network

from ort_quantization import quant_pre_process, quantize_dynamic
from ort_quantization.errors import InvalidQuantization
from ort_quantization.models import prepare
from ort_quantization.models.model_files import PREPARED, is_marked, write_model


def foldable():
    """A batch normalization behind a convolution, and weights that are computed from constants."""
    b = Builder()
    scaled = b.node("Mul", [b.weight("w", 4, 3, 1, 1), b.constant("two", np.float32(2))], "w2")
    hidden = b.node("Conv", ["x", scaled, b.weight("b", 4)], "h")
    facts = [b.weight("g", 4), b.weight("s", 4), b.weight("m", 4), b.constant("v", np.ones(4, "f"))]
    b.node("BatchNormalization", [hidden, *facts], "n")
    b.node("Relu", ["n"], "y")
    return b.model({"x": ("batch", 3, 5, 5)}, ["y"])


def same_results(tmp_path, model, **choices):
    source, target = tmp_path / "a.onnx", tmp_path / "b.onnx"
    onnx.save(model, source)
    quant_pre_process(source, target, **choices)
    feeds = feeds_of(model)
    for here, there in zip(run_onnxruntime(target, feeds), run_onnxruntime(source, feeds), strict=True):
        np.testing.assert_allclose(here, there, rtol=1e-4, atol=1e-5)
    return onnx.load(target)


def test_constants_are_folded_and_normalizations_fused(tmp_path):
    prepared = same_results(tmp_path, foldable())
    assert [node.op_type for node in prepared.graph.node] == ["Conv", "Relu"]
    assert is_marked(prepared, PREPARED)
    (value,) = [each for each in prepared.graph.value_info if each.name != "y"]
    assert [size.dim_param or size.dim_value for size in value.type.tensor_type.shape.dim] == ["batch", 4, 5, 5]


@pytest.mark.parametrize(
    "choices",
    [
        {"skip_optimization": True},
        {"skip_onnx_shape": True},
        {"skip_symbolic_shape": True},
        {"skip_optimization": True, "skip_symbolic_shape": True},
        {"save_as_external_data": True},
    ],
    ids=str,
)
def test_steps_are_left_out_where_that_is_asked(tmp_path, choices):
    prepared = same_results(tmp_path, foldable(), **choices)
    is_folded = not choices.get("skip_optimization", False)
    assert (len(prepared.graph.node) == 2) is is_folded


def test_tensors_lie_in_the_file_that_is_asked_for(tmp_path):
    for threshold, is_outside in ((8, True), (1 << 20, False)):
        same_results(
            tmp_path, matmul(), save_as_external_data=True, external_data_location="numbers.bin",
            external_data_size_threshold=threshold,
        )  # fmt: skip
        prepared = onnx.load(tmp_path / "b.onnx", load_external_data=False)
        places = {entry.value for each in prepared.graph.initializer for entry in each.external_data[:1]}
        assert places == ({"numbers.bin"} if is_outside else set())
    with pytest.raises(InvalidQuantization, match=r"'\.\./numbers' is to lie in the folder"):
        quant_pre_process(
            matmul(), tmp_path / "b.onnx", save_as_external_data=True, external_data_location="../numbers"
        )


def test_tensors_in_files_are_not_read_into_the_model(tmp_path, monkeypatch):
    onnx.save(matmul(), tmp_path / "a.onnx", save_as_external_data=True, size_threshold=8, location="weights.bin")
    written = []

    def noted(model, *rest):
        written.append(sum(len(each.raw_data) for each in model.graph.initializer))
        write_model(model, *rest)

    monkeypatch.setattr(prepare, "write_model", noted)
    quant_pre_process(tmp_path / "a.onnx", tmp_path / "b.onnx")
    assert set(written) == {0}


def test_values_of_other_operators_get_types(tmp_path):
    model = attention()
    del model.graph.value_info[:]
    prepared = same_results(tmp_path, model)
    assert "h" in {each.name for each in prepared.graph.value_info}


def test_a_prepared_model_is_quantized_without_a_word(tmp_path, caplog):
    quant_pre_process(residual_network(), tmp_path / "a.onnx")
    quantize_dynamic(tmp_path / "a.onnx", tmp_path / "b.onnx")
    assert "not prepared" not in caplog.text


def test_older_models_come_to_the_first_opset_of_quantized_ones(tmp_path):
    prepared = same_results(tmp_path, matmul(9))
    assert prepared.opset_import[0].version >= 11


def test_operators_of_ones_own_stay(tmp_path, caplog):
    model = matmul()
    model.graph.node.append(helper.make_node("Strange", ["y"], ["z"], domain="own"))
    model.opset_import.append(helper.make_opsetid("own", 1))
    model.graph.output.append(helper.make_tensor_value_info("z", 1, None))
    quant_pre_process(model, tmp_path / "a.onnx")
    assert "does not load the model" in caplog.text
    prepared = onnx.load(tmp_path / "a.onnx")
    assert "Strange" in {node.op_type for node in prepared.graph.node}
    assert "h" in {each.name for each in prepared.graph.value_info}


def test_a_missing_path_is_told_of(tmp_path):
    with pytest.raises(InvalidQuantization, match="path of the model to write"):
        quant_pre_process(matmul())
    with pytest.raises(InvalidQuantization, match="needs an input model"):
        quant_pre_process(output_model_path=tmp_path / "a.onnx")


def test_the_command_line_prepares_a_file(tmp_path, monkeypatch):
    onnx.save(foldable(), tmp_path / "a.onnx")
    monkeypatch.setattr(
        sys, "argv", ["preprocess", "--input", str(tmp_path / "a.onnx"), "--output", str(tmp_path / "b.onnx")]
    )
    with pytest.raises(SystemExit) as end:
        runpy.run_module("ort_core.quantization.preprocess", run_name="__main__")
    assert end.value.code == 0
    assert len(onnx.load(tmp_path / "b.onnx").graph.node) == 2
