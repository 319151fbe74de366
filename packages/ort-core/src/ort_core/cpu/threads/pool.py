"""ThreadPool: native workers that run compiled programs; made for a process, made anew in a forked child."""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
import time
import weakref

import numpy as np

from ort_core.cpu.codegen.code_cache import compiled
from ort_core.cpu.codegen.jit import CompiledModule, host_target
from ort_core.cpu.threads.pool_code import ALIVE, POOL_NBYTES, SIZE, SPINS, pool_text
from ort_core.cpu.threads.primitives import primitives_for

DEFAULT_SPINS = (
    3000  # pauses before a worker sleeps: 50 to 150 us, above the time between two steps, below a person's notice
)
_STOP_TIMEOUT_S = 1.0


class ThreadPool:
    """``num_threads`` threads, the caller's own included. ``run`` may be called from any thread.

    Args:
        num_threads: at least 1.
        spins: pauses that a worker makes before it sleeps; 0 to sleep at once.
    """

    def __init__(self, num_threads: int, spins: int = DEFAULT_SPINS) -> None:
        self.num_threads = max(1, num_threads)
        self._spins = spins
        self._lock = threading.Lock()
        raw = np.zeros(POOL_NBYTES // 8 + 16, np.int64)
        skip = (-raw.ctypes.data % 128) // 8
        self._memory = raw[skip : skip + POOL_NBYTES // 8]
        self._address = int(self._memory.ctypes.data)
        self._start()
        _pools.add(self)

    def run(self, steps: int, count: int, wanted: int = 1 << 30) -> int:
        """Run a program of ``count`` steps at address ``steps``; returns the number of threads that ran it.

        ``wanted`` 1 keeps it on the calling thread: right for programs of a few microseconds.
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

    def restart_in_child(self) -> None:
        """Make new workers in the same memory: after a fork only the forking thread exists."""
        self._start()

    def _start(self) -> None:
        code = _pool_code()
        self._memory[:] = 0
        self._memory[SPINS // 8] = self._spins
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
_code: list[CompiledModule] = []  # one entry, never freed: sleeping workers stand in it until the process ends


def _pool_code() -> CompiledModule:
    if not _code:
        target = host_target()
        _code.append(compiled(pool_text(target.triple, primitives_for(target.triple)), target))
    return _code[0]


def _after_fork() -> None:
    for pool in list(_pools):
        pool.restart_in_child()


def _at_exit() -> None:
    for pool in list(_pools):
        pool.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)


_shared: dict[int, ThreadPool] = {}


def shared_pool(num_threads: int = 0) -> ThreadPool:
    """Return the process's pool of that many threads (0: as many as this process may use)."""
    count = num_threads or available_threads()
    if count not in _shared:
        _shared[count] = ThreadPool(count)
    return _shared[count]


def available_threads() -> int:
    """Return how many processors this process may use: its affinity mask and its container's quota count."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1
