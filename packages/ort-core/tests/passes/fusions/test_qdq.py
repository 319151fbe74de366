"""QDQ models: integer operators between dequantization and quantization, and the pairs that go away."""

from __future__ import annotations

import pytest
from fusion_check import fires, ops_of, stays

GRID = "float s = {0.05}, uint8 z = {128}, float t = {0.1}, uint8 u = {100}, float v = {0.02}, uint8 o = {0}"
STEP = 0.11  # one step of the output's grid and a little


def _model(body: str, inputs: str = "float[2,3,4,4] x", output: str = "float[2,3,4,4] y", more: str = "") -> str:
    return f"g ({inputs}) => ({output}) <{GRID}{more}> {{ {body} dq = DequantizeLinear(q, t, u) y = Identity(dq) }}"


def _pair(name: str, source: str, grid: str = "s, z") -> str:
    return f"q{name} = QuantizeLinear({source}, {grid}) d{name} = DequantizeLinear(q{name}, {grid})"


@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        ('AveragePool <kernel_shape = [2,2], auto_pad = "SAME_UPPER"> (da)', "QLinearAveragePool"),
        ("LeakyRelu <alpha = 0.1> (da)", "QLinearLeakyRelu"),
        ("Sigmoid(da)", "QLinearSigmoid"),
        ("Softmax(da)", "QLinearSoftmax"),
    ],
)
def test_operator_of_one_dequantized_input_becomes_its_integer_form(operator: str, expected: str) -> None:
    body = f"{_pair('a', 'x')} f = {operator} q = QuantizeLinear(f, t, u)"
    model = fires("QDQSelectorActionTransformer", _model(body), steps=STEP)
    assert ops_of(model) == ["QuantizeLinear", expected, "DequantizeLinear", "Identity"]


@pytest.mark.parametrize(
    ("operator", "expected"),
    [("Add(da, db)", "QLinearAdd"), ("Mul(da, db)", "QLinearMul"), ("Concat <axis = 0> (da, db)", "QLinearConcat")],
)
def test_operator_of_two_dequantized_inputs_becomes_its_integer_form(operator: str, expected: str) -> None:
    body = f"{_pair('a', 'x')} {_pair('b', 'w', 'v, z')} f = {operator} q = QuantizeLinear(f, t, u)"
    output = "float[4,3,4,4] y" if "Concat" in operator else "float[2,3,4,4] y"
    model = fires(
        "QDQSelectorActionTransformer", _model(body, "float[2,3,4,4] x, float[2,3,4,4] w", output), steps=STEP
    )
    assert expected in ops_of(model)


def test_choice_between_dequantized_inputs_becomes_where_of_integers() -> None:
    body = f"{_pair('a', 'x')} {_pair('b', 'w', 'v, z')} f = Where(c, da, db) q = QuantizeLinear(f, t, u)"
    inputs = "float[2,3,4,4] x, float[2,3,4,4] w, bool[2,3,4,4] c"
    assert "QLinearWhere" in ops_of(fires("QDQSelectorActionTransformer", _model(body, inputs), steps=STEP))


WEIGHTS = ", int8[2,3,1,1] w = {10,-20,30,40,50,-60}, float[2] ws = {0.01,0.02}, int8[2] wz = {0,0}, \
int32[2] b = {100,-200}, float[2] bs = {0.0005,0.001}, float[2] wrong = {0.5,0.5}, int32[2] bz = {0,0}"


@pytest.mark.parametrize("bias", ["", ", db"])
def test_convolution_with_scales_per_channel_becomes_qlinear_conv(bias: str) -> None:
    body = (
        f"{_pair('a', 'x')} dw = DequantizeLinear <axis = 0> (w, ws, wz) db = DequantizeLinear <axis = 0> (b, bs, bz) "
    )
    body += f"f = Conv(da, dw{bias}) q = QuantizeLinear(f, t, u)"
    model = fires("QDQSelectorActionTransformer", _model(body, output="float[2,2,4,4] y", more=WEIGHTS), steps=STEP)
    assert ops_of(model) == ["QuantizeLinear", "QLinearConv", "DequantizeLinear", "Identity"]


def test_convolution_stays_when_the_scale_of_the_bias_is_another() -> None:
    body = f"{_pair('a', 'x')} dw = DequantizeLinear <axis = 0> (w, ws, wz) db = DequantizeLinear <axis = 0> \
(b, wrong, bz) "
    body += "f = Conv(da, dw, db) q = QuantizeLinear(f, t, u)"
    text = _model(body, output="float[2,2,4,4] y", more=WEIGHTS)
    stays("QDQSelectorActionTransformer", text, because="scale of the bias")


MATRIX = ", uint8[4,3] m = {1,2,3,4,5,6,7,8,9,10,11,12}, float ms = {0.1}, uint8 mz = {3}, int32[3] c = \
{1,2,3}, float cs = {0.005}"


@pytest.mark.parametrize(("operator", "expected"), [("MatMul(da, dm)", "QLinearMatMul"), ("Gemm(da, dm, dc)", "QGemm")])
def test_matrix_product_becomes_its_integer_form(operator: str, expected: str) -> None:
    body = f"{_pair('a', 'x')} dm = DequantizeLinear(m, ms, mz) dc = DequantizeLinear(c, cs) f = {operator} "
    body += "q = QuantizeLinear(f, t, u)"
    model = fires("QDQSelectorActionTransformer", _model(body, "float[2,4] x", "float[2,3] y", MATRIX), steps=STEP)
    assert expected in ops_of(model)


