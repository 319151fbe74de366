"""The collector of cyclic garbage, paused while a graph is built.

Nodes, values and expressions come by the hundred thousand, nearly all of them stay, and the collector walks them again
and again: a quarter of the time of a load. What was garbage is found by the first collection behind the pause.
"""

from __future__ import annotations

import gc
from contextlib import ContextDecorator

from ort_core.forks import new_lock

_lock = new_lock()


class paused_collection(ContextDecorator):  # noqa: N801 - a context manager that reads as a statement
    """Pause the collector in this process until the last of those who paused it is done. Also a decorator.

    A collector that was off at the beginning stays off.
    """

    _depth = 0
    _was_on = False

    def __enter__(self) -> None:
        kind = paused_collection
        with _lock:
            if kind._depth == 0:
                kind._was_on = gc.isenabled()
                gc.disable()
            kind._depth += 1

    def __exit__(self, *details: object) -> None:
        kind = paused_collection
        with _lock:
            kind._depth -= 1
            if kind._depth == 0 and kind._was_on:
                gc.enable()
