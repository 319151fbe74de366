"""One native step that is run by itself, on arrays that a call was given, in a few microseconds.

Its argument table begins with the addresses of arrays. Where direct calls can be made, native code reads those off the
arrays themselves and runs the step, as ``direct`` does for programs; else Python asks each array.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from ort_core.cpu.direct.python_layout import find_python_layout
from ort_core.cpu.direct.records import SingleFunction, build_single, find_call_code
from ort_core.cpu.threads.pool import ThreadPool
from ort_core.cpu.threads.pool_code import ALL, ALONE, STEP_WORDS
from ort_core.plugin import Rejection

_WORD = ctypes.c_int64
_MOST_WORDS = 16  # of an argument table
_MOST_IDLE = 4


class SingleStep:
    """A step with its table and memory, for one run at a time.

    Args:
        pool: its threads.
    """

    def __init__(self, pool: ThreadPool) -> None:
        self._pool = pool
        self._words = (_WORD * (STEP_WORDS + _MOST_WORDS))()
        self._start = ctypes.addressof(self._words)
        self._words[1] = self._start + STEP_WORDS * ctypes.sizeof(_WORD)
        self._functions = {wanted: _function(self._start, wanted, pool) for wanted in (ALONE, ALL)}
        self._memory, self._address = np.empty(0, np.int64), 0

    def memory(self, count: int) -> tuple[np.ndarray, int]:
        """Return at least so many words of memory, with its address; the next call may return another one."""
        if self._memory.size < count:
            self._memory = np.empty(count, np.int64)
            self._address = int(self._memory.ctypes.data)
        return self._memory, self._address

    @property
    def nbytes(self) -> int:
        """How much memory it has."""
        return self._memory.nbytes

    def run(self, kernel: int, arrays: Sequence[np.ndarray], words: Sequence[int], *, is_alone: bool) -> None:
        """Run a kernel whose table is the addresses of arrays, then words; on the caller's own thread, or on all."""
        wanted, own = ALONE if is_alone else ALL, self._words
        first = STEP_WORDS + len(arrays)
        own[0], own[first : first + len(words)] = kernel, list(words)
        function = self._functions[wanted]
        if function is not None and function(*arrays) is None:
            return
        own[3], own[STEP_WORDS:first] = 0, [each.ctypes.data for each in arrays]
        self._pool.run(self._start, 1, wanted)


class IdleStepsState:
    """The steps of a call that no run uses now; threads may take and give without a lock."""

    def __init__(self, pool: ThreadPool, most_nbytes: int = 1 << 20) -> None:
        self._pool, self._most_nbytes = pool, most_nbytes
        self._idle: list[SingleStep] = []

    def take(self) -> SingleStep:
        """Return a step that nobody else has from now on."""
        try:
            return self._idle.pop()
        except IndexError:
            return SingleStep(self._pool)

    def give(self, step: SingleStep) -> None:
        """Hand a step back for later runs, unless it has much memory."""
        if step.nbytes <= self._most_nbytes and len(self._idle) < _MOST_IDLE:
            self._idle.append(step)


def _function(start: int, wanted: int, pool: ThreadPool) -> SingleFunction | None:
    layout = find_python_layout()
    if isinstance(layout, Rejection) or isinstance(find_call_code(layout), Rejection):
        return None
    return build_single(layout, start, wanted, pool)
