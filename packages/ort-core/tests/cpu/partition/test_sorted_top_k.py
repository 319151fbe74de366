"""TopK of any k by sorting, against numpy's stable sorts, in code for several targets and on guarded memory."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from kernel_calls import TARGETS, compiled

from ort_core.cpu.codegen.indexing.sorted_top_k import held_records, scratch_words, sorted_top_k_kernel
from ort_core.cpu.codegen.llvm_ir.emitter import module_text
from ort_core.cpu.codegen.machine_code.llvm_targets import restricted_target
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.guarded.arrays import GuardedArrays
from ort_core.cpu.guarded.mode import GuardedMode
from ort_core.cpu.threads.pool import ThreadPool
from ort_core.plugin.ir import DataType

ALL_TARGETS = {**TARGETS, "SSE": functools.partial(restricted_target, "avx", "fma", "f16c")}
TYPES = [
    DataType.FLOAT, DataType.DOUBLE, DataType.INT64, DataType.UINT64, DataType.INT32, DataType.UINT32, DataType.INT16,
    DataType.UINT16, DataType.INT8, DataType.UINT8,
]  # fmt: skip


def best(
    x: np.ndarray, dtype: DataType, k: int, largest: bool, target: Target, pool: ThreadPool, edge: GuardedMode
) -> tuple[np.ndarray, np.ndarray]:
    """Return what the kernel finds in the rows of ``x``."""
    rows, length = x.shape
    words = int(scratch_words(length, k))
    results = [np.zeros((rows, k), x.dtype), np.zeros((rows, k), np.int64)]
    guarded = GuardedArrays([x], [*results, np.zeros(words * pool.num_threads, np.int64)], edge)
    places = [guarded.address(i) for i in (1, 2, 0)]
    table = np.array([*places, rows, length, k, int(held_records(length, k)), guarded.address(3), words], np.int64)
    functions = sorted_top_k_kernel("kernel", dtype, target, largest=largest)
    module = compiled(module_text(functions), target, is_vectorized=False)
    steps = np.array([module.address("kernel"), table.ctypes.data, 1, 0], np.int64)
    pool.run(int(steps.ctypes.data), 1)
    guarded.check("TopK")
    return guarded.arrays[1].copy(), guarded.arrays[2].copy()


def expected(x: np.ndarray, k: int, largest: bool) -> np.ndarray:
    """Return the places of the best elements: NaN is the largest, equal ones keep their order."""
    places = np.empty((len(x), k), np.int64)
    for row, values in zip(places, x.tolist(), strict=True):
        ranked = [(1, 0) if value != value else (0, value) for value in values]
        order = sorted(range(len(ranked)), key=lambda i: ranked[i])
        if largest:  # those that are equal stay in front of each other
            order = sorted(range(len(ranked)), key=lambda i: ranked[i], reverse=True)
        row[:] = order[:k]
    return places


def drawn(dtype: DataType, rows: int, length: int, kind: str) -> np.ndarray:
    """Return rows: of any bits, of few values, rising or falling; of floats with NaN, infinities and both zeros."""
    random, numpy_type = np.random.default_rng(length), dtype.numpy
    if kind in ("rising", "falling"):
        line = np.arange(length)[:: 1 if kind == "rising" else -1] * (100 / max(length, 1))
        return np.tile(line.astype(numpy_type), (rows, 1))
    if kind == "few":
        return random.integers(0, 5, (rows, length)).astype(numpy_type)
    x = random.integers(0, 256, (rows, length * np.dtype(numpy_type).itemsize), np.uint8).view(numpy_type)
    if dtype.is_float:
        x[:, ::7], x[:, 1::11], x[:, 2::13], x[:, 3::17], x[:, 4::19] = 0.0, -0.0, np.nan, np.inf, -np.inf
    return x


@pytest.mark.sweep(parts=3)
@pytest.mark.parametrize("target", ALL_TARGETS.values(), ids=ALL_TARGETS)
@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("largest", [True, False])
def test_the_best_are_those_of_a_stable_sort(
    largest: bool, dtype: DataType, target: object, pools: list[ThreadPool]
) -> None:
    machine = target()  # type: ignore[operator]  # a function that gives a target
    for rows, length, k in ((3, 1, 1), (2, 300, 300), (3, 601, 7), (2, 1000, 130), (1, 260, 2)):
        for kind in ("any", "few", "rising", "falling"):
            x = drawn(dtype, rows, length, kind)
            edge = GuardedMode.END if kind != "few" else GuardedMode.BEGIN
            values, indices = best(x, dtype, k, largest, machine, pools[1], edge)
            places = expected(x, k, largest)
            np.testing.assert_array_equal(indices, places)
            taken = np.take_along_axis(x, places, axis=1)
            assert values.tobytes() == taken.tobytes(), "a value's bits, of zeros and NaN too, are its own"


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_threads_share_rows(threads: int) -> None:
    pool = ThreadPool(threads)
    try:
        x = drawn(DataType.FLOAT, 9, 700, "any")
        _, indices = best(x, DataType.FLOAT, 200, True, TARGETS["host"](), pool, GuardedMode.END)
        np.testing.assert_array_equal(indices, expected(x, 200, True))
    finally:
        pool.close()
