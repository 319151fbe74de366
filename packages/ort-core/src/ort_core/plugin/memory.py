"""Memory for plugin authors (provisional): planning by the runtime's own pure functions, mapped and packed weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ort_core.lazy_names import lazy_names

if TYPE_CHECKING:
    from ort_core.memory.liveness import Interval, StepUse, last_readers, live_intervals
    from ort_core.memory.offsets import ArenaLayout, assign_offsets
    from ort_core.memory.slots import ABSENT, SlotUse, ValueSlots, picker
    from ort_core.tensors.large_pages import LargePages, large_memory
    from ort_core.tensors.mapped_files import map_place, place_of
    from ort_core.tensors.mapped_pages import is_mapped, map_few_pages, read_ahead, release_pages
    from ort_core.tensors.weight_store import PackedWeight, WeightKey, WeightStore

__all__ = [
    "ABSENT", "ArenaLayout", "Interval", "LargePages", "PackedWeight", "SlotUse", "StepUse", "ValueSlots", "WeightKey",
    "WeightStore", "assign_offsets", "is_mapped", "large_memory", "last_readers", "live_intervals", "map_few_pages",
    "map_place", "picker", "place_of", "read_ahead", "release_pages",
]  # fmt: skip

__getattr__, __dir__ = lazy_names(  # no plugin pays for names that it does not use
    __name__,
    {
        "ort_core.memory.liveness": ("Interval", "StepUse", "last_readers", "live_intervals"),
        "ort_core.memory.offsets": ("ArenaLayout", "assign_offsets"),
        "ort_core.memory.slots": ("ABSENT", "SlotUse", "ValueSlots", "picker"),
        "ort_core.tensors.large_pages": ("LargePages", "large_memory"),
        "ort_core.tensors.mapped_files": ("map_place", "place_of"),
        "ort_core.tensors.mapped_pages": ("is_mapped", "map_few_pages", "read_ahead", "release_pages"),
        "ort_core.tensors.weight_store": ("PackedWeight", "WeightKey", "WeightStore"),
    },
)  # fmt: skip
