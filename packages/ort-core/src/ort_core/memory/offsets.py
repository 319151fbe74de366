"""Offsets: where each buffer lies in one arena, so that buffers alive together never overlap.

Greedy by size: the largest buffer first, each at the lowest offset where it touches no placed buffer that is alive at
the same time (Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020, algorithm 3).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from ort_core.memory.liveness import Interval

V = TypeVar("V", bound=Hashable)
ALIGNMENT = 64  # bytes: a cache line and the widest vector register


@dataclass(frozen=True, slots=True)
class ArenaLayout(Generic[V]):
    """The offset of each buffer and the size of the arena, in bytes."""

    offsets: Mapping[V, int]
    nbytes: int


def assign_offsets(
    sizes: Mapping[V, int], intervals: Mapping[V, Interval], alignment: int = ALIGNMENT
) -> ArenaLayout[V]:
    """Place buffers in one arena.

    Args:
        sizes: bytes of each buffer.
        intervals: when each buffer is alive; a key for every key of ``sizes``.
        alignment: every offset is a multiple of it.
    """
    placed: list[tuple[int, int, Interval]] = []  # offset, end, interval; sorted by offset
    offsets: dict[V, int] = {}
    total = 0
    for value in sorted(sizes, key=lambda v: (-sizes[v], intervals[v].first)):
        nbytes = -(-sizes[value] // alignment) * alignment
        offset = 0
        for start, end, interval in placed:
            if not interval.overlaps(intervals[value]):
                continue
            if offset + nbytes <= start:
                break
            offset = max(offset, end)
        offsets[value] = offset
        if nbytes:
            placed.append((offset, offset + nbytes, intervals[value]))
            placed.sort(key=lambda item: item[0])
        total = max(total, offset + nbytes)
    return ArenaLayout(offsets, total)
