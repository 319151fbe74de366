"""Memory planning for plugin authors (provisional): the same pure functions as the runtime uses."""

from __future__ import annotations

from ort_core.memory.liveness import Interval, StepUse, last_readers, live_intervals
from ort_core.memory.offsets import ArenaLayout, assign_offsets

__all__ = ["ArenaLayout", "Interval", "StepUse", "assign_offsets", "last_readers", "live_intervals"]
