"""What QDQ rules must read of the nodes that they replace: signs of scales, axes, types, attributes without a place."""

from __future__ import annotations

import pytest
from fusion_check import fires, ops_of, stays

GRID = "float s = {0.05}, float m = {-0.05}, uint8 z = {128}, uint8 o = {0}, int8 l = {-128}, int8 h = {127}"
SELECTOR = "QDQSelectorActionTransformer"
STEP = 0.11  # one step of the output's grid and a little


def _model(body: str, inputs: str = "float[2,3,4,4] x", output: str = "float[2,3,4,4] y", more: str = "") -> str:
    return f"g ({inputs}) => ({output}) <{GRID}{more}> {{ {body} dq = DequantizeLinear(q, s, z) y = Identity(dq) }}"


def _between(operator: str, scale: str) -> str:
    return (
        f"qa = QuantizeLinear(x, {scale}, z) da = DequantizeLinear(qa, {scale}, z) f = {operator} "
        f"q = QuantizeLinear(f, {scale}, z)"
    )


@pytest.mark.parametrize(
    "operator", ["MaxPool <kernel_shape = [1,2]> (da)", "ReduceMax <axes = [3]> (da)", "ReduceMin <axes = [3]> (da)"]
)
def test_choices_among_numbers_stay_where_the_scale_turns_their_order(operator: str) -> None:
    output = "float[2,3,4,3] y" if "MaxPool" in operator else "float[2,3,4,1] y"
    assert "QuantizeLinear" in ops_of(fires(SELECTOR, _model(_between(operator, "s"), output=output)))
    stays(SELECTOR, _model(_between(operator, "m"), output=output), because="not above zero")


def test_what_moves_numbers_works_on_integers_whatever_the_sign_of_the_scale() -> None:
    fires(SELECTOR, _model(_between("Transpose <perm = [0,1,3,2]> (da)", "m")))


def test_argmax_stays_where_the_scale_turns_the_order() -> None:
    body = "qa = QuantizeLinear(x, m, z) da = DequantizeLinear(qa, m, z) y = ArgMax <axis = 1> (da)"
    stays(SELECTOR, f"g (float[2,4] x) => (int64[2,1] y) <{GRID}> {{ {body} }}", because="positive")


@pytest.mark.parametrize(("apart", "is_taken"), [("[1,1]", True), ("[2,2]", False)])
def test_a_pool_whose_windows_have_gaps_stays(apart: str, is_taken: bool) -> None:
    operator = f"AveragePool <kernel_shape = [2,2], dilations = {apart}> (da)"
    output = f"float[2,3,{'3,3' if is_taken else '2,2'}] y"
    text = _model(_between(operator, "s"), output=output)
    if is_taken:
        assert "QLinearAveragePool" in ops_of(fires(SELECTOR, text, opset=19, steps=STEP))
    else:
        stays(SELECTOR, text, opset=19, because="'dilations'")


@pytest.mark.parametrize(
    "operator",
    [
        "Add(da, da)",
        "LeakyRelu(da)",
        "Sigmoid(da)",
        "Softmax(da)",
        "Concat <axis = 0> (da)",
        "AveragePool <kernel_shape = [1,1]> (da)",
    ],
)
def test_scales_of_one_element_along_an_axis_become_numbers(operator: str) -> None:
    body = _between(operator, "e").replace("z)", "ez)")
    text = _model(body, "float[2,1,4,4] x", "float[2,1,4,4] y", ", float[1] e = {0.05}, uint8[1] ez = {128}")
    fused = next(each for each in fires(SELECTOR, text, steps=STEP).graph if each.op_type.startswith("QLinear"))
    parameters = [each for each in fused.present_inputs() if each.constant is not None]
    assert len(parameters) >= 4
    assert all(each.rank == 0 for each in parameters)


