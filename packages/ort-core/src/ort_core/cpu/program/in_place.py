"""Outputs that may lie where an input does: caches that grow in the caller's own memory.

A step that appends to a cache (``Step.in_place``) copies nothing where the caller gives one array as the past and as
the present. That is sound when nobody else reads that input and nobody else writes that output.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from ort_core.cpu.lowering.steps import Step
from ort_core.cpu.lowering.views import Place


def in_place_outputs(steps: Sequence[Step]) -> Mapping[int, int]:
    """Return the number of the input for each number of an output that may be the very memory of that input."""
    readers = Counter(index for step in steps for index in {b.index for b in step.reads if b.place is Place.INPUT})
    writers = Counter(index for step in steps for index in {b.index for b in step.writes if b.place is Place.OUTPUT})
    found = {}
    for step in steps:
        if step.in_place is None:
            continue
        old, new = step.in_place
        is_border = old.place is Place.INPUT and new.place is Place.OUTPUT
        if is_border and readers[old.index] == writers[new.index] == 1:
            found[new.index] = old.index
    return found
