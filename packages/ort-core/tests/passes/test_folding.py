"""Folding: constants and shapes that are known before the run, and what must never be folded."""

from __future__ import annotations

import numpy as np
import pytest
from pass_check import assert_fires, assert_stays, context_of, model_of, named, op_types, run_pass

from ort_core.onnx_io.text import parse_model
from ort_core.passes.base import Level, PassLimits
from ort_core.passes.pipelines import pipeline_for
from ort_core.passes.runner import run_pipeline


def test_chain_of_constants_is_folded_in_one_sweep() -> None:
    model = assert_fires(
        "ConstantFolding",
        "g (float[2,2] x) => (float[2,2] y) <float[2,2] w = {1.0, 2.0, 3.0, 4.0}>"
        " { t = Transpose<perm=[1,0]>(w)  n = Neg(t)  y = MatMul(x, n) }",
        ["MatMul"],
    )
    (folded,) = model.graph.initializers
    assert folded.constant is not None
    np.testing.assert_array_equal(folded.constant.array(), [[-1, -3], [-2, -4]])


def test_folded_output_of_the_graph_keeps_its_name() -> None:
    model = model_of("g (float[2] x) => (float[2] y, float[2] z) <float[2] c = {1.0, 2.0}> { y = Neg(c)  z = Neg(x) }")
    run_pass("ConstantFolding", model)
    assert [value.name for value in model.graph.outputs] == ["y", "z"]
    assert op_types(model) == ["Neg"]


def test_dequantized_weights_stay_quantized() -> None:
    assert_stays(
        "ConstantFolding",
        "g (float[2] x) => (float[2] y) <int8[2] w = {1, 2}, float s = {0.5}>"
        " { d = DequantizeLinear(w, s)  y = Add(x, d) }",
    )


def test_random_and_overridable_values_stay() -> None:
    model = model_of("g () => (float[2] y) <float[2] c = {1.0, 2.0}> { y = RandomNormalLike(c) }")
    report = run_pipeline([named("ConstantFolding")], context_of(model), verify=True)
    assert not report.num_rewrites
    assert "deterministic" in report.reports[0].rejections[0].reason
    assert_stays(
        "ConstantFolding", "g (float[2] x, float[2] c = {1.0, 2.0}) => (float[2] y) { n = Neg(c)  y = Add(x, n) }"
    )


def test_result_above_the_limit_is_not_made() -> None:
    body = (
        "g (float[1] x) => (float[] y) <float c = {1.0}, int64[2] s = {1100, 1000}> { e = Expand(c, s)  y = Add(x, e) }"
    )
    assert_stays("ConstantFolding", body)
    assert_fires("ConstantFolding", body, ["Add"], limits=PassLimits(max_fold_growth_nbytes=1 << 23))


def test_if_with_a_constant_condition_becomes_its_branch() -> None:
    body = (
        "g (float[2] x) => (float[2] y) <bool c = {%d}> { a = Relu(x)"
        " y = If(c)<then_branch = t () => (float[2] p) { p = Neg(a) },"
        " else_branch = e () => (float[2] q) { r = Exp(a)  q = Exp(r) }> }"
    )
    assert_fires("ConstantFolding", body % 1, ["Relu", "Neg", "Identity"])
    model = assert_fires("ConstantFolding", body % 0, ["Relu", "Exp", "Exp", "Identity"])
    assert model.graph.outputs[0].name == "y"


def test_branches_that_are_left_out_read_nothing() -> None:
    """Those of the branch that is not taken are decided, too; what is made for them would look as if it were read."""
    body = (
        "g (float[2] x) => (float[2] y) <bool no = {0}> { a = Relu(x)"
        " y = If(no)<then_branch = t () => (float[2] p) <bool yes = {1}> {"
        " p = If(yes)<then_branch = u () => (float[2] r) { r = Neg(a) }, else_branch = v () => (float[2] s) {"
        " s = Exp(a) }> }, else_branch = e () => (float[2] q) { q = Abs(x) }> }"
    )
    model = assert_fires("ConstantFolding", body, ["Abs", "Identity"])
    (x,) = model.graph.inputs
    assert [reader.op_type for reader, _ in x._uses] == ["Abs"]


def test_if_that_depends_on_an_input_stays() -> None:
    assert_stays(
        "ConstantFolding",
        "g (float[2] x, bool c) => (float[2] y) {"
        " y = If(c)<then_branch = t () => (float[2] p) { p = Neg(x) }, else_branch = e () => (float[2] q) {"
        " q = Exp(x) }>"
        " }",
    )


def test_shapes_that_are_known_become_constants() -> None:
    assert_fires(
        "ShapeFolding",
        "g (float[N,3] x) => (int64 y) <int64 one = {1}, int64 four = {4}>"
        " { s = Shape(x)  d = Gather(s, one)  m = Mul(d, four)  y = Neg(m) }",
        [],
        sizes={"N": 5},
    )
    assert_fires("ShapeFolding", "g (float[2,3] x) => (int64 y) { s = Size(x)  y = Neg(s) }", [])
    assert_fires("ShapeFolding", "g (float[N,3] x) => (int64[1] y) { s = Shape<start=1>(x)  y = Neg(s) }", [])