def test_matrix_product_without_quantization_behind_stays_in_float() -> None:
    text = f"g (float[2,4] x) => (float[2,3] y) <{GRID}{MATRIX}> {{ {_pair('a', 'x')} \
dm = DequantizeLinear(m, ms, mz) y = MatMul(da, dm) }}"
    fires("QDQSelectorActionTransformer", text, ["QuantizeLinear", "MatMulIntegerToFloat"])


def test_argmax_reads_the_integers() -> None:
    text = f"g (float[2,4] x) => (int64[2,1] y) <{GRID}> {{ {_pair('a', 'x')} y = ArgMax <axis = 1> (da) }}"
    fires("QDQSelectorActionTransformer", text, ["QuantizeLinear", "ArgMax"])


@pytest.mark.parametrize(
    "operator", ["Transpose <perm = [0,2,1,3]> (da)", "MaxPool <kernel_shape = [1,1]> (da)", "Reshape(da, shape)"]
)
def test_operator_that_moves_values_works_on_integers_of_one_grid(operator: str) -> None:
    body = f"{_pair('a', 'x')} f = {operator} q = QuantizeLinear(f, s, z)"
    text = _model(body, "float[2,4,4,4] x", "float[2,4,4,4] y", ", int64[4] shape = {2,4,4,4}")
    model = fires("QDQSelectorActionTransformer", text)
    assert ops_of(model)[0] == "QuantizeLinear"
    assert ops_of(model).count("DequantizeLinear") == 1


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (f"{_pair('a', 'x')} f = Transpose(da) q = QuantizeLinear(f, t, u)", "grids"),
        (f"{_pair('a', 'x')} f = Add(da, x) q = QuantizeLinear(f, t, u)", "input 1"),
        (f"{_pair('a', 'x')} f = Exp(da) q = QuantizeLinear(f, t, u)", "no integer form"),
        (f"{_pair('a', 'x')} f = Sigmoid(da) k = Neg(f) q = QuantizeLinear(f, t, u)", "other readers"),
    ],
)
def test_near_misses_stay_in_float(body: str, reason: str) -> None:
    output = "float[4,4,3,2] y" if "Transpose" in body else "float[2,3,4,4] y"
    stays("QDQSelectorActionTransformer", _model(body, output=output), because=reason)


def test_quantization_is_carried_over_movements_in_both_directions() -> None:
    body = "f = Transpose(x) q = QuantizeLinear(f, t, u)"
    model = fires("QDQPropagationTransformer", _model(body, output="float[4,4,3,2] y"), within="exact")
    assert ops_of(model)[:4] == ["QuantizeLinear", "DequantizeLinear", "Transpose", "QuantizeLinear"]
    text = f"g (float[2,3] x) => (float[3,2] y) <{GRID}> {{ {_pair('a', 'x')} f = Transpose(da) y = Neg(f) }}"
    model = fires("QDQPropagationTransformer", text, within="exact")
    assert ops_of(model)[2:5] == ["Transpose", "QuantizeLinear", "DequantizeLinear"]


def test_quantization_is_not_carried_over_arithmetic() -> None:
    stays("QDQPropagationTransformer", _model("f = Neg(x) q = QuantizeLinear(f, t, u)"))


@pytest.mark.parametrize(
    ("name", "bounded"), [("ReluQuantRewrite", "Relu(x)"), ("ClipQuantRewrite", "Clip(x, low, high)")]
)
def test_bound_that_quantization_keeps_goes_away(name: str, bounded: str) -> None:
    text = f"g (float[2,3] x) => (uint8[2,3] y) <{GRID}, float low = {{0.0}}, float high = {{12.8}}> \
{{ f = {bounded} y = QuantizeLinear(f, s, o) }}"
    fires(name, text, ["QuantizeLinear"], within="exact")


@pytest.mark.parametrize(
    ("name", "bounded"), [("ReluQuantRewrite", "Relu(x)"), ("ClipQuantRewrite", "Clip(x, low, high)")]
)
def test_bound_within_the_grid_stays(name: str, bounded: str) -> None:
    text = f"g (float[2,3] x) => (uint8[2,3] y) <{GRID}, float low = {{0.0}}, float high = {{6.0}}> \
{{ f = {bounded} y = QuantizeLinear(f, s, z) }}"
    stays(name, text, because="beyond the bounds")


def test_dequantization_that_is_quantized_again_goes_away() -> None:
    text = f"g (uint8[2,3] x) => (uint8[2,3] y) <{GRID}> {{ n = Identity(x) d = DequantizeLinear(n, s, z) \
q = QuantizeLinear(d, s, z) y = Identity(q) }}"
    fires("QDQFinalCleanupTransformer", text, ["Identity", "Identity"], within="exact")


def test_quantization_to_another_grid_stays() -> None:
    text = (
        f"g (uint8[2,3] x) => (uint8[2,3] y) <{GRID}> {{ d = DequantizeLinear(x, s, z) y = QuantizeLinear(d, t, u) }}"
    )
    stays("QDQFinalCleanupTransformer", text, because="not known to be equal")


def test_pairs_of_onnxruntimes_own_domain_are_taken_like_the_standard_ones() -> None:
    text = _model(f"{_pair('a', 'x')} f = Sigmoid(da) q = QuantizeLinear(f, t, u)")
    text = text.replace("= QuantizeLinear", "= com.microsoft.QuantizeLinear")
    text = text.replace("= DequantizeLinear", "= com.microsoft.DequantizeLinear")
    assert "QLinearSigmoid" in ops_of(fires("QDQSelectorActionTransformer", text, steps=STEP))
