"""A GPU that is this machine's processor: memory is numpy's, kernels run by emulation, libraries are numpy.

It is strict where a device is: work that is enqueued on a stream happens when the stream is waited for or copied
from, captured work does not happen before it is replayed, and addresses outside its memory are an error.

A guarded device (``guard``, or the variable ``ORT_TEST_GUARD``) is stricter: each buffer, temporaries too, meets a page
that cannot be touched, at its end or where it begins, and is filled with a pattern, one for each; kernels are checked,
and run from the first thread on or from the last.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import tempfile
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from library_numbers import array_at, computed

from ort_core.plugin import AllocationLimitExceeded, EPFail
from ort_core.testing.cuda_emulation import emulate
from ort_ep_cuda import compiled
from ort_ep_cuda.gpu import GpuFacts
from ort_ep_cuda.idle_memory import IdleMemory
from ort_ep_cuda.lowering.custom.function_calls import run_call
from ort_ep_cuda.lowering.libraries.libraries import NOTHING_FUSED, Libraries
from ort_ep_cuda.lowering.libraries.library_steps import AnyLibraryStep, Normalization
from ort_ep_cuda.lowering.program import FunctionCall, Kernel
from ort_ep_cuda.lowering.writing.preamble import PREAMBLE
from ort_ep_cuda.run_slot import RunSlotState

if TYPE_CHECKING:
    from ort_core.testing.guarded_memory_posix import GuardedMemory

_FOLDER = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
_COMPILED: dict[tuple[str, bool], Callable] = {}
"""Kernels by name, which is made of the content, and whether they are checked: compiled once for all tests."""
PATTERNS = {"end": 0xFF, "begin": 0x5A}  # not a number as a float, and a number


class HostMemory:
    """Bytes with an address; filled with a pattern, since a device's memory is not zero."""

    def __init__(self, nbytes: int) -> None:
        self._words = np.full(-(-nbytes // 8) + 32, 0xA5A5A5A5A5A5A5A5, np.uint64)
        self.address = -(-self._words.ctypes.data // 256) * 256
        self.nbytes = nbytes


_COMPILING = threading.Lock()  # two runs may need the same kernels at once, and their files are the same
_ONE_AT_A_TIME = threading.Lock()  # the emulation keeps its block in variables of the library


def _launched(function, grid, block, arguments, guard: str) -> None:
    with _ONE_AT_A_TIME:
        if guard:
            function.launch(grid, block, arguments, is_reversed=guard == "begin", pattern=PATTERNS[guard])
        else:
            function.launch(grid, block, arguments)


class RecordedGraph:
    """Work that was captured."""

    def __init__(self, work: list[Callable[[], None]]) -> None:
        self.work = work


class EmulatedStream:
    """Work in order; done when it is waited for."""

    def __init__(self, gpu: EmulatedGpu) -> None:
        self._gpu = gpu
        self._queue: list[Callable[[], None]] = []
        self._captured: list[Callable[[], None]] | None = None

    def _enqueue(self, work: Callable[[], None]) -> None:
        (self._queue if self._captured is None else self._captured).append(work)

    def upload(self, source: np.ndarray, address: int) -> None:
        self._forbidden_in_capture("upload")
        self._enqueue(lambda: ctypes.memmove(address, source.ctypes.data, source.nbytes))

    def download(self, address: int, target: np.ndarray) -> None:
        self._forbidden_in_capture("download")
        self._enqueue(lambda: ctypes.memmove(target.ctypes.data, address, target.nbytes))

    def copy(self, source: int, target: int, nbytes: int) -> None:
        self._gpu.copies_within += 1
        self._enqueue(lambda: ctypes.memmove(target, source, nbytes))

    def clear(self, address: int, nbytes: int) -> None:
        self._enqueue(lambda: ctypes.memset(address, 0, nbytes))

    def launch(self, function, grid, block, arguments: Sequence[np.generic]) -> None:
        if self._captured is not None and self._gpu.fails_within_capture is not None:
            raise self._gpu.fails_within_capture
        self._gpu.launches += 1
        assert all(isinstance(argument, np.generic) for argument in arguments)
        assert 1 <= grid[0] < 2**31
        assert all(1 <= size < 2**16 for size in grid[1:])
        assert 1 <= block[0] * block[1] * block[2] <= 1024
        self._enqueue(lambda: _launched(function, grid, block, list(arguments), self._gpu.guard))

    def run_library(self, step: AnyLibraryStep, addresses: Sequence[int], own=None) -> None:
        assert (own is not None) == isinstance(step, Normalization)

        def work() -> None:
            *inputs, result = [array_at(view, address) for view, address in zip(step.operands, addresses, strict=True)]
            assert not any(np.shares_memory(result, read) for read in inputs)
            result[...] = computed(step, inputs).astype(result.dtype)

        assert len(step.operands) == len(addresses)
        self._gpu.library_steps.append(step)
        self._enqueue(work)

    def call(self, step: FunctionCall, inputs, outs, guard) -> None:
        self._forbidden_in_capture("a user's function")
        self._enqueue(lambda: run_call(step, inputs, outs, lambda v, a: array_at(v, a).view(ArrayOfDevice), guard))

    def begin_capture(self) -> None:
        if self._gpu.refuses_capture:
            raise EPFail("this driver captures nothing")
        assert not self._queue, "a capture begins on a stream with work under way"
        self._captured = []

    def end_capture(self) -> RecordedGraph:
        assert self._captured is not None
        work, self._captured = self._captured, None
        self._gpu.captures += 1
        return RecordedGraph(work)

    def abort_capture(self) -> None:
        self._captured = None

    def replay(self, graph: RecordedGraph) -> None:
        self._gpu.replays += 1
        self._queue += graph.work

    def synchronize(self) -> None:
        assert self._captured is None, "a stream that captures cannot be waited for"
        queue, self._queue = self._queue, []
        with np.errstate(all="ignore"):  # a device tells nobody of what overflows, whatever is asked of numpy
            for work in queue:
                work()
        self._gpu.check_guards()

    def settle(self) -> None:
        queue, self._queue = self._queue, []
        for work in queue:
            with contextlib.suppress(Exception):
                work()

    @property
    def is_idle(self) -> bool:
        return not self._queue and self._captured is None

    def _forbidden_in_capture(self, what: str) -> None:
        assert self._captured is None, f"{what} inside a capture would fix the host's address"


class ArrayOfDevice(np.ndarray):
    """What a user's function is given in place of CuPy's arrays: those have this interface, numpy's have not."""

    __cuda_array_interface__ = None


class EmulatedGpu:
    """The device; counts what it is asked for."""

    def __init__(
        self,
        limit: int = 1 << 30,
        *,
        refuses_capture: bool = False,
        fails_within_capture: Exception | None = None,
        collects: bool = False,
        libraries: Libraries = NOTHING_FUSED,
        guard: str = os.environ.get("ORT_TEST_GUARD", ""),
    ) -> None:
        self.facts = GpuFacts("emulated", "sm_90", (("emulation", "1"),))
        self.refuses_capture = refuses_capture
        self.fails_within_capture = fails_within_capture
        self.copies_within = 0
        self.streams: list[EmulatedStream] = []
        self.libraries = libraries
        self.library_steps: list[AnyLibraryStep] = []
        self.launches = self.captures = self.replays = self.allocations = 0
        self.compiled: list[str] = []
        self.collected: dict[str, Kernel] | None = {} if collects else None
        self.idle = IdleMemory()
        self.guard = guard
        self._guarded: weakref.WeakSet[GuardedMemory] = weakref.WeakSet()
        self._limit = limit
        self._held = [0]  # bytes; a list, which outlives the device as long as memory of it does

    def allocate(self, nbytes: int) -> HostMemory | GuardedMemory:
        self.allocations += 1
        if self._held[0] + nbytes > self._limit:
            raise AllocationLimitExceeded(f"asked for {nbytes} bytes, {self._held[0]} of {self._limit} are held")
        made = self._guarded_memory(nbytes) if self.guard else HostMemory(nbytes)
        self._held[0] += nbytes
        weakref.finalize(made, _give_back, self._held, nbytes)
        return made

    def _guarded_memory(self, nbytes: int) -> GuardedMemory:
        from ort_core.testing.guarded_memory_posix import GuardedMemory  # here: not every system has such memory

        made = GuardedMemory(nbytes, self.guard, PATTERNS[self.guard])
        self._guarded.add(made)
        return made

    def check_guards(self) -> None:
        """Raise where something was written beside a buffer."""
        assert all(memory.is_whole() for memory in list(self._guarded)), "a kernel wrote beside a buffer"

    def pinned(self, nbytes: int) -> np.ndarray:
        return np.zeros(nbytes, np.uint8)

    def stream(self) -> EmulatedStream:
        made = EmulatedStream(self)
        self.streams.append(made)
        return made

    def functions(self, kernels: Sequence[Kernel]) -> Mapping[str, object]:
        is_checked = bool(self.guard)
        self.compiled += [kernel.name for kernel in kernels if (kernel.name, is_checked) not in _COMPILED]
        if self.collected is not None:
            self.collected.update({kernel.name: kernel for kernel in kernels})
            return {kernel.name: _Untaught() for kernel in kernels}
        compile_together(kernels, is_checked=is_checked)
        return {kernel.name: _COMPILED[kernel.name, is_checked] for kernel in kernels}


def _give_back(held: list[int], nbytes: int) -> None:
    held[0] -= nbytes


class _Untaught:
    """Stands for a kernel while kernels are only collected."""

    def launch(self, grid, block, arguments) -> None:
        """Do nothing."""


def compile_together(kernels: Sequence[Kernel], *, is_checked: bool | None = None) -> None:
    """Compile kernels by one call of the compiler, which costs more than most kernels do."""
    if is_checked is None:
        is_checked = bool(os.environ.get("ORT_TEST_GUARD"))
    with _COMPILING:
        _compile_missing(kernels, is_checked)


def _compile_missing(kernels: Sequence[Kernel], is_checked: bool) -> None:
    missing = [kernel for kernel in kernels if (kernel.name, is_checked) not in _COMPILED]
    for kernel in [kernel for kernel in missing if kernel.entry]:
        _COMPILED[kernel.name, is_checked] = _compiled_alone(kernel, is_checked)
    missing = [kernel for kernel in missing if not kernel.entry]
    if not missing:
        return
    digest = hashlib.sha256("".join(kernel.name for kernel in missing).encode()).hexdigest()[:16]
    folder = Path(_FOLDER.name) / digest
    folder.mkdir(exist_ok=True)
    source = PREAMBLE + "".join(kernel.source for kernel in missing)
    found = emulate(source, [kernel.name for kernel in missing], folder, checked=is_checked)
    _COMPILED.update({(name, is_checked): kernel for name, kernel in found.items()})


def _compiled_alone(kernel: Kernel, is_checked: bool) -> Callable:
    """A user's kernel: its source as it is, its names its own."""
    folder = Path(_FOLDER.name) / kernel.name
    folder.mkdir(exist_ok=True)
    return emulate(kernel.source, [kernel.entry], folder, checked=is_checked)[kernel.entry]


class GuardedSlot(RunSlotState):
    """A slot of a guarded device: each temporary has memory of its own, so that all of them meet a guard."""

    def _placed(self) -> dict[int, int]:
        if not self._gpu.guard:
            return super()._placed()
        found = {n: self._gpu.allocate(max(self._program.buffers[n].nbytes, 1)) for n in self._program.arena.offsets}
        self._arena = tuple(found.values())
        return {number: memory.address for number, memory in found.items()}


compiled.RunSlotState = GuardedSlot