def test_shapes_that_only_the_run_knows_stay() -> None:
    assert_stays(
        "ShapeFolding",
        "g (float[N,3] x) => (int64 y) <int64 zero = {0}> { s = Shape(x)  d = Gather(s, zero)  y = Neg(d) }",
    )


_HEADS = (
    "g (float[B,S,12] x) => (float[] y) <int64 zero = {0}, int64 one = {1}, int64[1] axis = {0},"
    " int64[1] heads = {3}, int64[1] width = {4}> {"
    " s = Shape(x)  b0 = Gather(s, zero)  s0 = Gather(s, one)  b = Unsqueeze(b0, axis)  t = Unsqueeze(s0, axis)"
    " shape = Concat<axis=0>(%s)  y = Reshape%s(x, shape) }"
)


@pytest.mark.parametrize(
    ("parts", "expected"),
    [("b, t, heads, width", [0, 0, 3, 4]), ("t, b, heads, width", None), ("b, width, heads, t", None)],
)
def test_reshape_copies_sizes_where_they_are_at_the_same_axis(parts: str, expected: list[int] | None) -> None:
    model = model_of(_HEADS % (parts, ""))
    report = run_pass("ReshapeFusion", model, sizes={"B": 2, "S": 5})
    assert bool(report.counts().get("ReshapeFusion")) == (expected is not None)
    if expected is not None:
        shape = next(node for node in model.graph if node.op_type == "Reshape").inputs[1]
        assert shape is not None
        assert shape.constant is not None
        assert shape.constant.array().tolist() == expected


def test_reshape_with_allowzero_gives_up_the_flag_when_sizes_are_copied() -> None:
    assert_fires("ReshapeFusion", _HEADS % ("b, t, heads, width", "<allowzero=1>"), ["Reshape"], sizes={"B": 2, "S": 5})


def test_one_open_size_becomes_minus_one() -> None:
    model = assert_fires(
        "ReshapeFusion",
        "g (float[N,6] x) => (float[] y) <int64 zero = {0}, int64[1] axis = {0}, int64[1] two = {2},"
        " int64[1] three = {3}>"
        " { s = Shape(x)  n = Gather(s, zero)  u = Unsqueeze(n, axis)  m = Mul(u, two)"
        " shape = Concat<axis=0>(m, three)  y = Reshape(x, shape) }",
        ["Reshape"],
        sizes={"N": 3},
    )
    shape = model.graph.nodes[0].inputs[1]
    assert shape is not None
    assert shape.constant is not None
    assert shape.constant.array().tolist() == [-1, 3]


def test_free_dimensions_get_their_sizes_everywhere() -> None:
    model = model_of("g (float[N,3] x) => (float[N,3] y) { r = Relu(x)  y = Neg(r) }")
    run_pass("FreeDimensionOverrideTransformer", model, free_dimensions={"N": 2})
    values = [*model.graph.inputs, *(node.output for node in model.graph)]
    assert [value.shape for value in values] == [(2, 3)] * 3


def test_free_dimensions_without_the_name_change_nothing() -> None:
    assert_stays(
        "FreeDimensionOverrideTransformer",
        "g (float[N,3] x) => (float[N,3] y) { y = Neg(x) }",
        free_dimensions={"M": 2},
    )


def test_dropout_in_training_mode_is_neither_folded_nor_merged() -> None:
    body = (
        "g (float[2] x) => (float[2] y) <float[2] c = {1.0, 2.0}, float r = {0.5}, bool on = {1}>"
        " { a = Dropout(c, r, on)  b = Dropout(c, r, on)  s = Add(a, b)  y = Add(s, x) }"
    )
    passes = [named("ConstantFolding"), named("CommonSubexpressionElimination")]
    report = run_pipeline(passes, context_of(model_of(body)), verify=True)
    assert not report.num_rewrites


@pytest.mark.parametrize(
    "nodes",
    [
        "t = Transpose<perm=[0,2]>(x)  u = Transpose<perm=[1,0]>(t)  y = Relu(u)",
        "t = Transpose()  y = Relu(t)",
        "t = Pad(x, short)  y = MaxPool(t)",
        "t = Unsqueeze(w, far)  y = Add(t, x)",
        "t = Slice(x, short)  y = Relu(t)",
        "t = Expand(x)  y = Relu(t)",
        "t = Conv<group=5>(x, k)  y = Add(t, w)",
        "t = Gemm(x)  y = Transpose(t)",
        "t = Concat(x, x)  y = Relu(t)",
        "t = ReduceSum<axes=[9]>(x)  y = Relu(t)",
        "t = Cast(x)  y = Cast<to=99>(t)",
    ],
)
def test_nodes_that_break_their_operators_rules_are_left_to_whoever_runs_them(nodes: str) -> None:
    text = (
        '<ir_version: 8, opset_import: ["" : 17]>'
        " g (float[2,3] x) => (float[] y) <int64[1] short = {1}, int64[2] far = {0, 9}, float[2] w = {1.0, 2.0},"
        f" float[3,1,1] k = {{1.0, 2.0, 3.0}}> {{ {nodes} }}"
    )
    model = parse_model(text)
    run_pipeline(pipeline_for(Level.BASIC), context_of(model), verify=True)
    assert model.graph.outputs[0].name == "y"
