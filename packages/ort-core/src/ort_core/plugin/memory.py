"""Memory for plugin authors (provisional): planning by the runtime's own pure functions, mapped and packed weights."""

from __future__ import annotations

from ort_core.memory.liveness import Interval, StepUse, last_readers, live_intervals
from ort_core.memory.offsets import ArenaLayout, assign_offsets
from ort_core.tensors.mapped_pages import is_mapped, read_ahead, release_pages
from ort_core.tensors.weight_store import PackedWeight, WeightKey, WeightStore

__all__ = [
    "ArenaLayout",
    "Interval",
    "PackedWeight",
    "StepUse",
    "WeightKey",
    "WeightStore",
    "assign_offsets",
    "is_mapped",
    "last_readers",
    "live_intervals",
    "read_ahead",
    "release_pages",
]
