"""Elementary functions as polynomials: their stated errors hold over all of float32, and special values are right."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from ort_core.cpu.codegen.emitter import module_text
from ort_core.cpu.codegen.jit import compile_module, host_target, restricted_target
from ort_core.cpu.codegen.nests import DENSE, ElementwiseNest, NestInput, elementwise_kernel
from ort_core.cpu.threads.pool import ThreadPool
from ort_core.loops import polynomials
from ort_core.loops.scalar import Scalar, element

STRIDE = 4_099  # of bit patterns: 1,047,808 floats, all exponents, odd so that mantissas vary
LEAST_NORMAL = 2.0**-126
_SPECIAL = [0.0, -0.0, math.inf, -math.inf, math.nan, 1e-45, -1e-45, 1e-40, -1e-40, 3.4e38, -3.4e38]
SPECIAL = np.array(_SPECIAL, np.float32)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return np.where(x >= 0, 1 / (1 + np.exp(-x)), np.exp(x) / (1 + np.exp(x)))


def _erf(x: np.ndarray) -> np.ndarray:
    return np.array([math.erf(v) for v in x.tolist()])


TRUTH: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "exp": np.exp, "log": np.log, "tanh": np.tanh, "sigmoid": _sigmoid, "erf": _erf, "exp2_of_negative": np.exp2,
}  # fmt: skip


def computed(name: str, x: np.ndarray, *, without: tuple[str, ...] = ()) -> np.ndarray:
    function: Callable[[Scalar], Scalar] = getattr(polynomials, name)
    target = restricted_target(*without) if without else host_target()
    expression = function(element(0, polynomials.F32))
    nest = ElementwiseNest(1, (NestInput(polynomials.F32, DENSE),), ((expression, polynomials.F32),))
    symbol, kernel = elementwise_kernel(nest, target)
    module = compile_module(module_text([kernel]), target)
    result = np.empty_like(x)
    table = np.array([result.ctypes.data, x.ctypes.data, x.size, 1], np.int64)
    steps = np.array([module.address(symbol), table.ctypes.data, 1], np.int64)
    pool = ThreadPool(1)
    pool.run(int(steps.ctypes.data), 1)
    return result


def errors_in_ulp(found: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Return the distance to the truth in ulp of the truth; where the truth is subnormal or 0, of the least normal."""
    exact = np.float32(expected)
    same = (found == exact) | (np.isnan(found) & np.isnan(expected))
    step = np.spacing(np.maximum(np.abs(exact), np.float32(LEAST_NORMAL))).astype(np.float64)
    distance = np.abs(found.astype(np.float64) - expected) / step
    tiny = np.abs(expected) < LEAST_NORMAL
    flushed = tiny & (np.abs(found) <= LEAST_NORMAL)
    return np.where(same | flushed, 0.0, distance)


def in_domain(name: str, x: np.ndarray) -> np.ndarray:
    return x[~(x > 0)] if name == "exp2_of_negative" else x


def every_stride() -> np.ndarray:
    patterns = np.arange(0, 2**32, STRIDE, np.uint64).astype(np.uint32)
    return patterns.view(np.float32)


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
