"""ThreadPool: native workers that run compiled programs; made for a process, made anew in a forked child."""

from __future__ import annotations

import atexit
import ctypes
import functools
import logging
import os
import sys
import time
import weakref
from collections.abc import Sequence

import numpy as np

from ort_core.cpu.codegen.machine_code.code_cache import compiled_for_host
from ort_core.cpu.codegen.machine_code.compiled_module import CompiledModule
from ort_core.cpu.threads.pool_code import (
    ALIVE,
    ALL,
    IDLE_SPINS,
    MASK_NBYTES,
    MASKS,
    POOL_NBYTES,
    SIZE,
    SPINS,
    pool_text,
)
from ort_core.cpu.threads.primitives import primitives_for
from ort_core.plugin import ThreadOptions, keep_for_ever
from ort_core.plugin.forks import new_lock
from ort_core.plugin.machine import available_threads

DEFAULT_SPINS = (
    3000  # pauses before a worker sleeps: 50 to 150 us, above the time between two steps, below a person's notice
)
_STOP_TIMEOUT_S = 1.0
_TIMED_PAUSES = 2000

log = logging.getLogger(__name__)


class ThreadPool:
    """``num_threads`` threads, the caller's own included. ``run`` may be called from any thread.

    Args:
        num_threads: at least 1.
        spins: pauses that a worker makes before it sleeps; 0 to sleep at once.
        idle_spins: the same between two runs; as ``spins`` when ``None``.
        affinities: the processors of each worker, counted from 0; empty: any.
    """

    def __init__(
        self,
        num_threads: int,
        spins: int = DEFAULT_SPINS,
        idle_spins: int | None = None,
        affinities: Sequence[Sequence[int]] = (),
    ) -> None:
        self.num_threads = max(1, num_threads)
        self._spins = spins
        self._idle_spins = spins if idle_spins is None else idle_spins
        self._masks = affinity_masks(affinities)
        self._lock = new_lock()
        raw = np.zeros(POOL_NBYTES // 8 + 16, np.int64)
        skip = (-raw.ctypes.data % 128) // 8
        self._memory = raw[skip : skip + POOL_NBYTES // 8]
        if self.num_threads > 1:
            _worker_memory.append((raw, self._masks))
        self._address = int(self._memory.ctypes.data)
        self._start()
        _pools.add(self)

    def run(self, steps: int, count: int, wanted: int = ALL) -> int:
        """Run a program of ``count`` steps at address ``steps``; returns the number of threads that ran it.

        ``wanted`` says on which threads: ``ALONE`` is right for programs of a few microseconds, ``AWAKE`` for those
        that are over before a sleeping thread is awake.
        """
        return self._run(self._address, steps, count, wanted)

    @property
    def entry_points(self) -> tuple[int, int]:
        """Addresses of ``ort_pool_run`` and of the pool, for native callers; a fork does not change them."""
        return _pool_code().address("ort_pool_run"), self._address

    def close(self) -> None:
        """Let the workers go; the pool runs on the calling thread alone from then on."""
        with self._lock:
            if self._word(ALIVE) == 0:
                return
            self._memory[SIZE // 8] = 1
            self._stop(self._address)
            limit = time.monotonic() + _STOP_TIMEOUT_S
            while self._word(ALIVE) and time.monotonic() < limit:
                time.sleep(0.0005)

    def __del__(self, alive: int = ALIVE // 8) -> None:  # a name of the module may be gone at the interpreter's end
        if hasattr(self, "_stop") and self._memory[alive] & 0xFFFFFFFF:
            self._stop(self._address)  # waits for nobody: the workers leave their memory in their own time

    def restart_in_child(self) -> None:
        """Make new workers in the same memory: after a fork only the forking thread exists."""
        self._start()

    def _start(self) -> None:
        code = _pool_code()
        self._memory[:] = 0
        self._memory[SPINS // 8] = self._spins
        self._memory[IDLE_SPINS // 8] = self._idle_spins
        self._memory[MASKS // 8] = self._masks.ctypes.data if self._masks.size else 0
        pointer, word = ctypes.c_void_p, ctypes.c_int64
        self._run = ctypes.CFUNCTYPE(word, pointer, pointer, word, word)(code.address("ort_pool_run"))
        self._stop = ctypes.CFUNCTYPE(None, pointer)(code.address("ort_pool_stop"))
        start = ctypes.CFUNCTYPE(ctypes.c_int32, pointer)(code.address("ort_pool_start"))
        started = 1
        for _ in range(self.num_threads - 1):
            if start(self._address):
                break  # the system gives no more threads: go on with those that there are
            started += 1
        self._memory[SIZE // 8] = started

    def _word(self, offset: int) -> int:
        return int(self._memory[offset // 8]) & 0xFFFFFFFF


_pools: weakref.WeakSet[ThreadPool] = weakref.WeakSet()
# Of pools; never freed: their workers read it to their end, for which nobody waits.
_worker_memory: list[tuple[np.ndarray, np.ndarray]] = keep_for_ever([])
_code: list[CompiledModule] = keep_for_ever([])  # sleeping workers stand in it until the process ends


def _pool_code() -> CompiledModule:
    if not _code:
        _code.append(compiled_for_host("thread pool", _written))
    return _code[0]


def _written() -> str:
    from ort_core.cpu.codegen.machine_code.known_host import known_host

    triple = known_host().triple
    return pool_text(triple, primitives_for(triple))


def _after_fork() -> None:
    for pool in list(_pools):
        pool.restart_in_child()


def _at_exit() -> None:
    for pool in list(_pools):
        pool.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)


_shared: dict[ThreadOptions, ThreadPool] = {}
_shared_lock = new_lock()


def shared_pool(options: ThreadOptions = ThreadOptions()) -> ThreadPool:  # noqa: B008 - immutable
    """Return the process's pool for these options; ``num_threads`` 0: as many as this process may use."""
    if not options.num_threads:
        options = options.with_threads(available_threads())
    with _shared_lock:  # a second pool for the same options would be collected while its workers sleep in its memory
        if options not in _shared:
            _shared[options] = _pool_of(options)
        return _shared[options]


def _pool_of(options: ThreadOptions) -> ThreadPool:
    if options.affinities and sys.platform == "darwin":
        log.warning(
            "macOS does not let programs choose their processors; session.intra_op_thread_affinities has no effect"
        )
    spins = DEFAULT_SPINS
    if options.spin_duration_us:
        spins = max(1, round(options.spin_duration_us * 1000 / pause_ns()))
    if not options.allow_spinning:
        spins = 0
    return ThreadPool(options.num_threads, spins, spins if options.spin_between_runs else 0, options.affinities)


@functools.cache
def pause_ns() -> float:
    """Return how long one pause of a waiting worker takes here, in nanoseconds: 1 to 50 by processor."""
    pause = ctypes.CFUNCTYPE(None, ctypes.c_int64)(_pool_code().address("ort_pause"))
    times = []
    for _ in range(5):
        begin = time.perf_counter_ns()
        pause(_TIMED_PAUSES)
        times.append((time.perf_counter_ns() - begin) / _TIMED_PAUSES)
    return max(min(times), 0.1)


def affinity_masks(affinities: Sequence[Sequence[int]]) -> np.ndarray:
    """Return a mask for each worker, uint8[workers, MASK_NBYTES]: ``p`` is bit ``p % 8`` of byte ``p // 8``."""
    masks = np.zeros((len(affinities), MASK_NBYTES), np.uint8)
    for mask, processors in zip(masks, affinities, strict=True):
        for processor in processors:
            mask[processor // 8] |= 1 << processor % 8
    return masks
