"""Normalizations against their formulas in float64."""

import ml_dtypes
import numpy as np
import pytest

from ort_core.errors import InvalidArgument
from ort_core.kernels.kernel import KernelContext, Unguarded
from ort_core.kernels.reference.generators.dropout import dropout, dropout_1, dropout_7
from ort_core.kernels.reference.normalization import normalization as n

DTYPES = [np.float64, np.float32, np.float16, ml_dtypes.bfloat16]


def draw(seed, dtype, *shapes):
    generator = np.random.default_rng(seed)
    return [(generator.standard_normal(shape) * 2 + 1).astype(dtype) for shape in shapes]


def assert_rounds_to(y, expected, dtype):
    assert y.dtype == dtype
    eps = float(ml_dtypes.finfo(dtype).eps)
    np.testing.assert_allclose(y.astype(np.float64), expected, rtol=4 * eps, atol=16 * eps)


def standardize(x, axes, epsilon=1e-5):
    x = x.astype(np.float64)
    return (x - x.mean(axis=axes, keepdims=True)) / np.sqrt(x.var(axis=axes, keepdims=True) + epsilon)


def per_channel(values, rank=4):
    return values.astype(np.float64).reshape(-1, *[1] * (rank - 2))


@pytest.mark.parametrize("dtype", DTYPES)
def test_batch_normalization_applies_given_statistics(dtype):
    x, scale, bias, mean, var = draw(0, dtype, (2, 3, 4, 5), (3,), (3,), (3,), (3,))
    var = np.abs(var)
    y, running_mean, running_var = n.batch_normalization(x, scale, bias, mean, var)
    centered = x.astype(np.float64) - per_channel(mean)
    expected = centered / np.sqrt(per_channel(var) + 1e-5) * per_channel(scale) + per_channel(bias)
    assert_rounds_to(y, expected, dtype)
    assert running_mean is None
    assert running_var is None


def test_batch_normalization_trains_with_the_statistics_of_the_batch():
    x, scale, bias, mean, var = draw(1, np.float64, (4, 3, 5), (3,), (3,), (3,), (3,))
    y, running_mean, running_var = n.batch_normalization(x, scale, bias, mean, var, training_mode=1, momentum=0.75)
    np.testing.assert_allclose(y, standardize(x, (0, 2)) * per_channel(scale, 3) + per_channel(bias, 3), rtol=1e-10)
    np.testing.assert_allclose(running_mean, mean * 0.75 + x.mean(axis=(0, 2)) * 0.25, rtol=1e-7)
    np.testing.assert_allclose(running_var, var * 0.75 + x.var(axis=(0, 2)) * 0.25, rtol=1e-7)


def test_batch_normalization_of_one_element_is_its_bias_whatever_its_size():
    x = np.full((1, 2, 1), 1000.3, np.float16)
    scale, bias = np.array([3, -7], np.float16), np.array([0.005, 0.25], np.float16)
    y, *_ = n.batch_normalization(x, scale, bias, x[0, :, 0], np.ones(2, np.float16), training_mode=1)
    np.testing.assert_array_equal(y[0, :, 0], bias)


def test_batch_normalization_before_9_can_normalize_each_element_by_itself():
    x, scale, bias, mean, var = draw(2, np.float64, (2, 3, 4), (3, 4), (3, 4), (3, 4), (3, 4))
    y, *_ = n.batch_normalization_7(x, scale, bias, mean, np.abs(var), spatial=0)
    np.testing.assert_allclose(y, (x - mean) / np.sqrt(np.abs(var) + 1e-5) * scale + bias, rtol=1e-10)


def test_batch_normalization_before_14_trains_when_more_outputs_are_named():
    x, scale, bias, mean, var = draw(3, np.float32, (4, 3, 2), (3,), (3,), (3,), (3,))
    ctx = KernelContext("BatchNormalization", "", 9, "", (True, True), (None, None), {}, Unguarded())
    y, *_, saved_mean, saved_var = n.batch_normalization_7(x, scale, bias, mean, var, ctx=ctx)
    np.testing.assert_allclose(saved_mean, x.mean(axis=(0, 2)), rtol=1e-5)
    np.testing.assert_allclose(saved_var, x.var(axis=(0, 2)), rtol=1e-5)
    expected = n.batch_normalization_1(x, scale, bias, mean, var)
    np.testing.assert_array_equal(y, expected[0])


