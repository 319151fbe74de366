"""How much memory this machine has, and how much the container around this process may use.

Linux tells both in files. A sandbox may hide ``/proc``, and a kernel may have no control groups. The C library is asked
for what is hidden, or it counts as no limit.
"""

from __future__ import annotations

import os
from pathlib import Path

_CONTAINER_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_NO_LIMIT = 1 << 60  # older kernels write a number of pages beyond any machine where nothing limits


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
    """Return the memory limit of the container around this process in bytes, ``None`` without one."""
    for path in _CONTAINER_LIMITS:
        try:
            text = Path(path).read_text(encoding="ascii").strip()
        except OSError:  # not every kernel has every file
            continue
        if text.isdigit():
            return int(text) if int(text) < _NO_LIMIT else None
    return None


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
