"""Outputs stored as soon as they are known: what they are stored from is then free for what comes later.

A value that is an output, too, is brought into the caller's order when its group has been lowered. Done last, each such
value would keep its memory to the end: of ten convolutions whose values are all outputs, 121 MB in place of 17.
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
