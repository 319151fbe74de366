"""Elementwise kernels against numpy in float64, for every float type, odd layouts and special values."""

import math

import ml_dtypes
import numpy as np
import pytest

from ort_core.errors import InvalidArgument
from ort_core.kernels.reference.arrays.error_function import erf
from ort_core.kernels.reference.elementwise import activations, arithmetic, logic, unary_math

FLOATS = (np.float16, ml_dtypes.bfloat16, np.float32, np.float64)
math_erf = np.vectorize(math.erf, otypes=[np.float64])


def _softplus(x):
    return np.log1p(np.exp(-np.abs(x))) + np.maximum(x, 0)


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


# kernel, truth in float64, interval of inputs
UNARY = {
    "Abs": (unary_math.absolute, np.abs, (-9, 9)),
    "Acos": (unary_math.acos, np.arccos, (-1, 1)),
    "Acosh": (unary_math.acosh, np.arccosh, (1, 50)),
    "Asin": (unary_math.asin, np.arcsin, (-1, 1)),
    "Asinh": (unary_math.asinh, np.arcsinh, (-50, 50)),
    "Atan": (unary_math.atan, np.arctan, (-9, 9)),
    "Atanh": (unary_math.atanh, np.arctanh, (-0.9, 0.9)),
    "Ceil": (unary_math.ceil, np.ceil, (-9, 9)),
    "Cos": (unary_math.cos, np.cos, (-9, 9)),
    "Cosh": (unary_math.cosh, np.cosh, (-5, 5)),
    "Erf": (unary_math.erf, math_erf, (-4, 4)),
    "Exp": (unary_math.exp, np.exp, (-9, 9)),
    "Floor": (unary_math.floor, np.floor, (-9, 9)),
    "Log": (unary_math.log, np.log, (0.01, 99)),
    "Neg": (unary_math.negative, np.negative, (-9, 9)),
    "Reciprocal": (unary_math.reciprocal, lambda x: 1 / x, (0.1, 9)),
    "Round": (unary_math.round_half_even, np.rint, (-9, 9)),
    "Sign": (unary_math.sign, np.sign, (-9, 9)),
    "Sin": (unary_math.sin, np.sin, (-9, 9)),
    "Sinh": (unary_math.sinh, np.sinh, (-5, 5)),
    "Sqrt": (unary_math.sqrt, np.sqrt, (0, 99)),
    "Tan": (unary_math.tan, np.tan, (-1.5, 1.5)),
    "Tanh": (unary_math.tanh, np.tanh, (-4, 4)),
    "Celu": (activations.celu, lambda x: np.maximum(x, 0) + np.minimum(0, np.expm1(x)), (-5, 5)),
    "Elu": (activations.elu, lambda x: np.where(x >= 0, x, np.expm1(np.minimum(x, 0))), (-5, 5)),
    "Gelu": (activations.gelu, lambda x: 0.5 * x * (1 + math_erf(x / math.sqrt(2))), (-5, 5)),
    "HardSigmoid": (activations.hard_sigmoid, lambda x: np.clip(0.2 * x + 0.5, 0, 1), (-5, 5)),
    "HardSwish": (activations.hard_swish, lambda x: x * np.clip(x / 6 + 0.5, 0, 1), (-5, 5)),
    "LeakyRelu": (activations.leaky_relu, lambda x: np.where(x >= 0, x, 0.01 * x), (-5, 5)),
    "Mish": (activations.mish, lambda x: x * np.tanh(_softplus(x)), (-5, 5)),
    "Relu": (activations.relu, lambda x: np.maximum(x, 0), (-5, 5)),
    "Selu": (
        activations.selu,
        lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(np.minimum(x, 0))),
        (-5, 5),
    ),
    "Sigmoid": (activations.sigmoid, _sigmoid, (-9, 9)),
    "Softplus": (activations.softplus, _softplus, (-9, 9)),
    "Softsign": (activations.softsign, lambda x: x / (1 + np.abs(x)), (-9, 9)),
    "Swish": (activations.swish, lambda x: x * _sigmoid(x), (-9, 9)),
    "ThresholdedRelu": (activations.thresholded_relu, lambda x: np.where(x > 1, x, 0), (-9, 9)),
}


def _units_apart(got, truth):
    """Return by how many units in the last place (of the dtype, near the truth) two arrays differ."""
    spacing = np.maximum(np.abs(truth), 1e-2) * float(ml_dtypes.finfo(got.dtype).eps)
    return np.max(np.abs(got.astype(np.float64) - truth) / spacing, initial=0.0)


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda dtype: dtype.__name__)
@pytest.mark.parametrize("name", UNARY)
def test_a_function_is_rounded_once_from_float64_truth(name, dtype):
    function, truth, (low, high) = UNARY[name]
    x = np.random.default_rng(7).uniform(low, high, (5, 33)).astype(dtype)
    got = function(x)
    assert got.dtype == x.dtype
    assert got.shape == x.shape
    # float32: a handful of roundings in a formula; float64: attributes are float32 numbers
    limit = {np.float32: 32, np.float64: 2**32}.get(dtype, 1.01)
    assert _units_apart(got, truth(x.astype(np.float64))) <= limit


