"""Reductions, cumulative sums, TopK, Unique and their kin against numpy."""

import ml_dtypes
import numpy as np
import pytest

from ort_core.errors import InvalidArgument
from ort_core.kernels.reference.elementwise import cumulative
from ort_core.kernels.reference.movement import selection
from ort_core.kernels.reference.normalization import reductions, softmax
from ort_core.kernels.reference.products import matrix_products

FLOATS = (np.float16, ml_dtypes.bfloat16, np.float32, np.float64)
REDUCTIONS = {
    "ReduceSum": (reductions.reduce_sum, np.sum),
    "ReduceMean": (reductions.reduce_mean, np.mean),
    "ReduceMax": (reductions.reduce_max, np.max),
    "ReduceMin": (reductions.reduce_min, np.min),
    "ReduceProd": (reductions.reduce_product, np.prod),
    "ReduceL1": (reductions.reduce_l1, lambda x, **k: np.sum(np.abs(x), **k)),
    "ReduceL2": (reductions.reduce_l2, lambda x, **k: np.sqrt(np.sum(x * x, **k))),
    "ReduceLogSum": (reductions.reduce_log_sum, lambda x, **k: np.log(np.sum(x, **k))),
    "ReduceLogSumExp": (reductions.reduce_log_sum_exp, lambda x, **k: np.log(np.sum(np.exp(x), **k))),
    "ReduceSumSquare": (reductions.reduce_sum_square, lambda x, **k: np.sum(x * x, **k)),
}


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda dtype: dtype.__name__)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_a_reduction_is_rounded_once_from_float64(name, dtype):
    function, truth = REDUCTIONS[name]
    x = np.random.default_rng(1).uniform(0.5, 1.5, (3, 5, 7)).astype(dtype)
    for axes, keepdims in ((None, 1), ([1], 0), ([-1, 0], 1), ([0, 1, 2], 0)):
        got = function(x, None if axes is None else np.array(axes), keepdims=keepdims)
        want = truth(x.astype(np.float64), axis=None if axes is None else tuple(axes), keepdims=bool(keepdims))
        assert got.dtype == x.dtype
        assert got.shape == np.shape(want)
        if dtype is np.float64:
            np.testing.assert_allclose(got, want, rtol=1e-14)
        else:
            np.testing.assert_array_equal(got, np.asarray(want).astype(dtype))


@pytest.mark.parametrize("name", REDUCTIONS)
def test_no_axes_and_noop_reduce_nothing_but_still_transform(name):
    function, truth = REDUCTIONS[name]
    x = np.random.default_rng(2).uniform(0.5, 1.5, (2, 3)).astype(np.float32)
    got = function(x, np.array([], np.int64), noop_with_empty_axes=1)
    np.testing.assert_allclose(got, truth(x.astype(np.float64)[np.newaxis], axis=0), rtol=1e-6)


def test_reductions_over_nothing_give_the_neutral_element():
    empty = np.zeros((0, 2), np.float32)
    axes = np.array([0])
    for name, value in (("Sum", 0), ("Prod", 1), ("Max", -np.inf), ("Min", np.inf), ("LogSum", -np.inf)):
        np.testing.assert_array_equal(REDUCTIONS[f"Reduce{name}"][0](empty, axes), np.full((1, 2), value, np.float32))
    np.testing.assert_array_equal(reductions.reduce_mean(empty, axes), [[0, 0]])  # as in onnxruntime
    np.testing.assert_array_equal(reductions.reduce_log_sum_exp(empty, axes), [[-np.inf, -np.inf]])
    np.testing.assert_array_equal(reductions.reduce_max(empty.astype(np.int32), axes), [[-(2**31)] * 2])


def test_log_sum_exp_does_not_overflow():
    x = np.array([1000.0, 1000.0], np.float32)
    np.testing.assert_allclose(reductions.reduce_log_sum_exp(x), [1000 + np.log(2)], rtol=1e-6)
    np.testing.assert_array_equal(reductions.reduce_log_sum_exp(np.full(2, -np.inf, np.float32)), [-np.inf])
    np.testing.assert_array_equal(reductions.reduce_log_sum_exp(np.array([np.inf, 0], np.float32)), [np.inf])


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_integer_reductions_stop_at_their_limits(dtype):
    high, low = np.iinfo(dtype).max, np.iinfo(dtype).min
    assert reductions.reduce_sum(np.array([high, high, 5], dtype)) == high
    assert reductions.reduce_sum(np.array([low, low, 5], dtype)) == low
    assert reductions.reduce_sum(np.array([high, low], dtype)) == -1
    assert reductions.reduce_product(np.array([high, -7], dtype)) == low
    assert reductions.reduce_sum_square(np.array([low], dtype)) == high
    assert reductions.reduce_l1(np.array([low], dtype)) == high
    assert reductions.reduce_mean(np.array([high, high - 2], dtype)) == high - 1
    assert reductions.reduce_mean(np.array([-3, -4], dtype)) == -3


