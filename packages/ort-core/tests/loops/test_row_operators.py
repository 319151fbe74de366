"""What operators compute of rows, against float64 numpy; compilers print these formulas, other tests run them."""

from __future__ import annotations

import numpy as np
import pytest

from ort_core import tolerances
from ort_core.ir.types import DataType
from ort_core.loops import row_operators as operators
from ort_core.loops.numpy_evaluation import evaluate_rows
from ort_core.loops.rows import is_of_row
from ort_core.loops.scalar import Scalar, element

X = element(0, DataType.FLOAT)
AFFINE = element(1, DataType.FLOAT), element(2, DataType.FLOAT)


def rows(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0.5, 3, shape).astype(np.float32)


def check(root: Scalar, expected: np.ndarray, *arrays: np.ndarray) -> None:
    limits = tolerances.tolerance("approximate", "float32")
    (found,) = evaluate_rows([root], arrays)
    np.testing.assert_allclose(found, expected, limits.relative, limits.absolute)


def test_softmax_is_each_elements_share_of_the_powers() -> None:
    x = rows(5, 70)
    powers = np.exp(x.astype(np.float64))
    check(operators.softmax(X), powers / powers.sum(-1, keepdims=True), x)
    check(operators.log_softmax(X), np.log(powers / powers.sum(-1, keepdims=True)), x)


def test_a_row_that_is_masked_whole_is_zero_and_one_with_nan_is_nan() -> None:
    x = rows(5, 9)
    x[0], x[1, :5], x[2, 3] = -np.inf, -np.inf, np.nan
    x[4], x[4, 7] = -np.inf, np.nan
    powers = np.exp(x[[1, 3]].astype(np.float64))
    (found,) = evaluate_rows([operators.masked_softmax(X)], [x])
    assert not found[0].any()
    assert np.isnan(found[[2, 4]]).all()
    np.testing.assert_allclose(found[[1, 3]], powers / powers.sum(-1, keepdims=True), 1e-5, 1e-6)


@pytest.mark.parametrize("is_centered", [True, False])
def test_a_normalization_gives_its_statistics_too(is_centered: bool) -> None:
    x, scale, bias = rows(6, 33), rows(33, seed=1), rows(33, seed=2)
    normal = operators.normalized(X, 0.25, *AFFINE, is_centered=is_centered)
    wide = x.astype(np.float64)
    mean = wide.mean(-1, keepdims=True) if is_centered else 0.0
    inverse = 1 / np.sqrt(np.square(wide - mean).mean(-1, keepdims=True) + 0.25)
    check(normal.result, (wide - mean) * inverse * scale + bias, x, scale, bias)
    check(normal.inverse, inverse, x, scale, bias)
    assert is_of_row(normal.inverse)
    assert (normal.mean is None) is not is_centered
    if normal.mean is not None:
        check(normal.mean, np.asarray(mean), x, scale, bias)
    check(operators.normalized(X, 0.25, is_centered=is_centered).result, (wide - mean) * inverse, x)


def test_other_normalizations_leave_rows_of_zeros_as_they_are() -> None:
    x = rows(4, 20)
    x[1] = 0
    wide = x.astype(np.float64)
    lengths = {1: np.abs(wide).sum(-1, keepdims=True), 2: np.sqrt(np.square(wide).sum(-1, keepdims=True))}
    largest = wide.max(-1, keepdims=True)
    for p, norm in lengths.items():
        check(operators.lp_normalized(X, p), wide / np.where(norm == 0, 1, norm), x)
        check(operators.normalizer(X, f"L{p}"), wide / np.where(norm == 0, 1, norm), x)
    check(operators.normalizer(X, "MAX"), wide / np.where(largest == 0, 1, largest), x)
    centered = wide - wide.mean(-1, keepdims=True)
    deviation = np.sqrt(np.square(centered).mean(-1, keepdims=True))
    check(operators.mean_variance_normalized(X), centered / (deviation + 1e-9), x)


def test_a_range_of_values_has_zero_in_it() -> None:
    x = np.array([[1, 2, 3], [-3, -2, -1], [-1, 0, 5]], np.float32)
    low, high = evaluate_rows(operators.value_range(X), [x])
    assert (low[:, 0].tolist(), high[:, 0].tolist()) == ([0, -3, -1], [3, 0, 5])


REDUCED = {
    "ReduceSum": np.sum, "ReduceMean": np.mean, "ReduceMax": np.max, "ReduceMin": np.min, "ReduceProd": np.prod,
    "ReduceL1": lambda x, **how: np.abs(x).sum(**how), "ReduceSumSquare": lambda x, **how: np.square(x).sum(**how),
    "ReduceL2": lambda x, **how: np.sqrt(np.square(x).sum(**how)),
    "ReduceLogSum": lambda x, **how: np.log(x.sum(**how)),
    "ReduceLogSumExp": lambda x, **how: np.log(np.exp(x).sum(**how)),
}  # fmt: skip


def test_every_reduction_has_a_case_here() -> None:
    assert set(REDUCED) == operators.REDUCTIONS


@pytest.mark.parametrize("op_type", sorted(REDUCED))
def test_reductions_of_floats(op_type: str) -> None:
    x = np.abs(rows(5, 40)) / 4 + np.float32(0.5)
    expected = REDUCED[op_type](x.astype(np.float64), axis=-1, keepdims=True)
    check(operators.reduction_of(op_type, X), expected, x)


def test_a_sum_of_exponentials_of_infinities_is_one() -> None:
    x = np.array([[-np.inf, -np.inf], [np.inf, 0], [-np.inf, 2]], np.float32)
    (found,) = evaluate_rows([operators.reduction_of("ReduceLogSumExp", X)], [x])
    assert found[:, 0].tolist()[:2] == [-np.inf, np.inf]
    assert found[2, 0] == pytest.approx(2)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32])
@pytest.mark.parametrize("op_type", ["ReduceSum", "ReduceL1", "ReduceSumSquare"])
def test_sums_of_integers_stop_at_the_limits_of_their_type(op_type: str, dtype: type) -> None:
    limits = np.iinfo(dtype)
    lows, highs, mixed = [limits.min] * 4, [limits.max] * 4, [limits.min, limits.max, 3, 1]
    x = np.array([lows, highs, mixed, [1, 2, 3, 4]], dtype)
    whole = [[int(v) for v in row] for row in x]
    summand = {"ReduceSum": int, "ReduceL1": abs, "ReduceSumSquare": lambda v: v * v}[op_type]
    exact = [min(max(sum(map(summand, row)), limits.min), limits.max) for row in whole]
    (found,) = evaluate_rows([operators.reduction_of(op_type, element(0, DataType.from_numpy(x.dtype)))], [x])
    assert (found.dtype, found[:, 0].tolist()) == (np.dtype(dtype), exact)


def test_sums_of_int64_stop_at_its_limits_and_are_exact_below_them() -> None:
    least, most = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    rows = [
        [most, most, most],
        [least, least, -1],
        [most, least, most],
        [most, 1, -1],
        [least, -1, 1],
        [-3, 2, 1 << 40],
    ]
    random = np.random.default_rng(1).integers(least // 3, most // 3, (20, 3))
    x = np.concatenate([np.array(rows, np.int64), random])
    exact = [min(max(sum(map(int, row)), least), most) for row in x]
    (found,) = evaluate_rows([operators.reduction_of("ReduceSum", element(0, DataType.INT64))], [x])
    assert (found.dtype, found[:, 0].tolist()) == (np.dtype(np.int64), exact)
