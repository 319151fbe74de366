"""The calls that threads make of a program's steps, in an order that shows what they owe to luck.

Between two meetings each thread goes through all its pieces before the next thread begins, forwards or backwards over
the threads: whoever reads what another thread has still to write, without a meeting in between, reads the pattern.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ort_core.cpu.threads.pool_code import BARRIER, OWNER_AT, PIECES_AT, SERIAL
from ort_core.plugin import frozen


@frozen
class Call:
    """One call of a step's kernel: a piece of several, by a thread."""

    step: int
    piece: int
    pieces: int
    thread: int


def calls(flags: Sequence[int], threads: int, *, backwards: bool) -> Iterator[Call]:
    """Yield all calls of steps with these flags, as ``threads`` threads make them."""
    first = 0
    for number, each in enumerate(flags):
        if each & BARRIER or number == len(flags) - 1:
            yield from _between_meetings(flags, range(first, number + 1), threads, backwards=backwards)
            first = number + 1


def _between_meetings(flags: Sequence[int], steps: range, threads: int, *, backwards: bool) -> Iterator[Call]:
    order = range(threads - 1, -1, -1) if backwards else range(threads)
    for thread in order:
        for step in steps:
            if flags[step] & SERIAL:
                if thread == (flags[step] >> OWNER_AT) % threads:  # one thread alone does all
                    yield Call(step, 0, 1, thread)
                continue
            pieces = threads * max(1, flags[step] >> PIECES_AT)
            own = range(thread, pieces, threads)
            for piece in reversed(own) if backwards else own:
                yield Call(step, piece, pieces, thread)