def test_axes_must_be_a_vector_and_inside_the_rank():
    with pytest.raises(InvalidArgument, match="An axes tensor must be a vector tensor"):
        reductions.reduce_sum(np.zeros((2, 2), np.float32), np.array(1))
    with pytest.raises(InvalidArgument, match=r"axis 2 is not in valid range \[-2,1\]"):
        reductions.reduce_sum(np.zeros((2, 2), np.float32), np.array([2]))


def test_booleans_reduce_to_any_and_all():
    x = np.array([[True, False], [True, True]])
    np.testing.assert_array_equal(reductions.reduce_max(x, np.array([1]), keepdims=0), [True, True])
    np.testing.assert_array_equal(reductions.reduce_min(x, np.array([1]), keepdims=0), [False, True])


def test_arg_max_can_take_the_last_of_equal_elements():
    x = np.array([[1, 3, 3], [2, 2, 1]], np.int32)
    np.testing.assert_array_equal(selection.arg_max(x, axis=1, keepdims=0), [1, 0])
    np.testing.assert_array_equal(selection.arg_max(x, axis=1, keepdims=0, select_last_index=1), [2, 1])
    np.testing.assert_array_equal(selection.arg_min(x, axis=-1), [[0], [2]])


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.int8, np.uint8, np.int64])
@pytest.mark.parametrize("largest", [0, 1])
def test_top_k_orders_ties_by_index(dtype, largest):
    x = np.random.default_rng(3).integers(0, 5, (4, 9)).astype(dtype)
    values, index = selection.top_k(x, np.array([6]), axis=1, largest=largest)
    for row, (chosen, places) in enumerate(zip(values, index, strict=True)):
        keys = [(-float(v) if largest else float(v), i) for i, v in enumerate(x[row])]
        assert places.tolist() == [i for _, i in sorted(keys)[:6]]
        np.testing.assert_array_equal(chosen, x[row][places])


def test_top_k_refuses_more_elements_than_there_are():
    with pytest.raises(InvalidArgument, match="k argument"):
        selection.top_k(np.zeros(3, np.float32), np.array([4]))


@pytest.mark.parametrize("axis", [0, -1])
def test_a_number_is_reduced_along_its_first_or_last_axis_as_in_onnxruntime(axis):
    number = np.array(-2, np.float32)
    for name, want in (("ReduceSum", -2), ("ReduceMean", -2), ("ReduceL2", 2), ("ReduceMax", -2)):
        found = REDUCTIONS[name][0](number, np.array([axis]))
        assert (found.shape, float(found)) == ((), want)
    with pytest.raises(InvalidArgument, match="valid range"):
        reductions.reduce_sum(number, np.array([1]))


@pytest.mark.parametrize("select_last_index", [0, 1])
@pytest.mark.parametrize("function", [selection.arg_max, selection.arg_min], ids=lambda f: f.__name__)
def test_an_extreme_of_nothing_is_missed_only_where_the_result_has_elements(function, select_last_index):
    found = function(np.zeros((0, 3, 0), np.float32), axis=0, select_last_index=select_last_index)
    assert (found.shape, found.dtype) == ((1, 3, 0), np.int64)
    found = function(np.zeros((2, 0, 0), np.int32), axis=-1, keepdims=0, select_last_index=select_last_index)
    assert (found.shape, found.dtype) == ((2, 0), np.int64)
    with pytest.raises(InvalidArgument, match="has no extreme"):
        function(np.zeros((0, 3), np.float32), axis=0, select_last_index=select_last_index)


def test_top_k_of_nothing_is_empty():
    values, index = selection.top_k(np.zeros((2, 3), np.float32), np.array([0]))
    assert values.shape == index.shape == (2, 0)


@pytest.mark.parametrize("is_sorted", [0, 1])
def test_unique_reconstructs_its_input(is_sorted):
    for x in (
        np.random.default_rng(4).integers(0, 4, (6, 3)).astype(np.float32),
        np.array([["b", "a"], ["b", "a"], ["a", "c"]], object),
        np.zeros((0, 2), np.int64),
    ):
        y, first, inverse, counts = selection.unique(x, axis=0, sorted=is_sorted)
        np.testing.assert_array_equal(y[inverse], x)
        np.testing.assert_array_equal(x[first], y)
        assert counts.sum() == len(x)
        flat, _, back, _ = selection.unique(x, sorted=is_sorted)
        np.testing.assert_array_equal(flat[back], x.reshape(-1))


