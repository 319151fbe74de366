"""Evaluates scalar expressions as compiled nests, and measures their errors in ulp."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal, localcontext

import numpy as np

from ort_core.cpu.codegen.llvm_ir.emitter import module_text
from ort_core.cpu.codegen.machine_code.jit import compile_module
from ort_core.cpu.codegen.machine_code.llvm_targets import host_target, restricted_target
from ort_core.cpu.codegen.nests.elementwise_nests import DENSE, ElementwiseNest, NestInput, elementwise_kernel
from ort_core.cpu.threads.pool import ThreadPool
from ort_core.ir.types import DataType
from ort_core.loops.scalar import Scalar, element

STRIDE = 4_099  # of bit patterns: 1,047,808 floats, all exponents, odd so that mantissas vary
LEAST_NORMAL = 2.0**-126
_SPECIAL = [0.0, -0.0, math.inf, -math.inf, math.nan, 1e-45, -1e-45, 1e-40, -1e-40, 3.4e38, -3.4e38]
SPECIAL = np.array(_SPECIAL, np.float32)


def compiled(function: Callable[[Scalar], Scalar], x: np.ndarray, *, without: tuple[str, ...] = ()) -> np.ndarray:
    """Return a function of the elements of a vector, of their type."""
    target, dtype = restricted_target(*without) if without else host_target(), DataType.from_numpy(x.dtype)
    nest = ElementwiseNest(1, (NestInput(dtype, DENSE),), ((function(element(0, dtype)), dtype),))
    kernel = elementwise_kernel(nest, target)
    module = compile_module(module_text(kernel.generate(kernel.name)), target)
    result = np.empty_like(x)
    table = np.array([result.ctypes.data, x.ctypes.data, x.size, 1], np.int64)
    steps = np.array([module.address(kernel.name), table.ctypes.data, 1], np.int64)
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


def every_stride() -> np.ndarray:
    patterns = np.arange(0, 2**32, STRIDE, np.uint64).astype(np.uint32)
    return patterns.view(np.float32)


def check_error(
    function: Callable[[Scalar], Scalar], truth: Callable[[float], Decimal], x: np.ndarray, most_ulp: float, *,
    digits: int, without: tuple[str, ...] = (),
) -> None:  # fmt: skip
    """Require that a compiled function of float64 is near its truth, which is computed in so many digits."""
    found = compiled(function, x, without=without)
    with localcontext() as context:
        context.prec = digits
        exact = [truth(value) for value in x.tolist()]
        ulp = [
            float(abs(Decimal(result) - each) / Decimal(math.ulp(float(each))))
            for each, result in zip(exact, found.tolist(), strict=True)
        ]
    worst = int(np.argmax(ulp))
    assert ulp[worst] <= most_ulp, f"of {x[worst]!r} it is off by {ulp[worst]:.2f} ulp"