@pytest.mark.parametrize("dtype", DTYPES)
def test_instance_normalization_standardizes_each_channel_of_each_instance(dtype):
    x, scale, bias = draw(4, dtype, (2, 3, 4, 5), (3,), (3,))
    expected = standardize(x, (2, 3)) * per_channel(scale) + per_channel(bias)
    assert_rounds_to(n.instance_normalization(x, scale, bias), expected, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("axis", [-1, 1, 0])
def test_layer_normalization_returns_mean_and_inverse_deviation(dtype, axis):
    x, scale, bias = draw(5, dtype, (2, 3, 4), (4,), (3, 4))
    axes = tuple(range(axis % 3, 3))
    y, mean, inverse = n.layer_normalization(x, scale, bias, axis=axis)
    assert_rounds_to(y, standardize(x, axes) * scale.astype(np.float64) + bias.astype(np.float64), dtype)
    wide = x.astype(np.float64)
    np.testing.assert_allclose(mean, wide.mean(axis=axes, keepdims=True), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(inverse, 1 / np.sqrt(wide.var(axis=axes, keepdims=True) + 1e-5), rtol=1e-5)
    assert mean.dtype == inverse.dtype == np.float32


def test_layer_normalization_stashes_bfloat16_on_request():
    (x,) = draw(6, np.float16, (2, 4))
    _, mean, inverse = n.layer_normalization(x, np.ones(4, np.float16), stash_type=16)
    assert mean.dtype == inverse.dtype == ml_dtypes.bfloat16


@pytest.mark.parametrize("dtype", DTYPES)
def test_rms_normalization_divides_by_the_root_mean_square(dtype):
    x, scale = draw(7, dtype, (2, 3, 4), (4,))
    wide = x.astype(np.float64)
    inverse = 1 / np.sqrt((wide**2).mean(axis=-1, keepdims=True) + 1e-5)
    assert_rounds_to(n.rms_normalization(x, scale), wide * inverse * scale.astype(np.float64), dtype)
    y, stashed = n.simplified_layer_normalization(x, scale)
    assert_rounds_to(y, wide * inverse * scale.astype(np.float64), dtype)
    np.testing.assert_allclose(stashed, inverse, rtol=1e-5)


@pytest.mark.parametrize("dtype", DTYPES)
def test_group_normalization_scales_channels_and_before_21_groups(dtype):
    x, scale, bias = draw(8, dtype, (2, 6, 3, 2), (6,), (6,))
    plain = standardize(x.reshape(2, 2, -1), (2,)).reshape(x.shape)
    y = n.group_normalization(x, scale, bias, num_groups=2)
    assert_rounds_to(y, plain * per_channel(scale) + per_channel(bias), dtype)
    old = n.group_normalization_18(x, scale[:2], bias[:2], num_groups=2)
    expected = plain * per_channel(np.repeat(scale[:2], 3)) + per_channel(np.repeat(bias[:2], 3))
    assert_rounds_to(old, expected, dtype)


@pytest.mark.parametrize("p", [1, 2])
def test_lp_normalization_leaves_zero_vectors_zero(p):
    x = np.array([[3.0, -4.0], [0.0, 0.0]])
    y = n.lp_normalization(x, p=p)
    np.testing.assert_allclose(np.sum(np.abs(y) ** p, axis=1), [1, 0])


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_lrn_sums_squares_over_neighboring_channels(size, by_onnxruntime):
    (x,) = draw(9, np.float32, (2, 5, 3, 2))
    attributes = {"size": size, "alpha": 0.5, "beta": 0.6, "bias": 1.5}
    y = n.lrn(x, **attributes)
    for channel in range(5):
        near = x[:, max(0, channel - (size - 1) // 2) : channel + size // 2 + 1]
        expected = x[:, channel] / (1.5 + 0.5 / size * (near**2).sum(axis=1)) ** 0.6
        np.testing.assert_allclose(y[:, channel], expected, rtol=1e-5)


def test_mean_variance_normalization_pools_the_named_axes():
    (x,) = draw(10, np.float64, (2, 3, 4, 5))
    np.testing.assert_allclose(n.mean_variance_normalization(x), standardize(x, (0, 2, 3), 0), rtol=1e-6)
    np.testing.assert_allclose(n.mean_variance_normalization(x, axes=(1,)), standardize(x, (1,), 0), rtol=1e-6)


@pytest.mark.parametrize("shape", [(0, 3, 4), (2, 3, 0)])
def test_normalizations_of_nothing_are_empty(shape):
    x, ones = np.zeros(shape, np.float32), np.ones(3, np.float32)
    assert n.instance_normalization(x, ones, ones).shape == shape
    assert n.layer_normalization(x, np.ones(shape[-1], np.float32))[0].shape == shape
    assert n.group_normalization(x, ones, ones, num_groups=3).shape == shape
    assert n.batch_normalization(x, ones, ones, ones, ones)[0].shape == shape
    assert n.lrn(x, size=3).shape == shape
    assert n.mean_variance_normalization(x, axes=(0,)).shape == shape


def test_batch_normalization_refuses_statistics_of_another_size():
    x, scale = np.zeros((1, 3, 2), np.float32), np.zeros(2, np.float32)
    with pytest.raises(InvalidArgument, match="Invalid input scale"):
        n.batch_normalization(x, scale, scale, scale, scale)


def test_dropout_in_training_scales_what_it_keeps():
    x = np.ones((100, 100), np.float32)
    y, mask = dropout(x, np.float32(0.25), np.array(True), seed=3)
    assert set(np.unique(y)) == {0, np.float32(1 / 0.75)}
    np.testing.assert_array_equal(y != 0, mask)
    assert abs(mask.mean() - 0.75) < 0.02
    np.testing.assert_array_equal(mask, dropout(x, np.float32(0.25), np.array(True), seed=3)[1])


def test_dropout_in_inference_returns_its_input():
    x = np.ones((2, 3), np.float16)
    for y, mask in (dropout(x), dropout_7(x), dropout_1(x, is_test=1)):
        np.testing.assert_array_equal(y, x)
        assert mask.shape == x.shape
    assert dropout(x)[1].all()
    with pytest.raises(InvalidArgument, match="ratio must be in the range"):
        dropout(x, np.float32(1), np.array(True))
