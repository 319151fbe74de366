"""TransposeOptimizer: fewer transpositions afterwards, never more, with equal results."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from pass_check import assert_fires, assert_stays, model_of, op_types, run_pass

from ort_core.ir.model import Model
from ort_core.passes.transposable import compose, inverse, is_identity

_TO = "t = Transpose<perm=[0,3,1,2]>(x)"  # of a channels-last image
_BACK = "Transpose<perm=[0,2,3,1]>"
_HEAD = (
    "g (float[2,3,4,5] x, float[2,3,4,5] w) => (float[] y) <float[5,1,1] c = {1.0, 2.0, 3.0, 4.0, 5.0},"
    " float k = {2.0},"
    " int64[8] p = {0, 1, 2, 0, 0, 0, 1, 3}, int64[1] a1 = {1}, int64[2] hw = {2, 3}, int64[1] ends = {2},"
    " int64[1] zero = {0}, float[5] s = {0.5, 0.25, 1.0, 2.0, 4.0}, int64[2] parts = {1, 2}> { %s }"
)


def num_transposes(model: Model) -> int:
    return op_types(model).count("Transpose")


@pytest.mark.parametrize("perm", list(itertools.permutations(range(3))))
def test_permutations_compose_and_invert_as_numpy_does(perm: tuple[int, ...]) -> None:
    array = np.arange(24).reshape(2, 3, 4)
    for other in itertools.permutations(range(3)):
        expected = array.transpose(perm).transpose(other)
        np.testing.assert_array_equal(array.transpose(compose(perm, other)), expected)
    assert is_identity(compose(perm, inverse(perm)))


def test_transposes_in_a_row_merge_or_cancel() -> None:
    assert_fires("TransposeOptimizer", _HEAD % f"{_TO}  u = {_BACK}(t)  y = Neg(u)", ["Neg"])
    assert_fires(
        "TransposeOptimizer", _HEAD % f"{_TO}  u = Transpose<perm=[1,0,2,3]>(t)  y = Neg(u)", ["Transpose", "Neg"]
    )
    assert_fires("TransposeOptimizer", _HEAD % "u = Transpose<perm=[0,1,2,3]>(x)  y = Neg(u)", ["Neg"])


@pytest.mark.parametrize(
    "nodes",
    [
        "u = Relu(t)",
        "u = Clip(t, k)",
        "u = Add(t, c)",
        "u = Mul(k, t)",
        "u = Div(t, t)",
        "u = Softmax<axis=1>(t)",
        "u = ReduceMean<axes=[1], keepdims=1>(t)",
        "u = ReduceSum(t, a1)",
        "u = Pad(t, p)",
        "u = Slice(t, zero, ends, a1)",
        "u, v = Split<axis=2>(t, parts)",
        "q = Transpose<perm=[0,3,1,2]>(w)  u = Concat<axis=1>(t, q)",
        "q = Transpose<perm=[0,3,1,2]>(w)  r = Sigmoid(q)  u = Mul(t, r)",
        "r = Sigmoid(t)  u = Mul(t, r)",
        "e = Cast<to=3>(t)  u = DequantizeLinear<axis=1>(e, s)",
    ],
)
def test_transpose_is_pushed_through_to_its_inverse(nodes: str) -> None:
    model = model_of(_HEAD % f"{_TO}  {nodes}  y = {_BACK}(u)")
    run_pass("TransposeOptimizer", model)
    assert num_transposes(model) == 0, op_types(model)


@pytest.mark.parametrize(
    "nodes",
    [
        "y = ReduceMean<axes=[2,3], keepdims=0>(t)",
        "u = ReduceMax<axes=[1], keepdims=0>(t)  y = Neg(u)",
        "u = ArgMax<axis=1, keepdims=0>(t)  y = Cast<to=1>(u)",
    ],
)
def test_reduction_that_drops_the_moved_axis_needs_no_transpose(nodes: str) -> None:
    assert num_transposes(assert_fires_any(_HEAD % f"{_TO}  {nodes}")) == 0


@pytest.mark.parametrize("opset", [11, 17])
def test_squeeze_without_axes_takes_those_of_size_one(opset: int) -> None:
    known = "g (float[1,4,1,5] x) => (float[] y) { t = Transpose<perm=[3,2,1,0]>(x)  s = Squeeze(t)  y = %s(s) }"
    assert_fires("TransposeOptimizer", known % "Transpose<perm=[1,0]>", ["Squeeze"], opset)
    assert_stays("TransposeOptimizer", known.replace("[1,4,1,5]", "[1,N,M,5]") % "Neg", opset, sizes={"N": 1, "M": 4})


@pytest.mark.parametrize("kind", ["Gelu", "QuickGelu"])
def test_transpose_is_pushed_through_activations_of_com_microsoft(kind: str) -> None:
    body = _HEAD % f"{_TO}  u = com.microsoft.{kind}(t)  y = {_BACK}(u)"
    assert_fires("TransposeOptimizer", body, [kind], imports=', "com.microsoft" : 1')


def assert_fires_any(body: str) -> Model:
    model = model_of(body)
    report = run_pass("TransposeOptimizer", model)
    assert "TransposeOptimizer" in report.counts()
    return model


def test_transpose_whose_result_is_needed_as_it_is_stays() -> None:
    assert_stays("TransposeOptimizer", _HEAD % f"{_TO}  y = Relu(t)")
    assert_stays("TransposeOptimizer", _HEAD % f"{_TO}  r = Relu(t)  f = Flatten(r)  y = Neg(f)")
    assert_stays(
        "TransposeOptimizer", _HEAD.replace("(float[] y)", "(float[] y, float[] r)") % f"{_TO}  r = Relu(t)  y = Exp(r)"
    )


def test_one_branch_that_needs_the_transposed_data_keeps_one_transpose() -> None:
    body = (
        _HEAD.replace("(float[] y)", "(float[] y, float[] z)") % f"{_TO}  r = Relu(t)  y = {_BACK}(r)  z = Flatten(r)"
    )
    model = model_of(body)
    run_pass("TransposeOptimizer", model)
    assert num_transposes(model) <= 1 + 1
    assert [value.name for value in model.graph.outputs] == ["y", "z"]


def test_channels_last_residual_network_loses_all_inner_transposes() -> None:
    body = (
        "g (float[1,4,4,2] x) => (float[1,4,4,2] y) <float[2,2,1,1] w = {1.0, 2.0, 3.0, 4.0}> {"
        " a = Transpose<perm=[0,3,1,2]>(x)  c1 = Conv(a, w)  b = Transpose<perm=[0,2,3,1]>(c1)  r1 = Relu(b)"
        " d = Transpose<perm=[0,3,1,2]>(r1)  c2 = Conv(d, w)  e = Transpose<perm=[0,2,3,1]>(c2)  s = Add(e, r1)"
        " f = Relu(s)  h = Transpose<perm=[0,3,1,2]>(f)  c3 = Conv(h, w)  y = Transpose<perm=[0,2,3,1]>(c3) }"
    )
    model = model_of(body)
    run_pass("TransposeOptimizer", model, tolerance=(1e-4, 1e-4))
    assert num_transposes(model) == 2, op_types(model)
    assert [op for op in op_types(model) if op != "Transpose"] == ["Conv", "Relu", "Conv", "Add", "Relu", "Conv"]


def test_value_read_inside_a_branch_is_given_back_as_it_was() -> None:
    body = (
        "g (float[2,3,4,5] x, bool c) => (float[] y, float[] z) { t = Transpose<perm=[0,3,1,2]>(x)  r = Relu(t)"
        " q = Transpose<perm=[0,2,3,1]>(r)  y = Neg(q)"
        " z = If(c)<then_branch = a () => (float[] p) { p = Neg(r) }, else_branch = b () => (float[] o) { o"
        " = Exp(r) }> }"
    )
    model = model_of(body)
    run_pass("TransposeOptimizer", model)
    assert num_transposes(model) <= 2
