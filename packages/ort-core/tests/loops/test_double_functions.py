"""Elementary functions through float64: within an ulp over all of float32, special values as numpy's."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from ort_core.cpu.codegen.llvm_ir.emitter import module_text
from ort_core.cpu.codegen.machine_code.jit import compile_module
from ort_core.cpu.codegen.machine_code.llvm_targets import host_target, restricted_target
from ort_core.cpu.codegen.nests.elementwise_nests import DENSE, ElementwiseNest, NestInput, elementwise_kernel
from ort_core.cpu.threads.pool import ThreadPool
from ort_core.loops import double_functions
from ort_core.loops.scalar import Scalar, element
from ort_core.plugin.ir import DataType

F32 = DataType.FLOAT
STRIDE = 8_191  # of bit patterns: 524,353 floats of all exponents
MAX_ULP = 1.0
TRUTH: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "sinh": np.sinh, "cosh": np.cosh,
    "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
}  # fmt: skip
SPECIAL = np.array(
    [0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 0.5, -0.5, 2, -2, 1e-45, -1e-40, 3.4e38, -3.4e38, 3, -3, 1.5, 1e9, 7],
    np.float32,
)


def computed(function: Callable[..., Scalar], *arrays: np.ndarray, without: tuple[str, ...] = ()) -> np.ndarray:
    target = restricted_target(*without) if without else host_target()
    expression = function(*(element(number, F32) for number in range(len(arrays))))
    nest = ElementwiseNest(1, (NestInput(F32, DENSE),) * len(arrays), ((expression, F32),))
    kernel = elementwise_kernel(nest, target)
    module = compile_module(module_text(kernel.generate(kernel.name)), target)
    result = np.empty_like(arrays[0])
    words = [result.ctypes.data, *(a.ctypes.data for a in arrays), result.size, *(1 for _ in arrays)]
    table = np.array(words, np.int64)
    steps = np.array([module.address(kernel.name), table.ctypes.data, 1], np.int64)
    ThreadPool(1).run(int(steps.ctypes.data), 1)
    return result


def distance_in_ulp(found: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Return the distance to the truth (float64) in ulp of float32, of the least normal number below it."""
    exact = np.float32(expected)
    same = (found == exact) | (np.isnan(found) & np.isnan(expected))
    step = np.spacing(np.maximum(np.abs(exact), np.float32(2.0**-126))).astype(np.float64)
    return np.where(same, 0.0, np.abs(found.astype(np.float64) - expected) / step)


@pytest.mark.parametrize("without", [(), ("avx512", "amx")], ids=["host", "AVX2"])
@pytest.mark.parametrize("name", list(TRUTH))
def test_function_is_within_an_ulp_over_all_of_float32(name: str, without: tuple[str, ...]) -> None:
    x = np.concatenate([
        np.arange(0, 2**32, STRIDE, np.uint64).astype(np.uint32).view(np.float32),
        np.linspace(-1.2, 1.2, 50_001, dtype=np.float32), np.linspace(-100, 100, 50_001, dtype=np.float32), SPECIAL,
    ])  # fmt: skip
    with np.errstate(all="ignore"):
        expected = TRUTH[name](x.astype(np.float64))
        errors = distance_in_ulp(computed(getattr(double_functions, name), x, without=without), expected)
    assert not np.isnan(errors).any(), f"{name}({x[np.isnan(errors)][:5]}) is NaN where it should not be, or not NaN"
    worst = int(np.argmax(errors))
    assert errors[worst] <= MAX_ULP, f"{name}({x[worst]!r}) is off by {errors[worst]:.2f} ulp"


def test_sine_near_a_multiple_of_pi_keeps_its_digits() -> None:
    x = np.array([16367173 * 2.0**72, 22.0, 355.0, 104348.0, 1e22], np.float32)
    expected = np.sin(x.astype(np.float64))  # numpy reduces float64 exactly
    assert distance_in_ulp(computed(double_functions.sin, x), expected).max() <= MAX_ULP


def test_power_is_within_an_ulp_and_has_the_special_values_of_c() -> None:
    random = np.random.default_rng(3)
    bases, exponents = (a.ravel() for a in np.meshgrid(SPECIAL, SPECIAL))
    x = np.concatenate([bases, random.uniform(0, 50, 100_000), random.uniform(-9, 9, 1000)]).astype(np.float32)
    y = np.concatenate([exponents, random.uniform(-20, 20, 100_000), random.integers(-9, 9, 1000)]).astype(np.float32)
    with np.errstate(all="ignore"):
        expected = np.power(x.astype(np.float64), y.astype(np.float64))
        errors = distance_in_ulp(computed(double_functions.power, x, y), expected)
    assert not np.isnan(errors).any(), [*zip(x[np.isnan(errors)], y[np.isnan(errors)], strict=True)][:9]
    worst = int(np.argmax(errors))
    assert errors[worst] <= MAX_ULP, f"{x[worst]!r} ** {y[worst]!r} is off by {errors[worst]:.2f} ulp"


@pytest.mark.parametrize("without", [(), ("avx512", "amx"), ("fma", "avx", "amx")], ids=["host", "AVX2", "SSE"])
def test_remainders_are_exact_for_quotients_of_any_size(without: tuple[str, ...]) -> None:
    random = np.random.default_rng(11)
    bits = random.integers(0, 2**32, (2, 200_000), np.uint64).astype(np.uint32).view(np.float32)
    near = random.uniform(-1e3, 1e3, (2, 100_000)).astype(np.float32)
    whole = random.integers(-50, 50, (2, 50_000)).astype(np.float32)
    products = np.stack([near[0] * np.rint(near[1]), near[0]])  # near whole quotients
    a, b = np.concatenate([bits, near, whole, products, np.nextafter(products, np.float32(9e9))], axis=1)
    a, b = (np.append(each, pair) for each, pair in zip((a, b), np.meshgrid(SPECIAL, SPECIAL), strict=True))
    found = computed(double_functions.remainder, a, b, without=without)
    with np.errstate(all="ignore"):
        expected = np.fmod(a, b)
    is_nan = np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(found), is_nan)
    np.testing.assert_array_equal(found[~is_nan].view(np.int32), expected[~is_nan].view(np.int32))
