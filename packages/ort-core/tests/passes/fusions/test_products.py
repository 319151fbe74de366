"""Matrix products and convolutions take in scales, transpositions, activations, residuals and biases."""

from __future__ import annotations

import numpy as np
import pytest
from fusion_check import fires, stays

HEAD = "g (float[2,3,4] a, float[2,4,5] b) => (float[2,3,5] y) <float k = {0.25}, float z = {0.0}, float[5] v = \
{1,2,3,4,5}>"


@pytest.mark.parametrize(
    ("body", "alpha"),
    [
        ("m = MatMul(a, b) y = Mul(m, k)", 0.25),
        ("m = MatMul(a, b) y = Div(m, k)", 4.0),
        ("s = Mul(k, a) y = MatMul(s, b)", 0.25),
        ("s = Mul(a, k) t = Div(b, k) y = MatMul(s, t)", 1.0),
    ],
)
def test_factors_become_alpha(body: str, alpha: float) -> None:
    model = fires("MatMulScaleFusion", f"{HEAD} {{ {body} }}", ["FusedMatMul"])
    assert model.graph.nodes[0].float_attribute("alpha", 0.0) == pytest.approx(alpha)


@pytest.mark.parametrize(
    "body",
    [
        "m = MatMul(a, b) y = Mul(m, v)",
        "m = MatMul(a, b) y = Div(m, z)",
        "m = MatMul(a, b) s = Mul(m, k) y = Add(s, m)",
    ],
    ids=["vector", "division_by_zero", "product_read_twice"],
)
def test_other_factors_stay(body: str) -> None:
    stays("MatMulScaleFusion", f"{HEAD} {{ {body} }}")


def test_scaled_operand_of_two_products_is_taken_in_by_both() -> None:
    head = HEAD.replace("(float[2,3,5] y)", "(float[2,3,5] y, float[2,3,5] u)")
    body = "s = Mul(k, a) y = MatMul(s, b) n = Neg(b) u = MatMul(s, n)"
    fires("MatMulScaleFusion", f"{head} {{ {body} }}", ["FusedMatMul", "Neg", "FusedMatMul"])


def test_transposed_operands_become_attributes() -> None:
    head = "g (float[2,4,3] a, float[2,5,4] b) => (float[2,3,5] y)"
    body = "s = Transpose <perm = [0,2,1]> (a) t = Transpose <perm = [0,2,1]> (b) y = MatMul(s, t)"
    model = fires("MatmulTransposeFusion", f"{head} {{ {body} }}", ["FusedMatMul"])
    assert [model.graph.nodes[0].int_attribute(name, 0) for name in ("transA", "transB")] == [1, 1]


def test_transposition_with_other_readers_stays_beside_the_fused_product() -> None:
    head = "g (float[2,4,3] a, float[2,4,5] b) => (float[2,3,5] y, float[2,3,4] u)"
    body = "s = Transpose <perm = [0,2,1]> (a) y = MatMul(s, b) u = Neg(s)"
    fires("MatmulTransposeFusion", f"{head} {{ {body} }}", ["Transpose", "FusedMatMul", "Neg"])


def test_transposition_of_other_axes_stays() -> None:
    head = "g (float[3,2,4] a, float[2,4,5] b) => (float[2,3,5] y)"
    stays("MatmulTransposeFusion", f"{head} {{ s = Transpose <perm = [1,0,2]> (a) y = MatMul(s, b) }}")


def test_scale_and_transposition_meet_in_one_product() -> None:
    head = "g (float[2,3,4] a, float[2,5,4] b) => (float[2,3,5] y) <float k = {0.25}>"
    body = "t = Transpose <perm = [0,2,1]> (b) m = MatMul(a, t) y = Mul(m, k)"
    fires(["MatmulTransposeFusion", "MatMulScaleFusion"], f"{head} {{ {body} }}", ["FusedMatMul"])


GEMM = "g (float[3,4] a, float[4,5] b) => (float[3,5] y) <float[5] c = {1,2,3,4,5}>"


@pytest.mark.parametrize(
    "activation",
    [
        "Relu",
        "Sigmoid",
        "Tanh",
        "LeakyRelu <alpha = 0.2>",
        "Elu",
        "HardSigmoid",
        "Softplus",
        "Softsign",
        "ThresholdedRelu",
    ],
)
def test_activation_behind_gemm_is_fused(activation: str) -> None:
    fires("GemmActivationFusion", f"{GEMM} {{ g1 = Gemm <transB = 0> (a, b, c) y = {activation} (g1) }}", ["FusedGemm"])


