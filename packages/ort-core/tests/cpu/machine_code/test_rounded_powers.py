"""Powers of two that are to be rounded to bfloat16: the stated error over all of float32, and the limits."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_calls import compiled

from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, module_text
from ort_core.cpu.codegen.llvm_ir.rounded_powers import MAX_ERROR, rounded_power
from ort_core.cpu.codegen.llvm_ir.vectors import load_vector, store_vector
from ort_core.cpu.codegen.machine_code.llvm_targets import host_target
from ort_core.cpu.threads.pool import ThreadPool

LANES = 16
LEAST_NORMAL = 2.0**-126


def powers(x: np.ndarray) -> np.ndarray:
    """Run the function on an array of whole vectors."""
    target = host_target()
    if not target.has("avx512dq"):
        pytest.skip("needs a processor with AVX-512")
    e = Emitter("powers", [("ptr", "args"), ("i64", "piece"), ("i64", "pieces"), ("i64", "thread")])
    args = e.parameter("args")
    to, source, count = e.argument(args, 0, "ptr"), e.argument(args, 1, "ptr"), e.argument(args, 2)
    with e.loop(0, count, LANES) as j:
        store_vector(e, rounded_power(e, load_vector(e, e.element(source, j), LANES)), e.element(to, j))
    module = compiled(module_text([e]), target, is_vectorized=True)
    found = np.empty_like(x)
    table = np.array([found.ctypes.data, x.ctypes.data, x.size], np.int64)
    steps = np.array([module.address("powers"), table.ctypes.data, 1, 0], np.int64)
    pool = ThreadPool(1)
    try:
        pool.run(int(steps.ctypes.data), 1)
    finally:
        pool.close()
    return found


def all_floats() -> np.ndarray:
    """Return every 4099th float, and many near 0 of either sign."""
    patterns = np.arange(0, 2**32, 4099, np.uint64).astype(np.uint32).view(np.float32)
    numbers = np.concatenate([patterns, np.linspace(-130, 130, 500_003, dtype=np.float32)])
    return np.resize(numbers, -(-len(numbers) // LANES) * LANES)


def test_the_stated_error_holds_over_all_of_float32() -> None:
    x = all_floats()
    found = powers(x).astype(np.float64)
    with np.errstate(all="ignore"):
        exact = np.exp2(x.astype(np.float64))
    inside = (exact >= LEAST_NORMAL) & (exact < 2.0**127)
    error = np.abs(found[inside] / exact[inside] - 1)
    assert error.max() <= MAX_ERROR, f"2**{x[inside][error.argmax()]} is off by {error.max()}"
    assert (found[exact < LEAST_NORMAL] <= LEAST_NORMAL).all()
    assert (found[exact < LEAST_NORMAL] >= 0).all()
    assert (np.isnan(found) == np.isnan(x)).all()


def test_limits() -> None:
    x = np.resize(np.array([0.0, -0.0, -np.inf, np.inf, np.nan, -126.0, -3.4e38, 3.4e38, 1.0, -1.0], np.float32), 16)
    want = np.resize(np.array([1, 1, 0, np.inf, np.nan, 2.0**-126, 0, np.inf, 2, 0.5], np.float32), 16)
    np.testing.assert_array_equal(powers(x), want)
