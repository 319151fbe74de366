"""How much memory this machine has, and how much the container around this process may use.

Linux tells both in files. A sandbox may hide ``/proc``: then the C library is asked.
"""

from __future__ import annotations

import os
import sys


def physical_memory() -> int:
    """Return the memory of this machine in bytes.

    Raises:
        OSError: the system tells it nowhere.
    """
    import psutil  # late: most processes never ask

    try:
        return int(psutil.virtual_memory().total)
    except OSError:
        if not hasattr(os, "sysconf"):
            raise
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except ValueError as error:
        raise OSError(f"this system does not tell how much memory it has: {error}") from error


def container_memory() -> int | None:
    """Return the memory limit of the container, or service, around this process in bytes; ``None`` without one."""
    if sys.platform != "linux":
        return None
    from ort_core.machine_linux import group_memory

    return group_memory()


def usable_memory() -> int:
    """Return what this process may use at most: the machine's memory or its container's limit, in bytes.

    Raises:
        OSError: the system tells neither.
    """
    limit = container_memory()
    try:
        physical = physical_memory()
    except OSError:
        if limit is None:
            raise
        return limit
    return physical if limit is None else min(physical, limit)
