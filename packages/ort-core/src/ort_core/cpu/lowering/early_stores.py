"""Steps that move: stores of outputs forwards, steps that keep few threads busy backwards, until they are needed.

A value that is an output, too, is brought into the caller's order when its group has been lowered. Done last, each such
value would keep its memory to the end: of ten convolutions whose values are all outputs, 121 MB in place of 17.

A recurrent layer of one text keeps one thread busy. What does not need it is done before, so that two such layers come
one after the other and threads can do them side by side.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ort_core.cpu.lowering.steps import Step
from ort_core.cpu.lowering.views import Buffer


def stored_early(steps: Sequence[Step], late: Collection[int]) -> list[Step]:
    """Return the steps, some of them moved behind the last that writes what they read, whose memory is free then.

    Args:
        steps: in an order that is right.
        late: the ``id`` of each of the last ones that may move.
    """
    behind: list[list[Step]] = [[] for _ in steps]
    place_of: dict[Buffer, int] = {}
    for number, step in enumerate(steps):
        places = [place_of[buffer] for buffer in step.reads if buffer in place_of]
        place = max(places) if places and id(step) in late else number
        behind[place].append(step)
        place_of.update(dict.fromkeys(step.writes, place))
    return [step for group in behind for step in group]


def side_by_side(steps: Sequence[Step]) -> list[Step]:
    """Return the steps, those that few threads can share moved to right before the first that needs them."""
    if sum(step.most_pieces is not None for step in steps) < 2:
        return list(steps)
    found: list[Step] = []
    waiting: dict[int, Step] = {}
    touching: dict[Buffer, list[int]] = {}  # the numbers of those that wait, or waited
    for number, step in enumerate(steps):
        for each in sorted(_needed_for(step, number, waiting, touching)):
            found.append(waiting.pop(each))
        if step.most_pieces is None:
            found.append(step)
            continue
        waiting[number] = step
        for buffer in {*step.reads, *step.writes}:
            touching.setdefault(buffer, []).append(number)
    return [*found, *waiting.values()]


def _needed_for(
    step: Step, number: int, waiting: Mapping[int, Step], touching: Mapping[Buffer, Sequence[int]]
) -> set[int]:
    """Return the numbers of steps that wait and have to come before a step, or before another of those."""
    needed: set[int] = set()
    later = [(step, number)]
    while later:
        each, behind = later.pop()
        for buffer in (*each.reads, *each.writes):
            for place in touching.get(buffer, ()):
                if place < behind and place in waiting and place not in needed and _is_ordered(waiting[place], each):
                    needed.add(place)
                    later.append((waiting[place], place))
    return needed


def _is_ordered(first: Step, second: Step) -> bool:
    """Return whether two steps touch the same memory, and one of them writes it; both may write parts of it."""
    if first.part is not None and first.part == second.part:
        return False  # all that they have in common: what writes a part reads other memory
    read, written = set(second.reads), set(second.writes)
    return not (written.isdisjoint(first.writes) and written.isdisjoint(first.reads) and read.isdisjoint(first.writes))
