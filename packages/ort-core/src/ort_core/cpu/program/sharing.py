"""Who does which of several steps in a row: one thread each where they need nothing of each other, or all together.

Branches of a model that are small, or that one thread alone can do, keep more threads busy side by side than cut to
pieces one after the other. Work is counted as in steps (``Step.work``); 3,000 take about 1 us.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

ALL = -1  # the owner of a step that all threads share
MEETING_WORK = 3_000  # what a meeting costs
GAIN = 0.85  # of the time that steps take together; estimates are no better than that
MOST_STEPS = 512  # in a row that is looked at for places where branches part
Memories = Collection[int]


class Part(NamedTuple):
    """The memory of which a step writes a part of its own, and what it is a part of: memory is used again."""

    memory: int
    whole: int


@dataclass(slots=True)
class StepCost:
    """What is known of a step: the numbers of the memories that it reads and writes, and its work.

    ``part`` is one of those that it writes, of which it writes a part of its own; ``most_pieces`` is how many threads
    can do something of it.
    """

    reads: Memories
    writes: Memories
    part: Part | None
    work: int
    most_pieces: int


@dataclass(slots=True)
class Handout:
    """For each of several steps in a row the thread that does it, or ``ALL``; behind which of them all must meet."""

    owners: list[int]
    meetings: set[int] = field(default_factory=set)


class TouchedState:
    """What steps have touched since all threads met, and who."""

    def __init__(self) -> None:
        self._read: dict[int, int] = {}
        self._written: dict[int, int] = {}
        self._parts: dict[Part, int] = {}  # written by steps that each write a part of their own
        self._wholes: dict[int, Part] = {}  # the last of them by memory

    def owners(self, reads: Memories, writes: Memories, part: Part | None) -> set[int]:
        """Return whom a step must follow that touches these; ``ALL`` where it is more than one thread."""
        found = {self._read[each] for each in writes if each in self._read}
        for each in (*reads, *writes):
            if each in self._written:
                found.add(self._written[each])
            other = self._wholes.get(each)
            if other is not None and other != part:
                found.add(self._parts[other])
        return found

    def must_wait(self, reads: Memories, writes: Memories, part: Part | None, owner: int) -> bool:
        """Return whether all must meet before a step: what one thread does is in order by itself."""
        found = self.owners(reads, writes, part)
        return bool(found) and (owner == ALL or found != {owner})

    def add(self, reads: Memories, writes: Memories, part: Part | None, owner: int) -> None:
        """Note what a step touches."""
        if part is not None:
            self._parts[part] = owner if self._parts.get(part, owner) == owner else ALL
            self._wholes[part.memory] = part
        whole = [each for each in writes if part is None or each != part.memory]
        for seen, touched in ((self._read, reads), (self._written, whole)):
            for each in touched:
                seen[each] = owner if seen.get(each, owner) == owner else ALL


def handed_out(steps: Sequence[StepCost], together: Sequence[int], threads: int) -> Handout | None:
    """Return who does which of several steps in a row, if that is faster than how they are done otherwise.

    Args:
        steps: the steps.
        together: the owner of each otherwise, 0 or ``ALL``.
        threads: how many threads there are.
    """
    otherwise = _time(steps, Handout(list(together)), threads)
    if otherwise < 4 * MEETING_WORK:
        return None
    tried = [_given_to_who_has_least(steps, partings, threads) for partings in _partings(steps)]
    best = min(tried, key=lambda each: _time(steps, each, threads))
    is_split = len(set(best.owners)) > 1  # else one thread would do what all may as well
    return best if is_split and _time(steps, best, threads) + MEETING_WORK < GAIN * otherwise else None


def _partings(steps: Sequence[StepCost]) -> Iterable[set[int]]:
    """Yield sets of steps behind which all may meet, so that any thread can go on: none, and where branches part."""
    yield set()
    if len(steps) > MOST_STEPS:
        return
    writers: dict[int, int] = {}  # for each memory the steps that what it holds needs, as bits
    latest: dict[int, tuple[int, int | None]] = {}  # for each memory its last writer, and its last reader since
    found: set[int] = set()
    for number, step in enumerate(steps):
        needed = 0
        for each in step.reads:
            needed |= writers.get(each, 0)
        for each in step.reads:
            if each in latest:
                writer, reader = latest[each]
                if reader is not None and not needed >> reader & 1:
                    found.add(writer)
                latest[each] = writer, number
        for each in step.writes:
            others = writers.get(each, 0) if step.part is not None and each == step.part.memory else 0
            writers[each] = others | needed | 1 << number
            latest[each] = number, None
    if found:
        yield found


def _given_to_who_has_least(steps: Sequence[StepCost], partings: set[int], threads: int) -> Handout:
    """Return each step with the thread that has what it needs, or, where that is none, with the one free first."""
    touched, loads = TouchedState(), [0] * threads
    made = Handout([], set(partings))
    for number, step in enumerate(steps):
        if number - 1 in partings:
            touched, loads = TouchedState(), [0] * threads
        found = touched.owners(step.reads, step.writes, step.part)
        if len(found) > 1 or ALL in found:
            touched, loads, found = TouchedState(), [0] * threads, set()
        owner = found.pop() if found else loads.index(min(loads))
        loads[owner] += step.work
        touched.add(step.reads, step.writes, step.part, owner)
        made.owners.append(owner)
    return made


def _time(steps: Sequence[StepCost], handout: Handout, threads: int) -> float:
    """Return the work after which the last thread is done, meetings included."""
    touched, loads, total = TouchedState(), [0.0] * threads, 0.0
    for number, (step, owner) in enumerate(zip(steps, handout.owners, strict=True)):
        if number - 1 in handout.meetings or touched.must_wait(step.reads, step.writes, step.part, owner):
            total += max(loads) + MEETING_WORK
            touched, loads = TouchedState(), [0.0] * threads
        busy = range(min(threads, max(1, step.most_pieces))) if owner == ALL else (owner,)
        for thread in busy:
            loads[thread] += step.work / len(busy)
        touched.add(step.reads, step.writes, step.part, owner)
    return total + max(loads)
