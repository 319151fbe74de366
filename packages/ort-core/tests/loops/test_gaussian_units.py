"""Gaussian error linear units: their stated errors hold over all of float32, far below zero as well."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from compiled_scalar import SPECIAL, compiled, errors_in_ulp, every_stride

from ort_core.loops import gaussian_units
from ort_core.loops.scalar import Scalar

FLUSHED = 2.0**-122  # results below may be 0
FORMS: dict[str, Callable[[Scalar], Scalar]] = {"gelu": gaussian_units.gelu, "gelu_tanh": gaussian_units.gelu_tanh}


def _gelu(x: np.ndarray) -> np.ndarray:
    return x * np.array([0.5 * math.erfc(-v * math.sqrt(0.5)) for v in x.tolist()])


def _gelu_tanh(x: np.ndarray) -> np.ndarray:
    twice = 2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    return x * np.exp(np.minimum(twice, 0)) / (1 + np.exp(-np.abs(twice)))


TRUTH = {"gelu": _gelu, "gelu_tanh": _gelu_tanh}


def stated(name: str, x: np.ndarray) -> np.ndarray:
    rows = gaussian_units.MAX_ULP[name]
    return np.select([x >= low for low, _ in rows], [ulp for _, ulp in rows])


@pytest.mark.parametrize("without", [(), ("avx512", "amx")], ids=["host", "AVX2"])
@pytest.mark.parametrize("name", FORMS)
def test_unit_keeps_its_stated_error_over_all_of_float32(name: str, without: tuple[str, ...]) -> None:
    x = every_stride()[::8]
    near = np.linspace(-14, 14, 200_003, dtype=np.float32)
    x = np.concatenate([x[np.isfinite(x)], near, np.linspace(-1, 1, 50_003, dtype=np.float32)])
    with np.errstate(all="ignore"):
        expected = TRUTH[name](x.astype(np.float64))
        found = compiled(FORMS[name], x, without=without)
    is_tiny = np.abs(expected) < FLUSHED
    assert (np.abs(found[is_tiny]) <= 2 * FLUSHED).all()
    x, found, expected = x[~is_tiny], found[~is_tiny], expected[~is_tiny]
    excess = errors_in_ulp(found, expected) / stated(name, x)
    worst = int(np.argmax(excess))
    assert excess[worst] <= 1, f"{name}({x[worst]!r}) gives {found[worst]!r}, not {expected[worst]!r}"


@pytest.mark.parametrize("name", FORMS)
def test_unit_of_special_values_is_what_its_definition_gives(name: str) -> None:
    found = compiled(FORMS[name], np.concatenate([SPECIAL, SPECIAL]))[: SPECIAL.size]
    zero_or_half = np.where(np.abs(SPECIAL) < 1, SPECIAL / 2, np.float32(0))
    expected = np.where((SPECIAL > 1) | np.isnan(SPECIAL), SPECIAL, zero_or_half)
    expected = np.where(-np.inf == SPECIAL, np.nan, expected)  # an infinity times zero
    np.testing.assert_array_equal(
        np.where(np.abs(found) < FLUSHED, 0, found), np.where(np.abs(expected) < FLUSHED, 0, expected)
    )
    assert np.signbit(found[:2]).tolist() == [False, True], "the sign of zero"
