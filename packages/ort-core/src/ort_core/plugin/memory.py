"""Memory for plugin authors (provisional): planning by the runtime's own pure functions, pages of mapped weights."""

from __future__ import annotations

from ort_core.memory.liveness import Interval, StepUse, last_readers, live_intervals
from ort_core.memory.offsets import ArenaLayout, assign_offsets
from ort_core.tensors.mapped_pages import read_ahead, release_pages

__all__ = [
    "ArenaLayout",
    "Interval",
    "StepUse",
    "assign_offsets",
    "last_readers",
    "live_intervals",
    "read_ahead",
    "release_pages",
]