@pytest.mark.parametrize("name", UNARY)
def test_scalars_empty_and_strided_inputs_give_the_same_as_their_copies(name):
    function, _, (low, high) = UNARY[name]
    x = np.random.default_rng(8).uniform(low, high, (6, 8)).astype(np.float32)
    before = x.copy()
    whole = function(x)
    # vectorized loops may differ in the last place from the strided ones
    np.testing.assert_allclose(function(x[::-2, ::3]), whole[::-2, ::3], rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(function(x.T), whole.T, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(function(np.asarray(x[0, 0])), whole[0, 0], rtol=1e-6, atol=1e-7)
    assert isinstance(function(np.asarray(x[0, 0])), np.ndarray)
    assert function(x[:0]).shape == (0, 8)
    np.testing.assert_array_equal(x, before)


@pytest.mark.parametrize("name", sorted(set(UNARY) - {"ThresholdedRelu"}))
def test_nan_stays_nan(name):
    assert np.isnan(UNARY[name][0](np.array([np.nan], np.float32))).all()


def test_erf_agrees_with_the_c_library_to_float64():
    x = np.concatenate([np.linspace(-7, 7, 5001), np.logspace(-300, 0, 500), [np.inf, -np.inf, 0.0, 1e-310]])
    np.testing.assert_allclose(erf(x), math_erf(x), rtol=5e-16, atol=0)
    assert np.isnan(erf(np.array(np.nan)))
    assert np.signbit(erf(np.array(-0.0)))


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64])
def test_integer_division_truncates_and_wraps(dtype):
    low = np.iinfo(dtype).min
    a, b = np.array([7, -7, 7, -7, 0, low], dtype), np.array([2, 2, -2, -2, 5, -1], dtype)
    np.testing.assert_array_equal(arithmetic.divide(a, b), np.array([3, -3, -3, 3, 0, low], dtype))


def test_integer_arithmetic_wraps_as_two_complement():
    a = np.array([250, 3], np.uint8)
    np.testing.assert_array_equal(arithmetic.add(a, a), np.array([244, 6], np.uint8))
    np.testing.assert_array_equal(arithmetic.subtract(a[1:], a[:1]), np.array([9], np.uint8))
    np.testing.assert_array_equal(arithmetic.multiply(a, a), np.array([36, 9], np.uint8))


@pytest.mark.parametrize("function", [arithmetic.divide, arithmetic.mod])
def test_division_by_an_integer_zero_is_refused(function):
    with pytest.raises(InvalidArgument, match="by zero"):
        function(np.array([1], np.int32), np.array([0], np.int32))


def test_mod_follows_the_divisor_or_the_dividend():
    a, b = np.array([-7, 7, -7, 7], np.int32), np.array([3, -3, -3, 3], np.int32)
    np.testing.assert_array_equal(arithmetic.mod(a, b), [2, -2, -1, 1])
    np.testing.assert_array_equal(arithmetic.mod(a, b, fmod=1), [-1, 1, -1, 1])
    x, y = np.array([-1.0, 1.0, np.inf, 0.0], np.float32), np.array([np.inf, np.inf, 2.0, -5.0], np.float32)
    np.testing.assert_array_equal(arithmetic.mod(x, y), np.array([np.inf, 1, np.nan, -0.0], np.float32))
    np.testing.assert_array_equal(arithmetic.mod(x, y, fmod=1), np.array([-1, 1, np.nan, 0], np.float32))


def test_pow_keeps_the_type_of_the_base():
    base = np.array([2, -1, -1, 3, 5], np.int32)
    np.testing.assert_array_equal(arithmetic.power(base, np.array([-1, -3, -2, 4, 0], np.int64)), [0, -1, 1, 81, 1])
    assert arithmetic.power(base, np.array(0.5, np.float64)).dtype == np.int32
    assert arithmetic.power(np.array([2.0], np.float16), np.array([3], np.int32)).dtype == np.float16


def test_shifts_by_all_bits_or_a_negative_amount_leave_the_sign():
    x, y = np.array([-3, 3, -3, 3, -8], np.int8), np.array([8, 9, -1, -1, 1], np.int8)
    np.testing.assert_array_equal(arithmetic.bit_shift(x, y, direction="RIGHT"), [-1, 0, -1, 0, -4])
    np.testing.assert_array_equal(arithmetic.bit_shift(x, y, direction="LEFT"), [0, 0, 0, 0, -16])


def test_before_opset_7_b_meets_a_at_an_axis():
    a, b = np.ones((2, 3, 4), np.float32), np.arange(3, dtype=np.float32)
    got = arithmetic.add(a, b, broadcast=1, axis=1)
    np.testing.assert_array_equal(got, a + b[:, np.newaxis])


def test_clip_returns_the_upper_bound_when_the_bounds_cross():
    low, high = np.array(3, np.float32), np.array(1, np.float32)
    np.testing.assert_array_equal(arithmetic.clip(np.array([-1, 2, 5], np.float32), low, high), [1, 1, 1])


def test_min_and_max_propagate_nan():
    a, b = np.array([np.nan, 1], np.float32), np.array([0, np.nan], np.float32)
    assert np.isnan(arithmetic.maximum(a, b)).all()
    assert np.isnan(arithmetic.minimum(a, b)).all()


def test_strings_compare_to_booleans():
    a = np.array(["a", "b"], object)
    got = logic.equal(a, np.array(["a"], object))
    assert got.dtype == np.bool_
    np.testing.assert_array_equal(got, [True, False])


def test_shapes_that_do_not_broadcast_are_refused_with_both_shapes():
    with pytest.raises(InvalidArgument, match=r"\(2, 3\) and \(4,\)"):
        arithmetic.add(np.zeros((2, 3), np.float32), np.zeros(4, np.float32))


def test_prelu_takes_a_slope_for_each_channel_before_opset_7():
    x = -np.ones((1, 2, 3), np.float32)
    got = activations.prelu_by_channel(x, np.array([1.0, 2.0], np.float32))
    np.testing.assert_array_equal(got[0, :, 0], [-1, -2])
