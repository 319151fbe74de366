"""Fusions to standard operators: convolution, Gemm, pads, arithmetic, encoders, SpaceToDepth."""

from __future__ import annotations

import numpy as np
import pytest
from pass_check import assert_fires, assert_stays, op_types

_LOOSE = (1e-4, 1e-5)  # relative, absolute: folded weights round once more than the chain did
_CONV = (
    "g (float[1,2,4,4] x) => (float[] y) <float[3,2,1,1] w = {1.0, -2.0, 0.5, 3.0, -1.0, 0.25}, float[3]"
    " b = {1.0, 2.0, 3.0},"
    " float[3] s = {0.5, 1.5, 2.0}, float[3] t = {1.0, -1.0, 0.0}, float[3] m = {0.1, 0.2, 0.3},"
    " float[3] v = {1.0, 2.0, 0.5}, float[3,1,1] c = {2.0, -3.0, 0.5}, float k = {2.0}, float[4] row ="
    " {1.0, 2.0, 3.0, 4.0},"
    " float[1,1,3,1,1] five = {1.0, 2.0, 3.0}> { %s }"
)


@pytest.mark.parametrize("conv", ["Conv(x, w)", "Conv(x, w, b)"])
def test_batch_normalization_goes_into_the_convolution(conv: str) -> None:
    body = _CONV % f"a = {conv}  y = BatchNormalization(a, s, t, m, v)"
    assert_fires("ConvBNFusion", body, ["Conv"], tolerance=_LOOSE)


def test_batch_normalization_goes_into_grouped_transposed_convolution() -> None:
    assert_fires(
        "ConvBNFusion",
        "g (float[1,2,3,3] x) => (float[] y) <float[2,2,1,1] w = {1.0, -2.0, 0.5, 3.0}, float[4] s = {0.5,"
        " 1.5, 2.0, -1.0},"
        " float[4] t = {1.0, -1.0, 0.0, 2.0}, float[4] m = {0.1, 0.2, 0.3, 0.4}, float[4] v = {1.0, 2.0, 0.5, 3.0}>"
        " { a = ConvTranspose<group=2>(x, w)  y = BatchNormalization(a, s, t, m, v) }",
        ["ConvTranspose"],
        tolerance=_LOOSE,
    )


def test_batch_normalization_stays_when_it_trains_or_the_convolution_is_read_elsewhere() -> None:
    assert_stays(
        "ConvBNFusion",
        _CONV % "a = Conv(x, w)  y, p, q = BatchNormalization<training_mode=1>(a, s, t, m, v)",
    )
    assert_stays("ConvBNFusion", _CONV % "a = Conv(x, w)  n = BatchNormalization(a, s, t, m, v)  y = Add(a, n)")


@pytest.mark.parametrize("operand", ["c", "k"])
@pytest.mark.parametrize(("name", "op"), [("ConvMulFusion", "Mul"), ("ConvAddFusion", "Add")])
@pytest.mark.parametrize("conv", ["Conv(x, w)", "Conv(x, w, b)"])
def test_channel_constants_go_into_the_convolution(name: str, op: str, conv: str, operand: str) -> None:
    assert_fires(name, _CONV % f"a = {conv}  y = {op}({operand}, a)", ["Conv"], tolerance=_LOOSE)


@pytest.mark.parametrize("operand", ["row", "five"])
@pytest.mark.parametrize(("name", "op"), [("ConvMulFusion", "Mul"), ("ConvAddFusion", "Add")])
def test_constants_along_other_axes_stay(name: str, op: str, operand: str) -> None:
    assert_stays(name, _CONV % f"a = Conv(x, w)  y = {op}(a, {operand})")


_GEMM = (
    "g (float[3,4] x, float[3,4,4] z, float[5] d) => (float[] y) <float[4,5] w = {{{}}}, float[5] b ="
    " {{1.0, 2.0, 3.0, 4.0, 5.0}},"
    " float[1,1,5] wide = {{1.0, 2.0, 3.0, 4.0, 5.0}}, float[5] v = {{1.0, 2.0, 0.5, 3.0, 0.25}}> {{ %s }}".format(
        ", ".join(str(i / 7 - 1) for i in range(20))
    )
)


