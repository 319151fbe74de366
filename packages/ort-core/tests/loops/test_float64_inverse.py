"""Inverse and hyperbolic functions of float64: their stated errors hold beside sums of 60 digits."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from decimal import Decimal

import numpy as np
import pytest
from compiled_scalar import check_error, compiled
from test_float64_circular import DIGITS, sine_and_cosine_of

from ort_core.loops import float64_inverse
from ort_core.loops.float64_inverse import MAX_ULP

SAMPLES = 250
NAMES = pytest.mark.parametrize("name", list(MAX_ULP))
SPECIAL = np.array(
    [0.0, -0.0, math.inf, -math.inf, math.nan, 5e-324, -1e-310, 1e-300, -1e-9, 1.0, -1.0, 2.0, -2.0, 710.4, -711, 1e300]
)
RANGES: dict[str, list[tuple[str, float, float]]] = {
    "asin": [("even", -1, 1), ("even", -0.51, 0.51), ("powers", -12, 0), ("near 1", -15, -1)],
    "acos": [("even", -1, 1), ("even", -0.51, 0.51), ("powers", -12, 0), ("near 1", -15, -1), ("near -1", -15, -1)],
    "atan": [("even", -3, 3), ("even", 0.4, 0.43), ("even", -1.1, -0.9), ("powers", -12, 18)],
    "sinh": [("even", -710.4, 710.4), ("even", -2, 2), ("even", 0.9, 1.1), ("powers", -12, 0)],
    "cosh": [("even", -710.4, 710.4), ("even", -2, 2), ("powers", -12, 0)],
    "asinh": [("even", -5, 5), ("even", 0.7, 0.8), ("powers", -12, 300), ("even", 2.0**28 - 99, 2.0**28 + 99)],
    "acosh": [("even", 1, 5), ("even", 1.2, 1.3), ("above 1", -15, 0), ("powers", 1, 300)],
    "atanh": [("even", -1, 1), ("even", 0.3, 0.36), ("powers", -12, -0.1), ("near 1", -15, -1)],
}


def _inverse(residue: Callable[[Decimal, Decimal, Decimal], tuple[Decimal, Decimal]], guess: float) -> Decimal:
    """Return the angle whose residue is 0, by three of Newton's steps."""
    angle = Decimal(guess)
    for _ in range(3):
        value, slope = residue(angle, *sine_and_cosine_of(angle))
        angle -= value / slope
    return angle


def truth(name: str, number: float) -> Decimal:
    x = Decimal(number)
    if name == "asin":
        return _inverse(lambda _, s, c: (s - x, c), math.asin(number))
    if name == "acos":
        return _inverse(lambda _, s, c: (c - x, -s), math.acos(number))
    if name == "atan":
        return _inverse(lambda _, s, c: (s - x * c, c + x * s), math.atan(number))
    made: dict[str, Callable[[], Decimal]] = {
        "sinh": lambda: (x.exp() - (-x).exp()) / 2, "cosh": lambda: (x.exp() + (-x).exp()) / 2,
        "asinh": lambda: (abs(x) + (x * x + 1).sqrt()).ln().copy_sign(x),
        "acosh": lambda: (x + (x * x - 1).sqrt()).ln(), "atanh": lambda: ((1 + x) / (1 - x)).ln() / 2,
    }  # fmt: skip
    return made[name]()


def samples(name: str) -> np.ndarray:
    random, found = np.random.default_rng(5), []
    for kind, low, high in RANGES[name]:
        drawn = random.uniform(low, high, SAMPLES)
        signs = random.choice([-1.0, 1.0], SAMPLES) if name != "acosh" else np.ones(SAMPLES)
        made = {
            "even": lambda x=drawn: x, "powers": lambda x=drawn, s=signs: s * 10.0**x,
            "near 1": lambda x=drawn: 1 - 10.0**x, "near -1": lambda x=drawn: 10.0**x - 1,
            "above 1": lambda x=drawn: 1 + 10.0**x,
        }  # fmt: skip
        found.append(made[kind]())
    return np.concatenate(found)


@NAMES
@pytest.mark.parametrize("without", [(), ("avx512", "amx"), ("fma", "avx", "amx")], ids=["host", "AVX2", "SSE"])
def test_function_keeps_its_stated_error(name: str, without: tuple[str, ...]) -> None:
    function, exact = getattr(float64_inverse, name), functools.partial(truth, name)
    check_error(function, exact, samples(name), MAX_ULP[name], digits=DIGITS + 30, without=without)


@NAMES
@pytest.mark.parametrize("without", [(), ("fma", "avx", "amx")], ids=["host", "SSE"])
def test_function_of_special_values_is_numpy_s(name: str, without: tuple[str, ...]) -> None:
    numpy_s = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "asinh": "arcsinh", "acosh": "arccosh"}
    numpy_s["atanh"] = "arctanh"
    with np.errstate(all="ignore"):
        expected = getattr(np, numpy_s.get(name, name))(SPECIAL)
        found = compiled(getattr(float64_inverse, name), SPECIAL, without=without)
        same = (found == expected) | (np.isnan(found) & np.isnan(expected))
        near = np.abs(found - expected) <= 4 * np.spacing(np.abs(expected))
    assert (same | near).all(), f"{name}: {SPECIAL} gives {found}, not {expected}"
    if not np.isnan(expected[0]):
        np.testing.assert_array_equal(np.signbit(found[:2]), np.signbit(expected[:2]))
