"""Sizes with formulas: arithmetic equals that of integers for every value at which the conditions hold."""

from __future__ import annotations

import pickle
import random

import numpy as np
import pytest

from ort_ep_cuda.lowering.values.growing import Trace, evaluated, grows, key_of, larger, largest, smaller, today


def _calculate(numbers, rng):
    """Return what a random calculation gives: arithmetic, choices, and sizes taken apart and joined."""
    found = list(numbers)
    for _ in range(14):
        a, b = rng.choice(found), rng.choice(found)
        kind = rng.randrange(11)
        if kind == 0:
            found.append(a + b)
        elif kind == 1:
            found.append(a - b)
        elif kind == 2 and abs(today(a)) < 10**6 > abs(today(b)):
            found.append(a * b)
        elif kind == 3:
            found.append(a // b if b else a)
        elif kind == 4:
            found.append(a % b if b > 0 else b)
        elif kind == 5:
            found.append(smaller(a, b))
        elif kind == 6:
            found.append(larger(a, b))
        elif kind == 7:
            found.append(-(-a // 32))
        elif kind == 8:
            found.append(min(a, b) if a != b else 3 - a)
        elif kind == 9:
            found.append(a * 12 // 4)
        else:
            found.append(abs(a) + rng.randrange(4))
    return found


@pytest.mark.parametrize("seed", range(150))
def test_formulas_give_what_integers_give(seed):
    rng = random.Random(seed)
    values = [rng.randrange(1, 40) for _ in range(2)]
    trace = Trace()
    sizes = [trace.variable(value, value + 100) for value in values]
    traced = _calculate([*sizes, 7], random.Random(seed))
    formulas = [key_of(number) for number in traced]
    assert [today(number) for number in traced] == _calculate([*values, 7], random.Random(seed))
    for _ in range(40):
        others = [rng.randrange(0, 60) for _ in range(2)]
        atoms = trace.values_of(others)
        if atoms is not None and trace.holds(atoms):
            assert [evaluated(key, atoms) for key in formulas] == _calculate([*others, 7], random.Random(seed))


def test_conditions_that_hold_are_found_for_some_other_values():
    trace = Trace()
    size = trace.variable(5, 100)
    assert size * 64 > 3
    assert size != 1
    assert [bool(trace.holds(trace.values_of([n]))) for n in (1, 2, 90)] == [False, True, True]


def test_a_number_that_is_taken_out_is_fixed():
    for take in (
        int,
        float,
        str,
        repr,
        lambda n: f"{n:d}",
        lambda n: list(range(n)),
        lambda n: np.zeros(n),
        lambda n: n / 2,
    ):
        trace = Trace()
        take(trace.variable(5, 100))
        assert trace.holds(trace.values_of([5]))
        assert not trace.holds(trace.values_of([6]))


def test_numpy_leaves_arithmetic_to_sizes():
    trace = Trace()
    size = trace.variable(5, 100)
    for number in (np.int64(3) * size, size * np.int64(3), 3 * size):
        assert grows(number)
        assert (today(number), largest(number)) == (15, 300)


def test_what_does_not_depend_on_a_size_is_a_plain_integer():
    size = Trace().variable(5, 100)
    for number in (size - size, (size + 1) - size, 12 * size // size, (4 * size) // (2 * size), size % 1, size * 0):
        assert type(number) is int


def test_a_size_is_not_stored():
    with pytest.raises(TypeError, match="belongs to the lowering"):
        pickle.dumps(Trace().variable(5, 100))
    with pytest.raises(TypeError):
        assert Trace().variable(5, 100) < "5"