@pytest.mark.parametrize("addition", ["Add(p, b)", "Add(d, p)"])
def test_matrix_product_and_addition_become_gemm(addition: str) -> None:
    assert_fires("MatMulAddFusion", _GEMM % f"p = MatMul(x, w)  y = {addition}", ["Gemm"], tolerance=_LOOSE)


@pytest.mark.parametrize(
    "nodes",
    [
        "p = MatMul(z, w)  y = Add(p, b)",
        "p = MatMul(x, w)  y = Add(p, wide)",
        "p = MatMul(x, w)  q = Add(p, b)  y = Mul(p, q)",
    ],
)
def test_products_of_more_dimensions_or_with_wide_addends_stay(nodes: str) -> None:
    assert_stays("MatMulAddFusion", _GEMM % nodes)


@pytest.mark.parametrize("addition", ["Sum(p, b)", "Add(b, p)"])
def test_addend_goes_into_gemm(addition: str) -> None:
    assert_fires(
        "GemmSumFusion", _GEMM % f"p = Gemm<alpha=2.0, beta=3.0>(x, w)  y = {addition}", ["Gemm"], tolerance=_LOOSE
    )


def test_gemm_that_adds_already_stays() -> None:
    assert_stays("GemmSumFusion", _GEMM % "p = Gemm(x, w, d)  y = Sum(p, b)")


def test_transposes_around_gemm_become_flags() -> None:
    assert_fires("GemmTransposeFusion", _GEMM % "t = Transpose(x)  y = Gemm<transA=1>(t, w, b)", ["Gemm"])
    assert_fires("GemmTransposeFusion", _GEMM % "t = Transpose<perm=[1,0]>(w)  y = Gemm<transB=1>(x, t, b)", ["Gemm"])
    model = assert_fires("GemmTransposeFusion", _GEMM % "p = Gemm<alpha=2.0>(x, w)  y = Transpose(p)", ["Gemm"])
    assert model.graph.nodes[0].int_attribute("transA", 0) == 1
    assert_stays("GemmTransposeFusion", _GEMM % "p = Gemm(x, w, b)  y = Transpose(p)")


@pytest.mark.parametrize("product", ["MatMul(x, w)", "Gemm<alpha=2.0, beta=3.0>(x, w, b)", "Gemm<transB=1>(x, t)"])
def test_batch_normalization_goes_into_the_matrix_product(product: str) -> None:
    body = _GEMM.replace(
        "float[4,5] w", "float[5,4] t = {{{}}}, float[4,5] w".format(", ".join(str(i / 3) for i in range(20)))
    )
    assert_fires(
        "MatMul_BatchNormalization_Fusion",
        body % f"p = {product}  y = BatchNormalization(p, b, v, b, v)",
        ["Gemm"],
        tolerance=_LOOSE,
    )


_PAD = (
    "g (float[1,1,4,4] x) => (float[] y) <int64[8] p = {0, 0, 1, 2, 0, 0, 0, 1}, int64[8] deep = {0, 1,"
    " 0, 0, 0, 0, 0, 0},"
    " float one = {1.0}, float low = {-inf}, float[1,1,3,3] w = {1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0}> { %s }"
).replace("{-inf}", "{-3.4028234663852886e+38}")


@pytest.mark.parametrize(
    ("op", "pad"),
    [
        ("Conv<pads=[1,0,0,1]>(a, w)", "Pad(x, p)"),
        ("MaxPool<kernel_shape=[3,3]>(a)", "Pad(x, p, low)"),
        ("AveragePool<kernel_shape=[3,3]>(a)", "Pad(x, p)"),
    ],
)
def test_padding_goes_into_what_reads_it(op: str, pad: str) -> None:
    assert_fires("Pad_Fusion", _PAD % f"a = {pad}  y = {op}", [op.split("<")[0]])


@pytest.mark.parametrize(
    ("op", "pad"),
    [
        ("Conv(a, w)", "Pad(x, p, one)"),
        ("Conv(a, w)", 'Pad<mode="reflect">(x, p)'),
        ("MaxPool<kernel_shape=[3,3]>(a)", "Pad(x, p)"),
        ("AveragePool<kernel_shape=[3,3], pads=[1,1,1,1]>(a)", "Pad(x, p)"),
        ("MaxPool<kernel_shape=[2,2]>(a)", "Pad(x, deep, low)"),
        ("AveragePool<kernel_shape=[2,2]>(a)", "Pad(x, p)"),
    ],
)
def test_padding_of_another_kind_stays(op: str, pad: str) -> None:
    assert_stays("Pad_Fusion", _PAD % f"a = {pad}  y = {op}")


