"""Places of nested loops that one loop counts: the index of each dimension, without a division for each place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, integer

_MOST_COUNTERS = 12


def unravel(emitter: Emitter, row: IRValue, sizes: Sequence[IRValue]) -> list[IRValue]:
    """Return the index of each outer dimension of row number ``row``."""
    indices: list[IRValue] = []
    for size in reversed(sizes[1:]):
        indices.append(emitter.urem(row, size))
        row = emitter.udiv(row, size)
    if sizes:
        indices.append(row)
    return indices[::-1]


@contextmanager
def each_place(
    emitter: Emitter, first: IRValue, last: IRValue, sizes: Sequence[IRValue], hint: str
) -> Iterator[tuple[IRValue, list[IRValue]]]:
    """Loop over the places from number ``first`` to ``last``; the body gets the number and the indices of each.

    The first place is divided into its indices, the others count on from there: a row of a few elements takes less
    time than a division. Of many dimensions each place is divided: LLVM takes seconds for dozens of counters.
    """
    if len(sizes) > _MOST_COUNTERS:
        with emitter.loop(first, last, unroll=False, hint=hint) as number:
            yield number, unravel(emitter, number, sizes)
        return
    start = unravel(emitter, first, [emitter.maximum(size, 1) for size in sizes])  # without places, a size may be 0
    slots = [emitter.variable("i64", index, "at") for index in start]
    with emitter.loop(first, last, unroll=False, hint=hint) as number:
        indices = [emitter.load("i64", slot) for slot in slots]
        yield number, [*indices]
        carried: IRValue = integer(1)
        for slot, index, size in zip(reversed(slots[1:]), reversed(indices[1:]), reversed(sizes[1:])):
            following = emitter.add(index, carried)
            is_over = emitter.compare("eq", following, size)
            emitter.store(emitter.select(is_over, integer(0), following), slot)
            carried = emitter.assign("i64", f"zext {is_over.typed} to i64")
        for slot, index in zip(slots[:1], indices[:1]):
            emitter.store(emitter.add(index, carried), slot)
