"""Row formulas: in which passes they are computed, and what they are over numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ort_core import tolerances
from ort_core.ir.types import DataType
from ort_core.loops import rows
from ort_core.loops.numpy_evaluation import evaluate, evaluate_rows
from ort_core.loops.polynomials import exp
from ort_core.loops.rows import (
    RowSchedule,
    is_of_row,
    reads_rows,
    row_length,
    row_max,
    row_mean,
    row_min,
    row_prod,
    row_sum,
    scheduled,
)
from ort_core.loops.scalar import Scalar, element, operations

X = element(0, DataType.FLOAT)


def softmax(x: Scalar) -> Scalar:
    e = exp(x - row_max(x))
    return e / row_sum(e)


def test_reductions_that_need_each_other_are_passes_one_behind_the_other() -> None:
    mean = row_mean(X)
    variance = row_mean((X - mean) * (X - mean))
    plan = scheduled([(X - mean) / variance], 1)
    assert [[r.kind for r in each.reductions] for each in plan.passes] == [["sum"], ["sum"], []]
    assert [len(each.derived) for each in plan.passes] == [1, 1, 0], "the means are computed once a row"
    assert [k for k, _ in plan.passes[-1].stores] == [0]
    assert not any(reads_rows(expression) for each in plan.passes for _, expression in each.stores)


def test_reductions_that_do_not_need_each_other_share_a_pass() -> None:
    only, _ = scheduled([X - row_min(X), row_max(X)], 1).passes
    assert sorted(r.kind for r in only.reductions) == ["max", "min"]


def test_a_costly_expression_that_is_reduced_and_read_again_is_kept_in_the_output() -> None:
    plan = scheduled([softmax(X)], 1)
    assert [len(each.stores) for each in plan.passes] == [0, 1, 1]
    assert plan.passes[1].stores[0][1] is plan.passes[1].reductions[0].expression, "one object: it is printed once"
    ((_, last),) = plan.passes[2].stores
    assert [a.operation for a in last.arguments] == ["input", "row"]
    assert last.arguments[0].index == 1, "the output is read behind the only input"


def test_nothing_is_read_back_where_that_is_not_asked_for() -> None:
    plan = scheduled([softmax(X)], 1, reads_back=False)
    assert [len(each.stores) for each in plan.passes] == [0, 0, 1]
    assert _highest_input(plan) == 0


def test_a_cheap_expression_is_computed_again() -> None:
    plan = scheduled([X / row_sum(X * X)], 1)
    assert [len(each.stores) for each in plan.passes] == [0, 1]
    assert _highest_input(plan) == 0


def test_an_output_that_another_one_reads_is_stored_once_it_is_known_and_read_back() -> None:
    e = exp(X)
    plan = scheduled([e / row_sum(e), e, row_max(e)], 1)
    assert [[place for place, _ in each.stores] for each in plan.passes] == [[1], [0]]
    assert _highest_input(plan) == 2, "output 1 is read as the input behind output 0"
    centered = X - row_mean(X)
    plan = scheduled([centered, row_sum(centered * centered)], 1)
    assert [[place for place, _ in each.stores] for each in plan.passes] == [[], [0]], "no walk is left for it"


def _highest_input(plan: RowSchedule) -> int:
    found, stack = 0, [root for each in plan.passes for root in each.roots]
    while stack:
        node = stack.pop()
        stack.extend(node.arguments)
        found = max(found, node.index) if node.operation == "input" else found
    return found


def test_scheduling_walks_a_long_expression_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    x = X
    for _ in range(100):
        x = x * x + 1.0
    walked: list[int] = []
    walk = rows._walk

    def counted(*arguments: Any, **named: Any) -> list[Scalar]:
        found = walk(*arguments, **named)
        walked.append(len(found))
        return found

    monkeypatch.setattr(rows, "_walk", counted)
    scheduled([softmax(x)], 1)
    assert sum(walked) < 20 * operations(softmax(x)), "a walk for each of its operations is quadratic"


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
    whole, flag = element(0, DataType.INT8), element(0, DataType.BOOL)
    assert evaluate_rows([row_max(whole), row_prod(whole)], [np.empty((1, 0), np.int8)])[0].tolist() == [[-128]]
    assert evaluate_rows([row_prod(whole)], [np.empty((1, 0), np.int8)])[0].tolist() == [[1]]
    assert evaluate_rows([row_max(flag)], [np.array([[False, True]])])[0].tolist() == [[True]]
    assert np.isnan(evaluate_rows([row_max(X)], [np.array([[1, np.nan, 3]], np.float32)])[0])


def test_scalars_have_no_rows_and_integers_no_mean() -> None:
    with pytest.raises(ValueError, match="at least one axis"):
        evaluate_rows([row_sum(X)], [np.float32(1).reshape(())])
    with pytest.raises(ValueError, match="no elementwise value"):
        evaluate(row_sum(X), [np.ones(2, np.float32)])
    with pytest.raises(ValueError, match="row_mean of int32"):
        row_mean(element(0, DataType.INT32))
