"""side_threads(): threads that work beside the calling one, also where the system gives a process no more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ort_core.forks import be_first

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor


def side_threads(num_threads: int, name: str = "") -> ThreadPoolExecutor:
    """Return an executor; the calling thread does the work that the system gives no thread for."""
    from ort_core.side_executor import SideThreads  # few loads need it

    be_first()
    return SideThreads(num_threads, name)
