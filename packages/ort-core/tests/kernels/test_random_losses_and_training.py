"""Random tensors, losses and optimizer steps: sequences, moments, and formulas written out in float64."""

import numpy as np
import pytest

from ort_core.errors import InvalidArgument, NotImplemented
from ort_core.ir.types import DataType
from ort_core.kernels.kernel import KernelContext, Unguarded
from ort_core.kernels.reference.elementwise import losses, training
from ort_core.kernels.reference.generators import random_numbers
from ort_core.kernels.reference.generators.minimal_standard import MinimalStandard

COUNT = 20_000


def context(op_type, seed=None):
    return KernelContext(op_type, "", 22, "node", (True,), (None,), {}, Unguarded(), seed)


def test_the_minimal_standard_sequence_has_its_published_ten_thousandth_term():
    terms, after = MinimalStandard.seeded(1).integers(10_000)
    assert terms[-1] == 1_043_618_065  # Park and Miller, 1988
    again, _ = MinimalStandard.seeded(1).integers(4_000)
    np.testing.assert_array_equal(again, terms[:4_000])
    assert after.state == 1_043_618_065


@pytest.mark.parametrize("dtype", [DataType.FLOAT16, DataType.BFLOAT16, DataType.FLOAT, DataType.DOUBLE])
@pytest.mark.parametrize("seed", [None, 3.0])
def test_random_tensors_have_the_moments_asked_for(dtype, seed):
    normal = random_numbers.random_normal(
        shape=(COUNT,), dtype=dtype, mean=2.0, scale=3.0, seed=seed, ctx=context("RandomNormal", 1)
    )
    uniform = random_numbers.random_uniform(
        shape=(COUNT,), dtype=dtype, low=-1.0, high=3.0, seed=seed, ctx=context("RandomUniform", 1)
    )
    assert normal.dtype == uniform.dtype == dtype.numpy
    wide = normal.astype(np.float64)
    assert abs(wide.mean() - 2) < 0.1
    assert abs(wide.std() - 3) < 0.1
    assert abs(uniform.astype(np.float64).mean() - 1) < 0.05
    assert uniform.min() >= -1
    assert uniform.max() <= 3


def test_a_seeded_node_repeats_between_sessions_and_goes_on_within_one():
    first, second = context("RandomNormal"), context("RandomNormal")
    draw = random_numbers.random_normal
    one = draw(shape=(5,), seed=7.0, ctx=first)
    two = draw(shape=(5,), seed=7.0, ctx=first)
    np.testing.assert_array_equal(one, draw(shape=(5,), seed=7.0, ctx=second))
    assert not np.array_equal(one, two)


def test_like_forms_take_shape_and_type_from_the_input():
    x = np.zeros((2, 0, 3), np.float64)
    got = random_numbers.random_uniform_like(x, ctx=context("RandomUniformLike"))
    assert (got.shape, got.dtype) == (x.shape, x.dtype)
    with pytest.raises(InvalidArgument, match="Attribute dtype does not specify a valid type"):
        random_numbers.random_normal_like(x, dtype=999, ctx=context("RandomNormalLike"))


def test_bernoulli_draws_one_with_the_probability_given():
    p = np.repeat(np.array([0.0, 0.2, 0.9, 1.0], np.float32), COUNT).reshape(4, COUNT)
    got = random_numbers.bernoulli(p, dtype=DataType.INT32, seed=1.0, ctx=context("Bernoulli"))
    np.testing.assert_allclose(got.mean(axis=1), [0, 0.2, 0.9, 1], atol=0.02)


def test_multinomial_draws_classes_by_their_weight():
    logits = np.log(np.array([[0.1, 0.2, 0.7], [0.5, 0.5, 1e-30]], np.float32))
    got = random_numbers.multinomial(logits, sample_size=COUNT, seed=1.0, ctx=context("Multinomial"))
    assert got.dtype == np.int32
    shares = np.stack([np.bincount(row, minlength=3) / COUNT for row in got])
    np.testing.assert_allclose(shares, [[0.1, 0.2, 0.7], [0.5, 0.5, 0]], atol=0.02)


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("ignore_index", [None, 2, -1])
@pytest.mark.parametrize("weighted", [False, True])
def test_cross_entropy_equals_its_formula(reduction, ignore_index, weighted):
    generator = np.random.default_rng(1)
    scores = generator.normal(size=(3, 5, 2)).astype(np.float32)
    labels = generator.integers(0, 5, (3, 2))
    if ignore_index == -1:
        labels[0, 0] = -1
    weights = generator.uniform(0.5, 2, 5).astype(np.float32) if weighted else None
    got, log_prob = losses.softmax_cross_entropy_loss(
        scores, labels, weights, reduction=reduction, ignore_index=ignore_index
    )
    wide = scores.astype(np.float64)
    want_log = wide - np.log(np.exp(wide).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(log_prob, want_log, rtol=1e-5)
    share = np.where(labels == ignore_index, 0, np.ones(5)[labels] if weights is None else weights[labels])
    each = -np.take_along_axis(want_log, labels[:, np.newaxis], axis=1)[:, 0] * share
    want = {"none": each, "sum": each.sum(), "mean": each.sum() / share.sum()}[reduction]
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-7)
    nll = losses.negative_log_likelihood_loss(log_prob, labels, weights, reduction=reduction, ignore_index=ignore_index)
    np.testing.assert_allclose(nll, want, rtol=1e-5, atol=1e-7)


def test_a_class_outside_the_scores_is_refused():
    with pytest.raises(InvalidArgument, match="a class is outside"):
        losses.negative_log_likelihood_loss(np.zeros((1, 3), np.float32), np.array([3]))


def test_optimizers_group_results_by_kind():
    rate, step = np.array(0.1, np.float32), np.array(0)
    values = [np.array([1.0], np.float32), np.array([2.0, 3.0], np.float32)]
    gradients = [np.array([0.5], np.float32), np.array([-1.0, 1.0], np.float32)]
    zeros = [np.zeros_like(v) for v in values]
    new_1, new_2, velocity_1, velocity_2 = training.momentum(
        rate, step, *values, *gradients, *zeros, alpha=0.9, beta=0.5, mode="standard", norm_coefficient=0.0
    )
    np.testing.assert_allclose(new_1, [0.95])
    np.testing.assert_allclose(new_2, [2.1, 2.9], rtol=1e-6)
    np.testing.assert_array_equal(velocity_1, gradients[0])
    np.testing.assert_array_equal(velocity_2, gradients[1])
    adagrad = training.adagrad(rate, step, *values, *gradients, *zeros)
    np.testing.assert_allclose(adagrad[0], [0.9], rtol=1e-5)  # a first step has the length of the rate
    adam = training.adam(rate, np.array(1), *values, *gradients, *zeros, *zeros)
    assert [a.dtype for a in adam] == [np.float32] * 6
    np.testing.assert_allclose(adam[0], [0.9], rtol=1e-4)


def test_gradient_is_refused_with_its_reason():
    with pytest.raises(NotImplemented, match="differentiates the graph"):
        training.gradient_of_graph(xs=("x",), y="y")
