"""How long objects stay: what foreign code points to until the process ends, answers about an object as long as it."""

from __future__ import annotations

import ctypes
import functools
import weakref
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
K = TypeVar("K")

_increment = ctypes.PYFUNCTYPE(None, ctypes.py_object)(("Py_IncRef", ctypes.pythonapi))


def keep_for_ever(kept: T) -> T:
    """Return the object, which nothing frees any more: not the collector, and not the end of the interpreter.

    A module's global is no such place: at the end of the interpreter modules are emptied before the last objects go.
    For callbacks that foreign code may call late, for what a function's C definition lies in, for machine code that
    threads stand in. Each call costs the object's memory for good: make such objects once in a process.
    """
    _increment(kept)
    return kept


def weakly_cached(function: Callable[[K], T]) -> Callable[[K], T]:
    """Return a function of one object that works out its answer once, and forgets it together with the object.

    For what is known of functions of users: ``functools.cache`` would keep them, and all that they enclose. The answer
    may not hold the object. One that cannot be referred to weakly is asked about anew each time.
    """
    answers: weakref.WeakKeyDictionary[K, T] = weakref.WeakKeyDictionary()

    @functools.wraps(function)
    def cached(key: K) -> T:
        try:
            return answers[key]
        except (KeyError, TypeError):
            answer = function(key)
        try:
            answers[key] = answer
        except TypeError:  # it has no weak references, or no hash
            return answer
        return answer

    return cached
