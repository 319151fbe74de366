"""A decorator for what writes kernels: the texts that were made last are kept, by the facts that they are made of.

A forest has thousands of nodes of one structure, and writing a kernel takes milliseconds. Kernels whose name follows
from their facts need no such memory (``deferred_kernel``); these are named by their text.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")
MAX_KEPT = 64  # of each writer; real models have a handful of structures each


def memoized(write: Callable[_P, _R]) -> Callable[_P, _R]:
    """Return the writer with a memory. Its arguments are compared by value; nobody may change what it returns."""
    kept = functools.lru_cache(maxsize=MAX_KEPT, typed=True)(write)
    return functools.wraps(write)(lambda *args, **kwargs: kept(*args, **kwargs))
