"""Cores and container quotas as Linux tells them, under /sys."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

SYSTEM = Path("/sys")


def count_cores(processors: Iterable[int], system: Path = SYSTEM) -> int:
    """Return how many different cores these processors belong to; a processor of unknown core is one of its own."""
    cores = set()
    for processor in processors:
        siblings = _read(system / f"devices/system/cpu/cpu{processor}/topology/thread_siblings_list")
        cores.add(siblings or str(processor))
    return len(cores)


def container_quota(system: Path = SYSTEM) -> float | None:
    """Return the container's share of processor time in processors, ``None`` without a limit (cgroup v2, then v1)."""
    quota, _, period = _read(system / "fs/cgroup/cpu.max").partition(" ")
    if not quota.isdigit():
        quota, period = (_read(system / f"fs/cgroup/cpu/cpu.cfs_{name}_us") for name in ("quota", "period"))
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() and int(period) else None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:  # not every kernel and container has every file
        return ""
