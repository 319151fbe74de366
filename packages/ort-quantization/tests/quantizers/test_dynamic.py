"""quantize_dynamic beside onnxruntime's own tool: the same nodes, names, types and numbers, and what engines give."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from beside_onnxruntime import assert_same_model, relative_error, run_onnxruntime, run_ours
from float_models import DYNAMIC, Builder, feeds_of
from onnxruntime.quantization import QuantType as TheirType
from onnxruntime.quantization import quantize_dynamic as theirs

from ort_quantization import QuantType, quantize_dynamic
from ort_quantization.errors import InvalidQuantization
from ort_quantization.float16 import convert_float_to_float16

# A rounding of an activation that falls to the other side: one step of 255.
ONE_STEP = 0.01

# Of each kind one is compiled: that takes a second each.
COMPILED = ("matmul", "conv", "embedding", "lstm with states", "attention", "branches")


# Before DynamicQuantizeLinear nodes find the range, in which the tool does not see to zero: see test_opsets.
RANGE_BY_NODES = ("matmul in opset 10", "conv in opset 10")


def both(tmp_path, model, weight_type=QuantType.QInt8, **options):
    """Quantize a model with both tools and return their files."""
    source, here, there = (tmp_path / name for name in ("float.onnx", "here.onnx", "there.onnx"))
    onnx.save(model, source)
    quantize_dynamic(source, here, weight_type=weight_type, **options)
    theirs(source, there, weight_type=TheirType[weight_type.name], **options)
    return source, here, there


@pytest.mark.sweep
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("weight_type", [QuantType.QInt8, QuantType.QUInt8], ids=str)
@pytest.mark.parametrize("reduce_range", [False, True])
@pytest.mark.parametrize("name", [name for name in DYNAMIC if name not in RANGE_BY_NODES])
def test_models_are_quantized_as_onnxruntime_quantizes_them(tmp_path, name, reduce_range, weight_type, per_channel):
    if name == "batched weights" and per_channel:
        pytest.skip("the tool gives stacked matrices scales that onnxruntime's product refuses: see test_other_makers")
    options = {"EnableSubgraph": True} if name == "branches" else {}
    choices = {"per_channel": per_channel, "reduce_range": reduce_range, "extra_options": options}
    _, here, there = both(tmp_path, DYNAMIC[name](), weight_type, **choices)
    assert_same_model(here, there)


@pytest.mark.parametrize("name", DYNAMIC)
def test_quantized_models_give_in_both_engines_nearly_what_floats_give(tmp_path, name):
    model = DYNAMIC[name]()
    source, here, _ = both(tmp_path, model, QuantType.QUInt8, extra_options={"EnableSubgraph": True})
    feeds = feeds_of(model)
    expected = run_onnxruntime(here, feeds)
    if name in COMPILED:
        assert relative_error(run_ours(here, feeds), expected) < ONE_STEP
    assert relative_error(expected, run_onnxruntime(source, feeds)) < 0.05


def test_weights_that_others_read_too_stay_floats_where_channels_have_no_axis(tmp_path):
    weight = np.random.default_rng(0).standard_normal((8, 5)).astype(np.float32)
    text = """<ir_version: 8, opset_import: ["" : 12]>
        g (float[N, 8] x) => (float[N, 5] y, float[8, 5] z) { y = MatMul(x, w) z = Neg(w) }"""
    model = onnx.parser.parse_model(text)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    source, here = tmp_path / "float.onnx", tmp_path / "here.onnx"
    onnx.save(model, source)
    quantize_dynamic(source, here, per_channel=True)
    feeds = {"x": np.random.default_rng(1).standard_normal((3, 8)).astype(np.float32)}
    for run in (run_onnxruntime, run_ours):
        product, negated = run(here, feeds)
        assert relative_error([product], [feeds["x"] @ weight]) < 0.05
        np.testing.assert_array_equal(negated, -weight)


@pytest.mark.parametrize(
    "choices",
    [
        {"nodes_to_exclude": ["MatMul_0"]},
        {"nodes_to_quantize": ["MatMul_2"]},
        {"op_types_to_quantize": ["Conv"]},
        {"extra_options": {"WeightSymmetric": False}},
        {"extra_options": {"WeightSymmetric": True}, "weight_type": QuantType.QUInt8},
        {"extra_options": {"MinimumRealRange": 0.5}},
    ],
    ids=str,
)
def test_choices_are_followed_as_onnxruntime_follows_them(tmp_path, choices):
    _, here, there = both(tmp_path, DYNAMIC["matmul"](), **choices)
    assert_same_model(here, there)


@pytest.mark.parametrize("const_only", [False, True])
def test_products_of_values_are_quantized_where_that_is_asked(tmp_path, const_only):
    _, here, there = both(tmp_path, DYNAMIC["values times values"](), extra_options={"MatMulConstBOnly": const_only})
    assert_same_model(here, there)
    integers = [node.op_type for node in onnx.load(here).graph.node].count("MatMulInteger")
    assert integers == (1 if const_only else 2)


def test_overrides_hold_for_single_weights(tmp_path):
    def chosen(kind):
        weights = {"w": [{"quant_type": kind, "symmetric": False}], "v": [{"rmin": -2.0, "rmax": 2.0}]}
        return {"TensorQuantOverrides": weights}

    source, here, there = (tmp_path / name for name in ("float.onnx", "here.onnx", "there.onnx"))
    onnx.save(DYNAMIC["matmul"](), source)
    quantize_dynamic(source, here, extra_options=chosen(QuantType.QUInt8))
    theirs(source, there, extra_options=chosen(TheirType.QUInt8))
    assert_same_model(here, there)


def test_products_of_float16_stay_and_the_model_runs(tmp_path):
    b = Builder()
    b.node("MatMul", ["x", b.weight("w", 6, 4, dtype=np.float16)], "y")
    model = b.model({"x": (2, 6)}, ["y"], {"x": onnx.TensorProto.FLOAT16, "y": onnx.TensorProto.FLOAT16})
    quantize_dynamic(model, tmp_path / "a.onnx")
    assert [node.op_type for node in onnx.load(tmp_path / "a.onnx").graph.node] == ["MatMul"]
    feeds = feeds_of(model)
    onnx.save(model, tmp_path / "float.onnx")
    found, expected = (run_onnxruntime(tmp_path / name, feeds) for name in ("a.onnx", "float.onnx"))
    assert relative_error(found, expected) == 0


def test_a_quantized_value_that_a_branch_reads_is_given_in_reals(tmp_path):
    b = Builder()
    words = b.node("Gather", [b.weight("table", 9, 4), "ids"], "e")
    given = onnx.helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT, None)
    nodes = [onnx.helper.make_node("Relu", [words], ["z"])]
    branch = onnx.helper.make_graph(nodes, "branch", [], [given])
    b.node("If", ["flag"], "y", then_branch=branch, else_branch=branch)
    model = b.model({"ids": (3,), "flag": ()}, ["y"], {"ids": onnx.TensorProto.INT64, "flag": onnx.TensorProto.BOOL})
    onnx.save(model, tmp_path / "float.onnx")
    quantize_dynamic(model, tmp_path / "a.onnx")  # onnxruntime's tool raises: it does not look into branches
    found, expected = (run_onnxruntime(tmp_path / name, feeds_of(model)) for name in ("a.onnx", "float.onnx"))
    assert relative_error(found, expected) < 0.02


def test_that_dynamic_convolutions_are_slower_is_said(tmp_path, caplog):
    both(tmp_path, DYNAMIC["conv"]())
    assert "slower" in caplog.text
    caplog.clear()
    both(tmp_path, DYNAMIC["conv"](), op_types_to_quantize=["MatMul"])
    assert "slower" not in caplog.text


def test_embeddings_whose_mask_result_is_left_out_load(tmp_path):
    b = Builder()
    inputs = ["ids", "", b.weight("words", 20, 8), b.weight("places", 6, 8), "", b.weight("g", 8), b.weight("h", 8)]
    b.node("EmbedLayerNormalization", inputs, ["y", ""], domain="com.microsoft")
    model = b.model({"ids": (2, 4)}, ["y"], {"ids": onnx.TensorProto.INT32})
    quantize_dynamic(model, tmp_path / "a.onnx")  # onnxruntime's tool writes what onnxruntime does not load
    onnx.save(model, tmp_path / "float.onnx")
    found, expected = (run_onnxruntime(tmp_path / name, feeds_of(model)) for name in ("a.onnx", "float.onnx"))
    assert relative_error(found, expected) < 0.05


@pytest.mark.parametrize("name", ["QInt4", "QUInt4", "QInt16", "QUInt16", "QFLOAT8E4M3FN"])
def test_types_that_no_operator_multiplies_at_run_time_are_refused_in_a_sentence(tmp_path, name):
    with pytest.raises(InvalidQuantization, match="QInt8 or QUInt8"):  # the tool's files load nowhere
        quantize_dynamic(DYNAMIC["matmul"](), tmp_path / "a.onnx", weight_type=QuantType[name])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["embedding", "lstm", "attention", "embed layer norm"])
def test_a_model_of_float16_is_one_that_engines_load(name, tmp_path):
    """onnxruntime's tool writes bytes of float16 for operators that have no such form, or not in that opset."""
    model = convert_float_to_float16(DYNAMIC[name](), op_block_list=[])
    quantize_dynamic(model, tmp_path / "a.onnx")
    onnx.save(model, tmp_path / "float.onnx")
    feeds = feeds_of(model)
    expected = run_onnxruntime(tmp_path / "float.onnx", feeds)
    for run in (run_onnxruntime, run_ours):
        assert relative_error(run(tmp_path / "a.onnx", feeds), expected) < 2 * ONE_STEP
    assert any(node.op_type == "DequantizeLinear" for node in onnx.load(tmp_path / "a.onnx").graph.node) == (
        name == "embedding"
    )
