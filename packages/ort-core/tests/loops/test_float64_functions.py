"""Elementary functions of float64: their stated errors hold against decimals of 45 digits, special values are right."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Context, Decimal, Overflow, localcontext

import numpy as np
import pytest
from compiled_scalar import compiled

from ort_core.ir.types import DataType
from ort_core.loops import float64_functions, polynomials
from ort_core.loops.gaussian_units import gelu, gelu_tanh
from ort_core.loops.scalar import Scalar, element

DIGITS = 45
SAMPLES = 250  # of each range
WITHOUT = pytest.mark.parametrize(
    "without", [(), ("avx512", "amx"), ("fma", "avx", "amx")], ids=["host", "AVX2", "SSE"]
)
NAMES = pytest.mark.parametrize("name", list(float64_functions.MAX_ULP))
BOTH = sorted(float64_functions.MAX_ULP.keys() & polynomials.MAX_ULP.keys())
Range = tuple[str, float, float]
RANGES: dict[str, list[Range]] = {
    "exp": [("even", -745.2, 709.8), ("even", -40, 40), ("even", -1, 1), ("even", -745.1, -708), ("powers", -20, 0)],
    "expm1_of_negative": [("even", -60, 0), ("even", -1.1, 0), ("negative powers", -20, 0)],
    "log": [("powers", -323, 308), ("even", 0.5, 2), ("near 1", -16, -1)],
    "log1p_of_fraction": [("even", 0, 1), ("even", 0.4, 0.52), ("powers", -18, 0)],
    "sigmoid": [("even", -745.1, 40), ("even", -40, 40), ("even", -3, 3), ("even", -745.1, -708)],
    "tanh": [("even", -25, 25), ("even", -1.5, 1.5), ("even", 0.5, 0.75), ("powers", -18, 0)],
    "erf": [("even", -6.5, 6.5), ("even", -1.2, 1.2), ("even", 0.95, 2), ("powers", -18, 0)],
    "erfc_of_positive": [("even", 0, 6), ("even", 0.95, 2), ("powers", -18, 0)],
}
SPECIAL = np.array([
    0.0, -0.0, math.inf, -math.inf, math.nan, 5e-324, -5e-324, 1e-310, -1e-310, 1.0, -1.0, 1e308, -1e308, 710.0, -746.0,
    709.782712893384, 745.2, -745.13321910194, 0.625, 6.0, -6.0, 22.0, 2.0**-1022, -(2.0**-1022), 0.5,
])  # fmt: skip


def _erf(x: Decimal) -> Decimal:
    """Return ``2 x / sqrt(pi) e**-x**2 (1 + 2 x**2 / 3 + (2 x**2)**2 / (3 * 5) + ...)``: no term is negative."""
    total = term = Decimal(1)
    number = 1
    while term > total * Decimal(10) ** -DIGITS:
        number += 2
        term *= 2 * x * x / number
        total += term
    return 2 * x * total * (-x * x).exp() / PI.sqrt()


PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459")
TRUTH: dict[str, Callable[[Decimal], Decimal]] = {
    "exp": Decimal.exp,
    "expm1_of_negative": lambda x: x.exp() - 1,
    "log": Decimal.ln,
    "log1p_of_fraction": lambda x: (1 + x).ln(),
    "sigmoid": lambda x: 1 / (1 + (-x).exp()),
    "tanh": lambda x: ((2 * x).exp() - 1) / ((2 * x).exp() + 1),
    "erf": _erf,
    "erfc_of_positive": lambda x: 1 - _erf(x),
}
LIMITS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "exp": np.exp, "expm1_of_negative": np.expm1, "log": np.log, "log1p_of_fraction": np.log1p, "tanh": np.tanh,
    "sigmoid": lambda x: np.exp(np.minimum(x, 0)) / (1 + np.exp(-np.abs(x))),
    "erf": lambda x: np.array([math.erf(v) for v in x.tolist()]),
    "erfc_of_positive": lambda x: np.array([math.erfc(v) if not v > 6 else 0.0 for v in x.tolist()]),
}  # fmt: skip


def samples(ranges: list[Range]) -> np.ndarray:
    random, found = np.random.default_rng(5), []
    for kind, low, high in ranges:
        drawn = random.uniform(low, high, SAMPLES)
        signs = random.choice([-1.0, 1.0], SAMPLES)
        found.append(
            {
                "even": lambda x=drawn: x,
                "powers": lambda x=drawn: 10.0**x,
                "negative powers": lambda x=drawn: -(10.0**x),
                "near 1": lambda x=drawn, s=signs: 1 + s * 10.0**x,
            }[kind]()
        )
    return np.concatenate(found)


def errors(name: str, x: np.ndarray, found: np.ndarray) -> np.ndarray:
    """Return the distance to the truth in ulp of the truth; infinite where that is and the result is not."""
    ulp = []
    with localcontext(Context(prec=DIGITS + 20)) as context:
        context.traps[Overflow] = False
        for value, result in zip(x.tolist(), found.tolist(), strict=True):
            truth = TRUTH[name](Decimal(value))
            step = Decimal(math.ulp(float(truth)))
            same = float(truth) == result
            ulp.append(0.0 if same and math.isinf(result) else float(abs(Decimal(result) - truth) / step))
    return np.array(ulp)


@WITHOUT
@NAMES
def test_function_keeps_its_stated_error(name: str, without: tuple[str, ...]) -> None:
    x = samples(RANGES[name])
    found = compiled(getattr(float64_functions, name), x, without=without)
    ulp = errors(name, x, found)
    worst = int(np.argmax(ulp))
    assert ulp[worst] <= float64_functions.MAX_ULP[name], f"{name}({x[worst]!r}) is off by {ulp[worst]:.2f} ulp"


@WITHOUT
@NAMES
def test_function_of_special_values_is_the_limit(name: str, without: tuple[str, ...]) -> None:
    inside = {"expm1_of_negative": ~(SPECIAL > 0), "log1p_of_fraction": ~((SPECIAL < 0) | (SPECIAL > 1)),
              "erfc_of_positive": ~(SPECIAL < 0)}  # fmt: skip
    x = np.tile(SPECIAL[inside.get(name, np.ones_like(SPECIAL, bool))], 3)  # whole vectors and a rest
    with np.errstate(all="ignore"):
        expected = LIMITS[name](x)
        found = compiled(getattr(float64_functions, name), x, without=without)
        exact = (found == expected) | (np.isnan(found) & np.isnan(expected))
        near = np.abs(found - expected) <= float64_functions.MAX_ULP[name] * np.spacing(np.abs(expected))
    assert (exact | near).all(), f"{name}: {x} gives {found}, not {expected}"


@pytest.mark.parametrize("name", ["tanh", "erf"])
def test_odd_function_keeps_the_sign_of_zero(name: str) -> None:
    found = compiled(getattr(float64_functions, name), np.array([-0.0, 0.0]))
    assert np.signbit(found).tolist() == [True, False]


@NAMES
def test_vectors_and_single_elements_give_the_same_bits(name: str) -> None:
    x = samples(RANGES[name])[: 8 * 16]
    together = compiled(getattr(float64_functions, name), x)
    alone = np.concatenate([compiled(getattr(float64_functions, name), x[i : i + 1]) for i in range(0, x.size, 96)])
    assert together[::96].tobytes() == alone.tobytes()


@pytest.mark.parametrize("name", list(BOTH))
def test_float32s_functions_hand_float64_on(name: str) -> None:
    x = samples(RANGES[name])[:100]
    of_both: Callable[[Scalar], Scalar] = getattr(polynomials, name)
    assert compiled(of_both, x).tobytes() == compiled(getattr(float64_functions, name), x).tobytes()


def test_integers_have_no_form() -> None:
    for name in BOTH:
        with pytest.raises(polynomials.UnsupportedTypeError, match="int64"):
            getattr(polynomials, name)(element(0, DataType.INT64))


def test_gelu_keeps_the_digits_of_small_results() -> None:
    x = np.concatenate([np.linspace(-8.4, 10, 301), [0.0, -0.0, 1e-300, -1e-300, 40.0, -40.0, math.inf]])
    found = compiled(gelu, x)
    expected = np.array([0.5 * v * math.erfc(-v * math.sqrt(0.5)) if abs(v) < 9 else max(v, 0) for v in x.tolist()])
    np.testing.assert_allclose(found, expected, rtol=1e-13, atol=0)
    assert np.isnan(compiled(gelu, np.array([-math.inf, math.nan]))).all(), "an infinity times zero"


def test_gelu_with_a_tangent_keeps_the_digits_of_small_results() -> None:
    x = np.concatenate([np.linspace(-20, 10, 301), [0.0, -0.0, 1e-300, -1e-300, 1e200, -1e200, math.inf]])
    found = compiled(gelu_tanh, x)
    with np.errstate(over="ignore"):
        twice = 2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
        expected = x * np.where(twice < 0, np.exp(np.minimum(twice, 0)), 1) / (1 + np.exp(-np.abs(twice)))
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=0)
    assert np.isnan(compiled(gelu_tanh, np.array([-math.inf, math.nan]))).all(), "an infinity times zero"
