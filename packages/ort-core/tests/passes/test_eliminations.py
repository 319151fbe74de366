"""Eliminations: operators that do nothing go away, and nothing else does."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx.shape_inference
import pytest
from onnx import helper, numpy_helper
from pass_check import assert_fires, assert_stays, context_of, model_of, named, op_types, run_pass

from ort_core.onnx_io.load import model_from_proto
from ort_core.passes.runner import run_pipeline


def test_identity_is_removed_and_the_output_keeps_its_name() -> None:
    model = model_of("g (float[2] x) => (float[2] y) { a = Identity(x)  b = Relu(a)  y = Identity(b) }")
    run_pass("EliminateIdentity", model)
    assert op_types(model) == ["Relu"]
    assert [v.name for v in model.graph.outputs] == ["y"]


def test_identity_stays_when_the_graph_returns_an_input() -> None:
    assert_stays("EliminateIdentity", "g (float[2] x) => (float[2] y) { y = Identity(x) }")


def test_identity_stays_when_two_outputs_share_a_value() -> None:
    model = model_of("g (float[2] x) => (float[2] y, float[2] z) { y = Relu(x)  z = Identity(y) }")
    run_pass("EliminateIdentity", model)
    assert op_types(model) == ["Relu", "Identity"]


@pytest.mark.parametrize("expression", ["Add(x, c)", "Add(c, x)", "Sub(x, c)", "Mul(x, d)", "Mul(d, x)", "Div(x, d)"])
def test_neutral_arithmetic_is_removed(expression: str) -> None:
    assert_fires(
        "NoopElimination",
        f"g (float[2,3] x) => (float[2,3] y) <float c = {{0.0}}, float[1,3] d = {{1.0, 1.0, 1.0}}>"
        f" {{ r = Relu(x)  t = {expression.replace('x', 'r')}  y = Neg(t) }}",
        ["Relu", "Neg"],
    )


@pytest.mark.parametrize(
    "expression", ["Sub(c, r)", "Div(d, r)", "Add(r, d)", "Mul(r, c)", "Add(r, wide)", "Mul(r, d2)"]
)
def test_arithmetic_that_does_something_assert_stays(expression: str) -> None:
    assert_stays(
        "NoopElimination",
        "g (float[1,3] x) => (float[] y) <float c = {0.0}, float d = {1.0}, float[2,1] wide = {0.0, 0.0},"
        f" float[1,1,1] d2 = {{1.0}}> {{ r = Relu(x)  t = {expression}  y = Neg(t) }}",
    )


def test_neutral_arithmetic_stays_when_the_caller_may_override_the_constant() -> None:
    assert_stays(
        "NoopElimination", "g (float[2] x, float c = {0.0}) => (float[2] y) { r = Relu(x)  t = Add(r, c)  y = Neg(t) }"
    )


EMPTY = "int64[1] end = {4}, int64[1] far = {99}, int64[1] last = {-1}, float[2,0] none = {}"


@pytest.mark.parametrize(
    ("concatenation", "left"),
    [
        ("e = Slice(r, end, far, last)  t = Concat<axis = -1>(r, e)", ["Relu", "Neg"]),
        ("e = Slice(r, end, far, last)  t = Concat<axis = 1>(e, r, e)", ["Relu", "Neg"]),
        ("t = Concat<axis = 1>(r, none, r)", ["Relu", "Concat", "Neg"]),
    ],
)
def test_empty_parts_of_a_concat_are_removed(concatenation: str, left: list[str]) -> None:
    model = model_of(f"g (float[2,4] x) => (float[2,N] y) <{EMPTY}> {{ r = Relu(x)  {concatenation}  y = Neg(t) }}")
    run_pass("EmptyPartElimination", model)
    run_pass("DeadCodeElimination", model)
    assert op_types(model) == left


@pytest.mark.parametrize(
    "graph",
    [
        "g (float[2,4] x, float[2,N] z) => (float[2,M] y) { r = Relu(x)  t = Concat<axis = 1>(r, z)  y = Neg(t) }",
        "g (float[N,4] x, float[M,0] z) => (float[N,4] y) { r = Relu(x)  t = Concat<axis = 1>(r, z)  y = Neg(t) }",
        "g (float[2,0] x, float[2,0] z) => (float[2,0] y) { r = Relu(x)  t = Concat<axis = 1>(r, z)  y = Neg(t) }",
        "g (float[0,4] x, float[0,2] z) => (float[0,6] y) { r = Relu(x)  t = Concat<axis = 1>(r, z)  y = Neg(t) }",
    ],
)
def test_parts_that_may_have_elements_or_misfit_stay(graph: str) -> None:
    assert_stays("EmptyPartElimination", graph)


def test_relu_is_folded_into_clip() -> None:
    assert_fires(
        "FuseReluClip",
        "g (float[4] x) => (float[4] y) <float low = {-1.0}, float high = {6.0}>"
        " { r = Relu(x)  y = Clip(r, low, high) }",
        ["Clip"],
    )
    assert_fires(
        "FuseReluClip", "g (float[4] x) => (float[4] y) { r = Relu(x)  y = Clip<min=-1.0, max=0.5>(r) }", ["Clip"], 10
    )


def test_relu_stays_when_it_is_read_elsewhere_or_the_bound_is_not_constant() -> None:
    assert_stays("FuseReluClip", "g (float[4] x) => (float[4] y, float[4] r) { r = Relu(x)  y = Clip(r) }")
    assert_stays("FuseReluClip", "g (float[4] x, float low) => (float[4] y) { r = Relu(x)  y = Clip(r, low) }")


def test_dead_nodes_and_initializers_are_removed() -> None:
    model = model_of(
        "g (float[2] x) => (float[2] y) <float[2] w = {1.0, 2.0}> { d = Add(x, w)  e = Neg(d)  y = Relu(x) }"
    )
    run_pass("DeadCodeElimination", model)
    assert op_types(model) == ["Relu"]
    assert not model.graph.initializers


def test_cast_to_its_own_type_is_removed() -> None:
    assert_fires("CastElimination", "g (float[2] x) => (float[2] y) { c = Cast<to=1>(x)  y = Neg(c) }", ["Neg"])


def test_cast_behind_a_lossless_cast_reads_its_input() -> None:
    assert_fires(
        "CastElimination", "g (float[2] x) => (float16[2] y) { c = Cast<to=11>(x)  y = Cast<to=10>(c) }", ["Cast"]
    )


def test_cast_behind_a_lossy_cast_stays() -> None:
    assert_stays(
        "CastElimination", "g (float[2] x) => (float[2] y) { c = Cast<to=10>(x)  d = Cast<to=1>(c)  y = Neg(d) }"
    )


def test_lossy_casts_there_and_back_are_removed_only_by_the_opt_in_pass() -> None:
    body = "g (float[2] x) => (float[2] y) { c = Cast<to=10>(x)  d = Cast<to=1>(c)  y = Neg(d) }"
    assert_fires("CastChainElimination", body, ["Neg"], tolerance=(1e-3, 1e-3))


@pytest.mark.parametrize("dropout", ["Dropout(x)", "Dropout(x, r)", "Dropout(x, r, off)"])
def test_dropout_at_inference_is_removed(dropout: str) -> None:
    body = f"g (float[2] x) => (float[2] y) <float r = {{0.5}}, bool off = {{0}}> {{ d = {dropout}  y = Neg(d) }}"
    assert_fires("EliminateDropout", body, ["Neg"])


def test_dropout_stays_when_the_mode_is_an_input_or_the_mask_is_read() -> None:
    assert_stays(
        "EliminateDropout",
        "g (float[2] x, bool mode) => (float[2] y) <float r = {0.0}> { d = Dropout(x, r, mode)  y = Neg(d) }",
        feeds={"mode": np.array(False)},
    )
    assert_stays("EliminateDropout", "g (float[2] x) => (float[2] y, bool[2] m) { d, m = Dropout(x)  y = Neg(d) }")


_SLICE = (
    "g (float[2,N] x) => (float[] y) <int64[2] start = {0, 0}, int64[2] end = {2, 9223372036854775807},"
    " int64[2] axes = {0, 1}, int64[2] one = {1, 1}, int64[2] other = {0, 1}, int64[2] two = {1, 2},"
    " int64[2] short = {1, 9223372036854775807}> { s = Slice(x, %s)  y = Neg(s) }"
)


def test_slice_of_everything_is_removed() -> None:
    model = assert_fires("EliminateSlice", _SLICE % "start, end, axes, one", ["Neg"])
    assert model.graph.outputs[0].name == "y"


@pytest.mark.parametrize("bounds", ["other, end, axes", "start, end, axes, two", "start, short, axes"])
def test_slice_of_a_part_stays(bounds: str) -> None:
    assert_stays("EliminateSlice", _SLICE % bounds)


def test_expand_to_the_shape_that_is_there_is_removed() -> None:
    assert_fires(
        "ExpandElimination",
        "g (float[2,N] x) => (float[2,N] y) { s = Shape(x)  e = Expand(x, s)  y = Neg(e) }",
        ["Neg"],
    )
    assert_stays(
        "ExpandElimination",
        "g (float[2,1] x) => (float[2,3] y) <int64[2] s = {2, 3}> { e = Expand(x, s)  y = Neg(e) }",
    )


def test_unsqueeze_of_a_constant_becomes_a_constant() -> None:
    model = assert_fires(
        "UnsqueezeElimination",
        "g (float[2] x) => (float[2,1,2] y) <float[2] c = {1.0, 2.0}, int64[2] a = {0, -1}>"
        " { u = Unsqueeze(c, a)  y = Add(u, x) }",
        ["Add"],
    )
    assert [value.shape for value in model.graph.initializers] == [(1, 2, 1)]
    assert_fires(
        "UnsqueezeElimination",
        "g (float[2] x) => (float[2,2] y) <float[2] c = {1.0, 2.0}> { u = Unsqueeze<axes=[1]>(c)  y = Add(u, x) }",
        ["Add"],
        11,
    )


def test_shape_reads_the_input_of_a_cast() -> None:
    assert_fires(
        "PreShapeNodeElimination", "g (float[N,3] x) => (int64[2] y) { c = Cast<to=7>(x)  y = Shape(c) }", ["Shape"]
    )


def test_reshape_to_the_same_shape_is_removed_and_chains_merge() -> None:
    assert_fires(
        "ReshapeElimination",
        "g (float[2,3] x) => (float[2,3] y) <int64[2] s = {2, 3}> { r = Reshape(x, s)  y = Neg(r) }",
        ["Neg"],
    )
    assert_fires(
        "ReshapeElimination",
        "g (float[N,6] x) => (float[] y) <int64[2] s = {-1, 3}, int64[1] t = {-1}>"
        " { f = Flatten(x)  r = Reshape(f, s)  q = Reshape(r, t)  y = Neg(q) }",
        ["Reshape", "Neg"],
    )
    assert_fires(
        "ReshapeElimination",
        "g (float[N,6] x) => (float[N,6] y) <int64[1] a = {1}> { u = Unsqueeze(x, a)  s = Squeeze(u, a)  y = Neg(s) }",
        ["Neg"],
    )


def test_reshape_that_copies_a_size_of_the_value_between_stays() -> None:
    model = model_of(
        "g (float[4,6] x) => (float[8,3] y) <int64[3] s = {8, 3, 1}, int64[2] t = {0, -1}>"
        " { r = Reshape(x, s)  y = Reshape(r, t) }"
    )
    run_pass("ReshapeElimination", model)
    assert op_types(model) == ["Reshape", "Reshape"]


def test_requantizing_with_equal_parameters_is_removed() -> None:
    body = (
        "g (uint8[4] x) => (float[4] y) <float s = {0.5}, uint8 z = {3}, float s2 = {%s}, uint8 z2 = {3}>"
        " { d = DequantizeLinear(x, s, z)  q = QuantizeLinear(d, s2, z2)  y = DequantizeLinear(q, s2, z2) }"
    )
    assert_fires("DoubleQDQPairsRemover", body % "0.5", ["DequantizeLinear"])
    assert_stays("DoubleQDQPairsRemover", body % "0.25")


@pytest.mark.parametrize(
    ("floats", "integers", "scale", "is_removed"),
    [
        (np.float16, np.uint8, 0.5, True),
        (np.float16, np.int16, 0.5, False),
        (np.float16, np.uint8, 1000.0, False),
        (ml_dtypes.bfloat16, np.uint8, 0.5, False),
        (np.float32, np.int16, 0.5, True),
        (np.float32, np.int16, 1e38, False),
    ],
)
def test_requantizing_stays_where_the_floats_between_round_the_integers(
    floats: type, integers: type, scale: float, is_removed: bool
) -> None:
    constants = [
        numpy_helper.from_array(np.array(scale).astype(floats), "s"),
        numpy_helper.from_array(np.array(3, integers), "z"),
    ]
    kinds = [helper.np_dtype_to_tensor_dtype(np.dtype(each)) for each in (integers, floats)]
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["d"]),
        helper.make_node("QuantizeLinear", ["d", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"]),
    ]
    values = [helper.make_tensor_value_info(name, kind, [4]) for name, kind in zip("xy", kinds, strict=True)]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], constants)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    model = model_from_proto(onnx.shape_inference.infer_shapes(proto))
    run_pipeline([named("DoubleQDQPairsRemover"), named("DeadCodeElimination")], context_of(model), verify=True)
    assert (op_types(model) == ["DequantizeLinear"]) is is_removed


def test_repeated_nodes_are_computed_once() -> None:
    assert_fires(
        "CommonSubexpressionElimination",
        "g (float[2] x) => (float[2] y) <float a = {2.0}, float b = {2.0}>"
        " { p = Mul(x, a)  q = Mul(x, b)  e = Exp(p)  f = Exp(q)  y = Add(e, f) }",
        ["Mul", "Exp", "Add"],
    )


def test_nodes_that_differ_or_draw_random_numbers_stay() -> None:
    assert_stays(
        "CommonSubexpressionElimination",
        "g (float[2] x) => (float[2] y) { p = Elu<alpha=1.0>(x)  q = Elu<alpha=2.0>(x)  y = Add(p, q) }",
    )
    model = model_of("g (float[2] x) => (float[2] y, float[2] z) { y = RandomNormalLike(x)  z = RandomNormalLike(x) }")
    report = run_pipeline([named("CommonSubexpressionElimination")], context_of(model), verify=True)
    assert not report.num_rewrites


def test_repeated_outputs_of_the_graph_both_stay() -> None:
    body = "g (float[2] x) => (float[2] y, float[2] z) { y = Exp(x)  z = Exp(x) }"
    assert_stays("CommonSubexpressionElimination", body)


def test_equal_small_constants_become_one() -> None:
    model = model_of(
        "g (float[2] x) => (float[2] y) <float a = {2.0}, float b = {2.0}, int64[1] c = {2}>"
        " { p = Mul(x, a)  y = Add(p, b) }"
    )
    run_pass("ConstantSharing", model)
    assert [value.name for value in model.graph.initializers] == ["a"]
