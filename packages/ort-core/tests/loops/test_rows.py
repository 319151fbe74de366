"""Row formulas: in which passes they are computed, and what they are over numpy."""

from __future__ import annotations

import numpy as np
import pytest

from ort_core import tolerances
from ort_core.ir.types import DataType
from ort_core.loops.numpy_evaluation import evaluate, evaluate_rows
from ort_core.loops.polynomials import exp
from ort_core.loops.rows import is_of_row, reads_rows, row_length, row_max, row_mean, row_min, row_sum, scheduled
from ort_core.loops.scalar import Scalar, element

X = element(0, DataType.FLOAT)


def softmax(x: Scalar) -> Scalar:
    e = exp(x - row_max(x))
    return e / row_sum(e)


def test_reductions_that_need_each_other_are_passes_one_behind_the_other() -> None:
    mean = row_mean(X)
    variance = row_mean((X - mean) * (X - mean))
    plan = scheduled([(X - mean) / variance], 1)
    assert [[r.kind for r in each.reductions] for each in plan.passes] == [["sum"], ["sum"]]
    assert [len(each.derived) for each in plan.passes] == [1, 1], "the means are computed once a row"
    assert [k for k, _ in plan.elements] == [0]
    assert not any(reads_rows(expression) for _, expression in plan.elements)


def test_reductions_that_do_not_need_each_other_share_a_pass() -> None:
    (only,) = scheduled([X - row_min(X), row_max(X)], 1).passes
    assert sorted(r.kind for r in only.reductions) == ["max", "min"]


def test_a_costly_expression_that_is_reduced_and_read_again_is_kept_in_the_output() -> None:
    plan = scheduled([softmax(X)], 1)
    assert [each.kept is not None for each in plan.passes] == [False, True]
    assert plan.passes[1].kept is plan.passes[1].reductions[0].expression, "one object: it is printed once"
    ((_, last),) = plan.elements
    assert [a.operation for a in last.arguments] == ["input", "row"]
    assert last.arguments[0].index == 1, "the output is read behind the only input"


def test_a_cheap_expression_is_computed_again() -> None:
    assert all(each.kept is None for each in scheduled([X / row_sum(X * X)], 1).passes)


def test_nothing_is_kept_where_two_outputs_have_elements() -> None:
    e = exp(X)
    assert all(each.kept is None for each in scheduled([e / row_sum(e), e], 1).passes)


def test_values_of_the_row_are_told_from_elements() -> None:
    assert is_of_row(row_mean(X * 2.0) + 1.0)
    assert not is_of_row(X - row_mean(X))
    assert not reads_rows(X * 2.0)
    assert reads_rows(row_length() * 2.0)


def test_formulas_over_numpy_are_what_float64_says() -> None:
    x = np.random.default_rng(0).normal(0, 3, (4, 5, 300)).astype(np.float32)
    scaled, mean, count = evaluate_rows([softmax(X), row_mean(X), row_length()], [x])
    wide = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True))
    limits = tolerances.tolerance("rounding", "float32")
    np.testing.assert_allclose(scaled, wide / wide.sum(-1, keepdims=True), limits.relative, limits.absolute)
    np.testing.assert_allclose(mean, x.mean(-1, keepdims=True, dtype=np.float64), limits.relative, limits.absolute)
    assert (mean.shape, count.shape, count[0, 0, 0]) == ((4, 5, 1), (4, 5, 1), 300)


def test_operands_broadcast_along_and_across_rows() -> None:
    weight = element(1, DataType.FLOAT)
    x, w = np.ones((3, 1), np.float32), np.arange(4, dtype=np.float32)
    total, each = evaluate_rows([row_sum(weight), row_sum(X) + weight], [x, w])
    np.testing.assert_array_equal(total, np.full((3, 1), 6))
    np.testing.assert_array_equal(each, np.tile(w + 4, (3, 1)))


def test_empty_rows_have_neutral_values_and_nan_is_passed_on() -> None:
    low, high, total = evaluate_rows([row_min(X), row_max(X), row_sum(X)], [np.empty((2, 0), np.float32)])
    assert (low[0, 0], high[0, 0], total[0, 0]) == (np.inf, -np.inf, 0)
    assert np.isnan(evaluate_rows([row_max(X)], [np.array([[1, np.nan, 3]], np.float32)])[0])


def test_scalars_have_no_rows_and_integers_no_mean() -> None:
    with pytest.raises(ValueError, match="at least one axis"):
        evaluate_rows([row_sum(X)], [np.float32(1).reshape(())])
    with pytest.raises(ValueError, match="no elementwise value"):
        evaluate(row_sum(X), [np.ones(2, np.float32)])
    with pytest.raises(ValueError, match="row_mean of int32"):
        row_mean(element(0, DataType.INT32))
