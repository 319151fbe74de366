"""Objects that foreign code points to without counting: they stay in memory until the process ends."""

from __future__ import annotations

import ctypes
from typing import TypeVar

T = TypeVar("T")

_increment = ctypes.PYFUNCTYPE(None, ctypes.py_object)(("Py_IncRef", ctypes.pythonapi))


def keep_for_ever(kept: T) -> T:
    """Return the object, which nothing frees any more: not the collector, and not the end of the interpreter.

    A module's global is no such place: at the end of the interpreter modules are emptied before the last objects go.
    For callbacks that foreign code may call late, for what a function's C definition lies in, for machine code that
    threads stand in. Each call costs the object's memory for good: make such objects once in a process.
    """
    _increment(kept)
    return kept
