"""The collector of cyclic garbage, paused while a graph is built.

Nodes, values and expressions come by the hundred thousand, nearly all of them stay, and the collector walks them again
and again: a quarter of the time of a load. Behind the pause they count as old, so that not even the next collection of
young objects walks them; what was garbage among them is found by the next full one.
"""

from __future__ import annotations

import gc
from contextlib import ContextDecorator

from ort_core.forks import new_lock

MANY_YOUNG = 100_000  # walked in 20 ms; below, whatever is garbage is better found soon
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
                _grow_old()
                gc.enable()


def _grow_old() -> None:
    """Move all young objects to the oldest generation, which takes no walk over them.

    Only where nobody has frozen objects: those would thaw.
    """
    if gc.get_count()[0] >= MANY_YOUNG and not gc.get_freeze_count():
        gc.freeze()
        gc.unfreeze()
