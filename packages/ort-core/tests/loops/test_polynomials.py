"""Elementary functions as polynomials: their stated errors hold over all of float32, and special values are right."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from compiled_scalar import SPECIAL, compiled, errors_in_ulp, every_stride

from ort_core.loops import polynomials


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return np.where(x >= 0, 1 / (1 + np.exp(-x)), np.exp(x) / (1 + np.exp(x)))


def _erf(x: np.ndarray) -> np.ndarray:
    return np.array([math.erf(v) for v in x.tolist()])


TRUTH: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "exp": np.exp, "exp_of_negative": np.exp, "log": np.log, "tanh": np.tanh, "sigmoid": _sigmoid, "erf": _erf,
    "exp2_of_negative": np.exp2, "expm1_of_negative": np.expm1, "log1p_of_fraction": np.log1p,
}  # fmt: skip


def computed(name: str, x: np.ndarray, *, without: tuple[str, ...] = ()) -> np.ndarray:
    return compiled(getattr(polynomials, name), x, without=without)


def in_domain(name: str, x: np.ndarray) -> np.ndarray:
    if name.endswith("_of_fraction"):
        return x[~((x < 0) | (x > 1))]
    return x[~(x > 0)] if name.endswith("_of_negative") else x


@pytest.mark.parametrize("name", list(polynomials.MAX_ULP))
def test_polynomial_keeps_its_stated_error_over_all_of_float32(name: str) -> None:
    x = every_stride() if name != "erf" else every_stride()[::8]
    near = np.linspace(-110 if name != "log" else 0.5, 110 if name != "log" else 2, 100_003, dtype=np.float32)
    x = in_domain(name, np.concatenate([x, near, np.linspace(-5, 5, 100_003, dtype=np.float32)]))
    with np.errstate(all="ignore"):
        expected = TRUTH[name](x.astype(np.float64))
        expected = np.where(np.abs(expected) > np.finfo(np.float32).max, np.sign(expected) * np.inf, expected)
        errors = errors_in_ulp(computed(name, x), expected)
    worst = int(np.nanargmax(errors))
    assert errors[worst] <= polynomials.MAX_ULP[name], f"{name}({x[worst]!r}) is off by {errors[worst]:.2f} ulp"
    assert not np.isnan(errors).any(), f"{name}({x[np.isnan(errors)][:5]}) is NaN where it should not be, or not NaN"


@pytest.mark.parametrize("without", [(), ("avx512", "amx")], ids=["host", "AVX2"])
@pytest.mark.parametrize("name", list(polynomials.MAX_ULP))
def test_polynomial_of_special_values_is_the_limit(name: str, without: tuple[str, ...]) -> None:
    x = np.tile(in_domain(name, SPECIAL), 3)  # whole vectors and a rest
    with np.errstate(all="ignore"):
        expected = TRUTH[name](x.astype(np.float64))
        found = computed(name, x, without=without)
        errors = errors_in_ulp(found, np.float32(expected).astype(np.float64))
    assert (errors <= polynomials.MAX_ULP[name]).all(), f"{name}: {x} gives {found}, not {expected}"


@pytest.mark.parametrize("name", ["tanh", "erf"])
def test_odd_polynomial_keeps_the_sign_of_zero(name: str) -> None:
    assert np.signbit(computed(name, np.array([-0.0, 0.0], np.float32))).tolist() == [True, False]
