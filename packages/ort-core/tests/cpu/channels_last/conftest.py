"""Running generated kernels between guard numbers, on one thread and on two."""

from __future__ import annotations

import ctypes
import functools
import mmap
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest

from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, module_text
from ort_core.cpu.codegen.machine_code.compiled_module import CompiledModule
from ort_core.cpu.codegen.machine_code.jit import compile_module
from ort_core.cpu.codegen.machine_code.llvm_targets import host_target, restricted_target
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.threads.pool import ThreadPool
from ort_core.cpu.threads.pool_code import BARRIER

GUARD = np.float32(12345.678)
MARGIN = 64  # guard numbers on either side: more than any vector


class Guarded:
    """An array whose neighbors in memory are known, so that a write past its ends is seen."""

    def __init__(self, array: np.ndarray) -> None:
        size, element = array.size, np.dtype(np.uint16 if array.dtype == np.uint16 else np.float32)
        raw = np.full(size + 3 * MARGIN, GUARD, np.float32).view(element)
        start = MARGIN + (-(raw.ctypes.data + element.itemsize * MARGIN) % 64) // element.itemsize
        self.array = raw[start : start + size].reshape(array.shape)
        self._beside = raw[:start], raw[start + size :]
        self._kept = [each.copy() for each in self._beside]
        self.array[...] = array

    @property
    def address(self) -> int:
        """Where the array's first number lies."""
        return self.array.ctypes.data

    def check(self) -> None:
        """Fail if a number beside the array has changed."""
        before, behind = (np.array_equal(each, kept) for each, kept in zip(self._beside, self._kept, strict=True))
        assert before, "written before the start of the tensor"
        assert behind, "written past the end of the tensor"


@functools.cache
def compiled(text: str, target: Target, is_vectorized: bool) -> CompiledModule:
    """Compile a module once: sizes are run-time arguments, so many cases share one."""
    return compile_module(text, target, is_vectorized=is_vectorized)


RunKernel = Callable[..., np.ndarray]


@pytest.fixture(scope="session")
def run_kernel() -> RunKernel:
    """Return a function that runs a kernel with an argument table and returns the array at ``output``.

    Entries are integers or arrays; arrays are copied between guards. Both thread counts must give the same bits.
    Kernels go through the passes of LLVM that programs put them through, which are few for all but ``pad_kernel``.
    """
    pools = [ThreadPool(1), ThreadPool(2)]

    def run(
        functions: Sequence[Emitter], entries: Sequence[int | np.ndarray], output: int, target: Target | None = None, *,
        is_vectorized: bool = True,
    ) -> np.ndarray:  # fmt: skip
        module = compiled(module_text(functions), target or host_target(), is_vectorized)
        results = []
        for pool in pools:
            held = [Guarded(entry) if isinstance(entry, np.ndarray) else entry for entry in entries]
            table = np.array([entry.address if isinstance(entry, Guarded) else entry for entry in held], np.int64)
            steps = np.array([module.address(functions[-1].name), table.ctypes.data, BARRIER, 0], np.int64)
            pool.run(steps.ctypes.data, 1)
            for entry in held:
                if isinstance(entry, Guarded):
                    entry.check()
            results.append(held[output].array.copy())
        np.testing.assert_array_equal(results[0], results[1], err_msg="two threads differ from one")
        return results[0]

    return run


TARGETS = {
    "host": host_target,
    "without_avx512": lambda: restricted_target("avx512", "amx"),
}


@pytest.fixture(scope="session", params=list(TARGETS))
def target(request: pytest.FixtureRequest) -> Target:
    """Return the host and a lesser machine that it contains."""
    return TARGETS[request.param]()


@pytest.fixture
def closed_at_the_end() -> Iterator[Callable[[np.ndarray], np.ndarray]]:
    """Return a function that copies an array to where memory ends: the page behind it may not be touched."""
    page = mmap.PAGESIZE
    protect = ctypes.CDLL(None).mprotect
    protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    closed: list[int] = []

    def copy(array: np.ndarray) -> np.ndarray:
        pages = -(-array.nbytes // page) + 1
        memory = np.frombuffer(mmap.mmap(-1, pages * page), array.dtype)
        end = memory.size - page // memory.itemsize
        held = memory[end - array.size : end].reshape(array.shape)
        held[...] = array
        closed.append(memory.ctypes.data + memory.itemsize * end)
        assert protect(closed[-1], page, 0) == 0
        kept.append(memory)
        return held

    kept: list[np.ndarray] = []
    yield copy
    for address in closed:
        protect(address, page, mmap.PROT_READ | mmap.PROT_WRITE)