def test_activation_stays_when_the_gemm_is_read_twice() -> None:
    stays("GemmActivationFusion", f"{GEMM} {{ g1 = Gemm(a, b, c) r = Relu(g1) y = Add(r, g1) }}")


CONV = "g (float[1,2,5,5] x, float[3,2,3,3] w) => (float[1,3,3,3] y) <float lo = {0.0}, float hi = {6.0}, \
float[3] c = {1,2,3}>"


@pytest.mark.parametrize(
    "activation",
    [
        "Relu(k)",
        "Sigmoid(k)",
        "Tanh(k)",
        "LeakyRelu <alpha = 0.2> (k)",
        "HardSigmoid(k)",
        "Clip(k, lo, hi)",
        "Clip(k, lo)",
    ],
)
def test_activation_behind_convolution_is_fused(activation: str) -> None:
    fires("ConvActivationFusion", f"{CONV} {{ k = Conv(x, w, c) y = {activation} }}", ["FusedConv"])


def test_clip_with_bounds_of_the_caller_stays() -> None:
    head = CONV.replace("float[3,2,3,3] w)", "float[3,2,3,3] w, float hi)").replace(", float hi = {6.0}", "")
    stays("ConvActivationFusion", f"{head} {{ k = Conv(x, w) y = Clip(k, lo, hi) }}", because="not a constant")


def test_residual_and_relu_behind_convolution_are_fused() -> None:
    head = CONV.replace("float[3,2,3,3] w)", "float[3,2,3,3] w, float[1,3,3,3] r)")
    model = fires("ConvAddActivationFusion", f"{head} {{ k = Conv(x, w) s = Add(r, k) y = Relu(s) }}", ["FusedConv"])
    assert len(model.graph.nodes[0].inputs) == 4


def test_residual_without_relu_is_fused_too() -> None:
    head = CONV.replace("float[3,2,3,3] w)", "float[3,2,3,3] w, float[1,3,3,3] r)")
    fires("ConvAddActivationFusion", f"{head} {{ k = Conv(x, w, c) y = Add(k, r) }}", ["FusedConv"])


def test_addend_that_broadcasts_stays_outside_of_the_convolution() -> None:
    head = CONV.replace("float[3,2,3,3] w)", "float[3,2,3,3] w, float[1,3,1,1] r)")
    stays("ConvAddActivationFusion", f"{head} {{ k = Conv(x, w) y = Add(k, r) }}", because="shape of the convolution")


INTEGER = (
    "g (float[3,4] x) => (float[3,5] y) <uint8[4,5] w = {"
    + ",".join(map(str, range(20)))
    + "}, float s = {0.02}, \
uint8 wz = {7}, float[5] b = {1,2,3,4,5}, float[5] ss = {0.1,0.2,0.3,0.4,0.5}>"
)
QUANTIZED = "q, qs, qz = DynamicQuantizeLinear(x) m = MatMulInteger(q, w, qz, wz) f = Cast <to = 1> (m)"


@pytest.mark.parametrize("scale", ["s", "ss"])
def test_integer_product_becomes_float_product_and_then_takes_in_the_quantization(scale: str) -> None:
    body = f"{QUANTIZED} p = Mul(qs, {scale}) r = Mul(f, p) y = Add(r, b)"
    fires("MatMulIntegerToFloatFusion", f"{INTEGER} {{ {body} }}", ["DynamicQuantizeLinear", "MatMulIntegerToFloat"])
    names = ["MatMulIntegerToFloatFusion", "DynamicQuantizeMatMulFusion"]
    fires(names, f"{INTEGER} {{ {body} }}", ["DynamicQuantizeMatMul"])


def test_quantization_that_two_products_share_stays() -> None:
    head = INTEGER.replace("(float[3,5] y)", "(float[3,5] y, uint8[3,4] q)")
    body = f"{QUANTIZED} p = Mul(qs, s) y = Mul(f, p)"
    stays(["MatMulIntegerToFloatFusion", "DynamicQuantizeMatMulFusion"], f"{head} {{ {body} }}")


def test_bias_behind_block_quantized_product_becomes_its_input() -> None:
    weights = ",".join(str(int(n)) for n in np.random.default_rng(0).integers(0, 255, 4 * 16))
    head = f"g (float[2,32] x) => (float[2,4] y) <uint8[4,1,16] w = {{{weights}}}, float[4] s = {{0.1,0.2,0.3,0.4}}, \
float[4] b = {{1,2,3,4}}>"
    body = "m = com.microsoft.MatMulNBits <K = 32, N = 4, bits = 4, block_size = 32> (x, w, s) y = Add(m, b)"
    fires("MatMulNBitsFusion", f"{head} {{ {body} }}", ["MatMulNBits"])
