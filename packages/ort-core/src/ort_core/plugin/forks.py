"""What a plugin does so that a forked child of the process lives (provisional)."""

from __future__ import annotations

from ort_core.forks import Lock, be_first, new_lock, new_reentrant_lock, no_fork
from ort_core.side_threads import side_threads

__all__ = ["Lock", "be_first", "new_lock", "new_reentrant_lock", "no_fork", "side_threads"]
