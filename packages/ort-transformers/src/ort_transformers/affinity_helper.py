"""AffinitySetting: keeps the cores that a process may use, and gives them back after something changed them."""

from __future__ import annotations

import logging
import os
import sys

log = logging.getLogger(__name__)


class AffinitySetting:
    """The cores of this process, as they were when ``get_affinity`` was called."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.affinity: set[int] | None = None
        self.is_os_supported = hasattr(os, "sched_getaffinity")
        if not self.is_os_supported:
            log.warning("this system does not tell which cores a process may use")

    def get_affinity(self) -> None:
        """Keep the cores."""
        if sys.platform == "linux":
            self.affinity = os.sched_getaffinity(self.pid)

    def set_affinity(self) -> None:
        """Set the cores that were kept, if they have changed."""
        if sys.platform != "linux" or self.affinity is None:
            return
        current = os.sched_getaffinity(self.pid)
        if current != self.affinity:
            log.warning("cores %s are replaced by %s", current, self.affinity)
            os.sched_setaffinity(self.pid, self.affinity)