@pytest.mark.parametrize("name", [SELECTOR, "QDQPropagationTransformer"])
def test_a_resize_that_gives_a_number_outside_of_the_image_stays(name: str) -> None:
    mode = 'mode = "nearest", coordinate_transformation_mode = "tf_crop_and_resize", extrapolation_value = 2.0'
    more = ", float[8] roi = {0,0,-0.5,-0.5,1,1,1.5,1.5}, float[4] by = {1,1,2,2}"
    body = _between(f"Resize <{mode}> (da, roi, by)", "s")
    if name != SELECTOR:
        body = body.replace("q = Quant", "n = Neg(f) q = Quant").replace("(f, s, z)", "(n, s, z)")
    stays(name, _model(body, output="float[2,3,8,8] y", more=more))


COLUMNS = ", int8[4,2] w = {1,-2,3,4,5,-6,7,8}, float[2] ws = {0.01,0.02}, int8[2] wz = {0,0}, \
int32[2,2] b = {100,-200,300,400}, float[2] bs = {0.0005,0.001}"


@pytest.mark.parametrize(("axis", "is_taken"), [(1, True), (0, False)])
def test_a_bias_with_scales_of_rows_is_none_of_the_products_grid(axis: int, is_taken: bool) -> None:
    body = f"qa = QuantizeLinear(x, s, z) da = DequantizeLinear(qa, s, z) dw = DequantizeLinear <axis = 1> (w, ws, wz) \
db = DequantizeLinear <axis = {axis}> (b, bs) f = Gemm(da, dw, db) q = QuantizeLinear(f, s, z)"
    text = _model(body, "float[2,4] x", "float[2,2] y", COLUMNS)
    if is_taken:
        assert "QGemm" in ops_of(fires(SELECTOR, text, steps=STEP))
    else:
        stays(SELECTOR, text, because="along axis 0")


def test_reals_of_another_type_than_their_scale_are_not_fused() -> None:
    body = "qa = QuantizeLinear(x, s, z) da = DequantizeLinear <output_dtype = 10> (qa, s, z) \
dw = DequantizeLinear <output_dtype = 10> (w, s, z) y = MatMul(da, dw)"
    text = f"g (float[2,4] x) => (float16[2,3] y) <{GRID}, uint8[4,3] w = {{1,2,3,4,5,6,7,8,9,10,11,12}}> {{ {body} }}"
    stays(SELECTOR, text, opset=23, because="not dequantized")


@pytest.mark.parametrize("zero", ["o", "l"])
@pytest.mark.parametrize(
    ("name", "bounded"), [("ReluQuantRewrite", "Relu(x)"), ("ClipQuantRewrite", "Clip(x, low, high)")]
)
def test_a_bound_that_a_scale_below_zero_turns_to_the_other_side_stays(name: str, bounded: str, zero: str) -> None:
    kind = "uint8" if zero == "o" else "int8"
    text = f"g (float[2,3] x) => ({kind}[2,3] y) <{GRID}, float low = {{0.0}}, float high = {{99.0}}> \
{{ f = {bounded} y = QuantizeLinear(f, m, {zero}) }}"
    stays(name, text, because="beyond the bounds")


def test_a_bound_goes_away_where_a_scale_below_zero_reaches_no_negative_number() -> None:
    text = f"g (float[2,3] x) => (int8[2,3] y) <{GRID}> {{ f = Relu(x) y = QuantizeLinear(f, m, h) }}"
    fires("ReluQuantRewrite", text, ["QuantizeLinear"], within="exact")


@pytest.mark.parametrize("place", ["in", "out"])
@pytest.mark.parametrize(
    "operator",
    ["Add(da, da)", "Mul(da, da)", "LeakyRelu(da)", "Sigmoid(da)", "Softmax(da)", "GlobalAveragePool(da)"],
)
def test_operators_without_a_zero_point_stay(operator: str, place: str) -> None:
    body = _between(operator, "s")
    if place == "in":
        body = body.replace("(x, s, z)", "(x, s)").replace("(qa, s, z)", "(qa, s)")
    else:
        body = body.replace("(f, s, z)", "(f, s)")
    text = _model(body, output="float[2,3,1,1] y" if "Pool" in operator else "float[2,3,4,4] y")
    stays(SELECTOR, text.replace("(q, s, z)", "(q, s)") if place == "out" else text, because="zero point")