def test_cumulative_sums_run_both_ways_with_and_without_the_element():
    x, axis = np.array([[1, 2, 3]], np.int32), np.array(1)
    np.testing.assert_array_equal(cumulative.cum_sum(x, axis), [[1, 3, 6]])
    np.testing.assert_array_equal(cumulative.cum_sum(x, axis, exclusive=1), [[0, 1, 3]])
    np.testing.assert_array_equal(cumulative.cum_sum(x, axis, exclusive=1, reverse=1), [[5, 3, 0]])
    np.testing.assert_array_equal(cumulative.cum_prod(x, axis, reverse=1), [[6, 6, 3]])
    assert cumulative.cum_sum(x[:, :0], axis, exclusive=1).shape == (1, 0)


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda dtype: dtype.__name__)
def test_softmax_sums_to_one_and_survives_large_inputs(dtype):
    x = np.array([[1000.0, 1000.0], [-1000.0, 0.0]]).astype(dtype)
    got = softmax.softmax(x)
    assert got.dtype == x.dtype
    np.testing.assert_array_equal(got.astype(np.float64), [[0.5, 0.5], [0, 1]])


def test_softmax_to_opset_12_flattens_from_the_axis():
    x = np.random.default_rng(5).normal(size=(2, 3, 4)).astype(np.float32)
    got = softmax.softmax_flattened(x, axis=1)
    np.testing.assert_allclose(got.reshape(2, -1).sum(axis=1), [1, 1], rtol=1e-6)
    np.testing.assert_allclose(softmax.softmax(x, axis=1).sum(axis=1), np.ones((2, 4)), rtol=1e-6)
    assert softmax.log_softmax(np.zeros((0, 3), np.float32)).shape == (0, 3)


def test_matrix_products_of_narrow_floats_accumulate_wide():
    a = np.full((1, 4096), 1, np.float16)
    assert matrix_products.mat_mul(a, a.T) == 4096
    b = a.astype(ml_dtypes.bfloat16)
    assert matrix_products.mat_mul(b, b.T).astype(np.float32) == 4096


def test_gemm_ignores_c_when_beta_is_zero():
    a, c = np.eye(2, dtype=np.float32), np.full((2, 2), np.nan, np.float32)
    np.testing.assert_array_equal(matrix_products.gemm(a, a, c, beta=0.0, alpha=2.0), 2 * a)


def test_einsum_takes_three_operands_and_refuses_what_does_not_fit():
    generator = np.random.default_rng(6)
    a, b, c = (generator.normal(size=s) for s in ((2, 3), (3, 4), (4, 5)))
    got = matrix_products.einsum(a, b, c, equation="ij, jk, kl -> il")
    np.testing.assert_allclose(got, a @ b @ c)
    with pytest.raises(InvalidArgument, match="names 2 inputs"):
        matrix_products.einsum(a, equation="ij,jk")
    with pytest.raises(InvalidArgument, match="does not fit"):
        matrix_products.einsum(a, b, equation="ij,kj")


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("seed", range(12))
def test_a_few_of_long_rows_are_those_of_a_whole_stable_sort(seed, largest):
    generator = np.random.default_rng(seed)
    length, k = int(generator.integers(selection.MIN_SELECTED, 4000)), int(generator.integers(1, 500))
    x = generator.standard_normal((2, length)).astype(np.float32)
    if seed % 3 == 0:
        x = generator.integers(0, 4, x.shape).astype((np.int64, np.uint8, np.float64, np.float16)[seed // 3])  # ties
    if seed % 3 == 1:
        x[generator.random(x.shape) < (0.01, 0.5, 0.9, 1.0)[seed // 3]] = np.nan
        x[:, ::5] = -0.0
    keys = np.where(np.isnan(x), np.inf, x.astype(np.float64)), np.isnan(x)  # NaN counts as larger than infinity
    for axis in (1, 0):
        along = x if axis else np.ascontiguousarray(x.T)
        values, found = selection.top_k(along, np.array([k]), axis=axis, largest=int(largest))
        sign = -1 if largest else 1
        for row, wanted in enumerate(found if axis else found.T):
            places = np.lexsort((np.arange(length), sign * keys[0][row], sign * keys[1][row]))[:k]
            assert np.array_equal(wanted, places)
        assert np.array_equal(values, np.take_along_axis(along, found, axis), equal_nan=x.dtype.kind == "f")
