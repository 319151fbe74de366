"""Powers of float64: their stated error holds beside sums of 60 digits, special values are C's."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
from test_double_functions import F32

from ort_core.cpu.codegen.llvm_ir.emitter import module_text
from ort_core.cpu.codegen.machine_code.jit import compile_module
from ort_core.cpu.codegen.machine_code.llvm_targets import host_target, restricted_target
from ort_core.cpu.codegen.nests.elementwise_nests import DENSE, ElementwiseNest, NestInput, elementwise_kernel
from ort_core.cpu.threads.pool import ThreadPool
from ort_core.loops.float64_power import MAX_ULP, power
from ort_core.loops.meanings import meaning_of
from ort_core.loops.scalar import Scalar, element
from ort_core.plugin.ir import DataType

F64, DIGITS = DataType.DOUBLE, 60
WITHOUT = pytest.mark.parametrize(
    "without", [(), ("avx512", "amx"), ("fma", "avx", "amx")], ids=["host", "AVX2", "SSE"]
)


def computed(x: np.ndarray, y: np.ndarray, without: tuple[str, ...]) -> np.ndarray:
    target = restricted_target(*without) if without else host_target()
    nest = ElementwiseNest(1, (NestInput(F64, DENSE),) * 2, ((power(element(0, F64), element(1, F64)), F64),))
    kernel = elementwise_kernel(nest, target)
    module = compile_module(module_text(kernel.generate(kernel.name)), target)
    result = np.empty_like(x)
    table = np.array([result.ctypes.data, x.ctypes.data, y.ctypes.data, x.size, 1, 1], np.int64)
    steps = np.array([module.address(kernel.name), table.ctypes.data, 1], np.int64)
    ThreadPool(1).run(int(steps.ctypes.data), 1)
    return result


def samples() -> tuple[np.ndarray, np.ndarray]:
    """Return bases and exponents of all sizes whose powers are finite, some near both ends of the range."""
    random = np.random.default_rng(7)
    x = np.concatenate([
        random.uniform(0, 3, 500), 10.0 ** random.uniform(-300, 300, 500), 1 + 10.0 ** random.uniform(-15, -1, 300),
        1 - 10.0 ** random.uniform(-15, -1, 300), random.uniform(0.7, 1.42, 400), [5e-324, 1e-310, 2.0**-1022, 1e308],
    ])  # fmt: skip
    most = 709 / np.abs(np.log(x))
    y = np.where(random.random(x.size) < 0.5, random.uniform(-1, 1, x.size) * most, random.uniform(-5, 5, x.size))
    y = np.where(random.random(x.size) < 0.2, np.sign(y) * most * 0.999, y)
    return x, np.clip(y, -most, most)


@WITHOUT
def test_power_keeps_its_stated_error(without: tuple[str, ...]) -> None:
    x, y = samples()
    found, ulp = computed(x, y, without), []
    with localcontext() as context:
        context.prec = DIGITS + 30
        for base, exponent, result in zip(x.tolist(), y.tolist(), found.tolist(), strict=True):
            exact = (Decimal(exponent) * Decimal(base).ln()).exp()
            ulp.append(float(abs(Decimal(result) - exact) / Decimal(math.ulp(float(exact)))))
    worst = int(np.argmax(ulp))
    assert ulp[worst] <= MAX_ULP, f"{x[worst]!r}**{y[worst]!r} is off by {ulp[worst]:.2f} ulp"


@WITHOUT
def test_power_of_special_values_is_c_s(without: tuple[str, ...]) -> None:
    some = [0.0, -0.0, 1, -1, 0.5, -0.5, 2, -2, 3, -3, 1e300, -1e300, 1e-320, -1e-320, math.inf, -math.inf, math.nan,
            2.0**53, -(2.0**53) - 2, 1.0000000000000002, 1e17 + 16]  # fmt: skip
    x, y = (each.reshape(-1) for each in np.meshgrid(some, some))
    with np.errstate(all="ignore"):
        expected = np.power(x, y)
        found = computed(x, y, without)
        same = (found == expected) | (np.isnan(found) & np.isnan(expected))
        near = np.abs(found - expected) <= MAX_ULP * np.spacing(np.abs(expected))
    assert (same | near).all(), [(x[i], y[i], found[i], expected[i]) for i in np.flatnonzero(~(same | near))][:5]
    number = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(found[number]), np.signbit(expected[number]))


def test_operands_of_two_types_are_left_to_the_kernel() -> None:
    for of_base, of_exponent in ((F64, F32), (F32, F64)):
        assert not isinstance(meaning_of("", "Pow", [element(0, of_base), element(1, of_exponent)], {}), Scalar)