def test_pads_that_are_attributes_fold_too() -> None:
    body = (
        "g (float[1,1,4,4] x) => (float[] y) <float[1,1,1,1] w = {2.0}>"
        " { a = Pad<pads=[0,0,1,1,0,0,1,1]>(x)  y = Conv(a, w) }"
    )
    assert_fires("Pad_Fusion", body, ["Conv"], 10)


def test_reciprocal_times_becomes_a_division() -> None:
    body = "g (%s[3] a, %s[3] b) => (%s[3] y) <%s one = {%s}> { r = Div(one, a)  y = Mul(r, b) }"
    assert_fires("DivMulFusion", body % ("float", "float", "float", "float", "1.0"), ["Div"])
    feeds = {"a": np.array([1, 2, 3], np.int64)}
    assert_stays("DivMulFusion", body % ("int64", "int64", "int64", "int64", "1"), feeds=feeds)


def test_where_of_a_negation_swaps_its_branches() -> None:
    assert_fires(
        "NotWhereFusion",
        "g (bool[3] c, float[3] a, float[3] b) => (float[3] y) { n = Not(c)  y = Where(n, a, b) }",
        ["Where"],
    )


def test_label_encoders_in_a_row_become_one() -> None:
    feeds = {"x": np.array(["a", "b", "c", "?"], object)}
    model = assert_fires(
        "LabelEncoderFusion",
        'g (string[4] x) => (int64[4] y) { m = ai.onnx.ml.LabelEncoder<keys_strings=["a","b","c"],'
        ' values_strings=["p","q","r"], default_string="q">(x)'
        ' y = ai.onnx.ml.LabelEncoder<keys_strings=["p","q"], values_int64s=[1,2], default_int64=-5>(m) }',
        ["LabelEncoder"],
        imports=', "ai.onnx.ml" : 3',
        feeds=feeds,
    )
    assert model.graph.nodes[0].attribute("values_int64s") == (1, 2, -5)


_FOCUS = (
    "g (float[1,2,4,4] x) => (float[1,8,2,2] y) <int64[2] o00 = {0, 0}, int64[2] o01 = {0, 1}, int64[2] o10 = {1, 0},"
    " int64[2] o11 = {1, 1}, int64[2] e = {9223372036854775807, 9223372036854775807}, int64[2] a = {2, 3},"
    " int64[2] s = {2, 2}, int64[1] h = {2}, int64[1] v = {3}, int64[1] z = {0}, int64[1] u = {1},"
    " int64[1] f = {9223372036854775807}>"
    " { %s }"
)


@pytest.mark.parametrize(
    ("order", "expected"), [("00 01 10 11", ["SpaceToDepth"]), ("00 10 01 11", ["SpaceToDepth", "Gather"])]
)
def test_strided_slices_side_by_side_become_space_to_depth(order: str, expected: list[str]) -> None:
    slices = "  ".join(f"p{i} = Slice(x, o{part}, e, a, s)" for i, part in enumerate(order.split()))
    assert_fires("SliceConcatToSpaceToDepthFusion", _FOCUS % f"{slices}  y = Concat<axis=1>(p0, p1, p2, p3)", expected)


def test_slices_one_behind_the_other_become_space_to_depth() -> None:
    rows = "r0 = Slice(x, z, f, h, h)  r1 = Slice(x, u, f, h, h)"
    parts = "  ".join(f"p{i}{j} = Slice(r{i}, {'zu'[j]}, f, v, h)" for i in (0, 1) for j in (0, 1))
    body = _FOCUS % f"{rows}  {parts}  y = Concat<axis=1>(p00, p01, p10, p11)"
    assert op_types(assert_fires("SliceConcatToSpaceToDepthFusion", body, ["SpaceToDepth"])) == ["SpaceToDepth"]


def test_slices_that_miss_a_part_stay() -> None:
    slices = "  ".join(f"p{i} = Slice(x, o{part}, e, a, s)" for i, part in enumerate(["00", "01", "01", "11"]))
    assert_stays("SliceConcatToSpaceToDepthFusion", _FOCUS % f"{slices}  y = Concat<axis=1>(p0, p1, p2, p3)")
