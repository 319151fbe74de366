"""The machine for plugin authors (provisional): the processors and the memory that this process may use."""

from __future__ import annotations

from ort_core.machine_memory import usable_memory
from ort_core.machine_processors import available_processors, available_threads

__all__ = ["available_processors", "available_threads", "usable_memory"]
