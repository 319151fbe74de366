"""Arithmetic on elements that may be symbolic or unknown, and the broadcast of sizes."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from ort_core.ir.dims import SymbolicDim, broadcast, evaluate, minimum
from ort_core.ops import symbolic_values as sym
from ort_core.ops.windows import window_count

n, m = SymbolicDim.named("n"), SymbolicDim.named("m")


def test_unknown_elements_stay_unknown_except_where_zero_decides():
    assert sym.add(None, 3) is None
    assert sym.multiply(None, 0) == 0
    assert sym.logical_and(None, 0) == 0
    assert sym.logical_or(None, 1) == 1
    assert sym.choose(None, n, n) == n
    assert sym.choose(None, n, m) is None


def test_integral_floats_meet_sizes_as_integers():
    assert sym.multiply(n, 2.0) == 2 * n
    assert sym.divide_reals(2 * n, 2.0) == n
    assert sym.multiply(2 * n, 0.5) == n
    assert sym.multiply(n, 0.3) is None


def test_division_rounds_toward_zero_as_the_operator_does():
    for left, right in itertools.product(range(-7, 8), (-3, -2, 2, 3)):
        assert sym.divide_integers(left, right) == math.trunc(left / right)
    assert sym.divide_integers(n, 2).evaluate({"n": 5}) == 2
    assert sym.divide_integers(n, 0) is None
    for divisor, number in itertools.product((2, 3, 5), range(-9, 10)):
        for size in (n + number, -n + number, 2 * n - 7 + number):
            found = sym.divide_integers(size, divisor)
            for value in range(12):
                dividend = size.evaluate({"n": value})
                exact = found if isinstance(found, int) else found.evaluate({"n": value})
                assert exact == math.trunc(dividend / divisor), (size, divisor, value)


@pytest.mark.parametrize(
    ("left", "right", "expected"), [(n, n, 1), (n, -1, 0), (n + 1, n, 0), (n, 3, None), (2, 2.0, 1), (2.5, 2, 0)]
)
def test_equality_is_decided_only_when_it_holds_for_every_size(left, right, expected):
    assert sym.equal(left, right) == expected


def test_greater_uses_that_sizes_are_not_negative():
    assert sym.greater(n + 1, 0) == 1
    assert sym.greater(0, n) == 0
    assert sym.greater(n, 5) is None


def test_large_and_textual_arrays_are_not_taken_apart():
    assert sym.as_elements(np.zeros(sym.MAX_ELEMENTS + 1)) is None
    assert sym.as_elements(np.array(["a"], object)) is None
    assert sym.as_elements(np.array(True)).tolist() == 1


def test_broadcast_of_sizes_agrees_with_numpy_for_every_valid_pair():
    size = broadcast(n, m)
    for a, b in itertools.product(range(4), repeat=2):
        if a == b or 1 in (a, b):
            real = np.broadcast_shapes((a,), (b,))[0]
            assert evaluate(size, {"n": a, "m": b}) == real


def test_broadcast_is_idempotent_and_associative():
    k = SymbolicDim.named("k")
    assert broadcast(broadcast(n, m), n) == broadcast(n, m)
    assert broadcast(broadcast(n, m), k) == broadcast(n, broadcast(k, m))
    assert broadcast(n, 5) == broadcast(5, n) == 5
    assert broadcast(n, 1) == n
    assert broadcast(broadcast(n, m), k).substitute({"n": 1, "m": 1}) == k


def test_broadcast_of_a_size_with_its_bounded_self_is_that_size():
    assert broadcast(minimum(512, n), n) == n


@pytest.mark.parametrize("is_ceiled", [False, True])
@pytest.mark.parametrize("dilation", [1, 2])
def test_number_of_windows_of_a_symbolic_size_is_that_of_the_number(is_ceiled, dilation):
    for kernel, stride, before, after in itertools.product((1, 2, 3, 5), (1, 2, 3, 5), range(4), range(4)):
        reach = (kernel - 1) * dilation + 1
        symbolic = window_count(n, kernel, stride, dilation, (before, after), is_ceiled)
        assert symbolic is not None or after > reach
        for size in range(max(reach - before - after, 0), 14):
            counted = window_count(size, kernel, stride, dilation, (before, after), is_ceiled)
            assert symbolic is None or evaluate(symbolic, {"n": size}) == counted, (size, kernel, stride, before, after)
