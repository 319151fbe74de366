"""Steps that move: stores of outputs forwards, steps that keep few threads busy backwards, until they are needed.

A value that is an output, too, is brought into the caller's order when its group has been lowered. Done last, each such
value would keep its memory to the end: of ten convolutions whose values are all outputs, 121 MB in place of 17.

A recurrent layer of one text keeps one thread busy. What does not need it is done before, so that two such layers come
one after the other and threads can do them side by side.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

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
    waiting: list[Step] = []
    for step in steps:
        needed = _needed_for(step, waiting)
        found.extend(each for each in waiting if id(each) in needed)
        waiting = [each for each in waiting if id(each) not in needed]
        (found if step.most_pieces is None else waiting).append(step)
    return found + waiting


def _needed_for(step: Step, waiting: Sequence[Step]) -> set[int]:
    """Return the ``id`` of each step that waits and has to come before a step, or before another of those."""
    needed: set[int] = set()
    later = [step]
    for each in reversed(waiting):
        if any(_is_ordered(each, other) for other in later):
            needed.add(id(each))
            later.append(each)
    return needed


def _is_ordered(first: Step, second: Step) -> bool:
    """Return whether two steps touch the same memory, and one of them writes it; both may write parts of it."""
    if first.part is not None and first.part == second.part:
        return False  # all that they have in common: what writes a part reads other memory
    read, written = set(second.reads), set(second.writes)
    return not (written.isdisjoint(first.writes) and written.isdisjoint(first.reads) and read.isdisjoint(first.writes))
