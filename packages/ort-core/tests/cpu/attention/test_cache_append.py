"""The kernel that appends to caches: past, new rows, zeros; in place when one buffer is both; lengths are checked."""

from __future__ import annotations

import functools

import ml_dtypes
import numpy as np
import pytest
from kernel_calls import TARGETS

from ort_core.cpu.codegen.attention.cache_append import ARGUMENTS, cache_append_text
from ort_core.cpu.codegen.machine_code.compiled_module import CompiledModule
from ort_core.cpu.codegen.machine_code.jit import compile_module
from ort_core.cpu.threads.pool import ThreadPool
from ort_core.plugin.ir import DataType

TYPES = {DataType.INT8: np.int8, DataType.FLOAT16: np.float16, DataType.BFLOAT16: ml_dtypes.bfloat16}


@functools.cache
def kernel(machine: str, stored: DataType) -> CompiledModule:
    target = TARGETS[machine]()
    return compile_module(cache_append_text("cache_append", target, stored), target)


def append(
    machine: str, out: np.ndarray, past: np.ndarray, new: np.ndarray, lengths: np.ndarray, longest: int = 1,
    stored: DataType = DataType.FLOAT,
) -> bool:  # fmt: skip
    """Run the kernel on two threads; return whether it refused."""
    error, total = np.zeros(1, np.int64), np.array([longest], np.int32)
    addresses = [a.ctypes.data for a in (out, past, new, lengths, total, error)]
    sizes = [out.shape[0], out.shape[1], out.shape[2], new.shape[2], past.shape[2], out.shape[3]]
    table = np.array(
        [*addresses, *sizes, *(step // out.itemsize for a in (out, past, new) for step in a.strides[:3])], np.int64
    )
    assert len(table) == ARGUMENTS.count
    steps = np.array([kernel(machine, stored).address("cache_append"), table.ctypes.data, 1, 0], np.int64)
    pool = ThreadPool(2)
    pool.run(int(steps.ctypes.data), 1)
    pool.close()
    return bool(error[0])


def operands(size: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(size)
    past = rng.standard_normal((3, 2, 9, size), np.float32)
    new = rng.standard_normal((3, 4, 2, size), np.float32).transpose(0, 2, 1, 3)
    return past, new


def expected(past: np.ndarray, new: np.ndarray, lengths: np.ndarray, rest: np.ndarray) -> np.ndarray:
    result = rest.copy()
    for entry, last in enumerate(lengths):
        start = max(int(last) + 1 - new.shape[2], 0)
        result[entry, :, :start] = past[entry, :, :start]
        result[entry, :, start : start + new.shape[2]] = new[entry]
    return result


@pytest.mark.parametrize("machine", list(TARGETS))
@pytest.mark.parametrize("size", [1, 7, 16, 64, 83])
def test_rows_are_those_of_the_past_then_the_new_ones_then_zeros(size: int, machine: str) -> None:
    past, new = operands(size)
    lengths = np.array([3, 8, 0], np.int32)
    out = np.full((3, 2, 11, size), np.nan, np.float32)
    assert not append(machine, out, past, new, lengths)
    np.testing.assert_array_equal(out, expected(past, new, lengths, np.zeros_like(out)))


@pytest.mark.parametrize("machine", list(TARGETS))
@pytest.mark.parametrize("stored", list(TYPES), ids=lambda stored: stored.text)
@pytest.mark.parametrize("size", [1, 7, 64, 133])
def test_caches_of_other_types_are_copied_element_for_element(size: int, stored: DataType, machine: str) -> None:
    past, new = ((each * 40).astype(TYPES[stored]) for each in operands(size))
    lengths = np.array([3, 8, 0], np.int32)
    memory = np.full(3 * 2 * 11 * size + 2, 77, TYPES[stored])
    out = memory[1:-1].reshape(3, 2, 11, size)
    assert not append(machine, out, past, new, lengths, stored=stored)
    np.testing.assert_array_equal(out, expected(past, new, lengths, np.zeros_like(out)))
    assert (memory[[0, -1]] == 77).all(), "wrote beside the result"
    want = expected(past, new, lengths, past)
    assert not append(machine, past, past, new, lengths, stored=stored)
    np.testing.assert_array_equal(past, want)


@pytest.mark.parametrize("machine", list(TARGETS))
def test_one_buffer_for_past_and_present_gets_the_new_rows_only(machine: str) -> None:
    past, new = operands(20)
    lengths = np.array([3, 8, 5], np.int32)
    want = expected(past, new, lengths, past)
    assert not append(machine, past, past, new, lengths)
    np.testing.assert_array_equal(past, want)


@pytest.mark.parametrize("lengths", [[3, 9, 0], [-1, 3, 3], [3, 3, 2**31 - 1]])
def test_length_that_does_not_fit_is_refused_and_nothing_written_for_its_entry(lengths: list[int]) -> None:
    past, new = operands(8)
    out = np.full_like(past, np.nan)
    assert append("host", out, past, new, np.array(lengths, np.int32))
    wrong = [not 0 <= last < 9 for last in lengths]
    assert np.isnan(out[wrong]).all()


def test_total_length_that_is_not_positive_is_refused() -> None:
    past, new = operands(8)
    assert append("host", np.empty_like(past), past, new, np.array([3, 3, 3], np.int32), longest=0)
