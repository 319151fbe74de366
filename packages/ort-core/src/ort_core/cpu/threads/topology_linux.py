"""Cores and container quotas as Linux tells them, under /sys."""

from __future__ import annotations

from collections.abc import Iterable
from os import PathLike, fspath

SYSTEM = "/sys"


def count_cores(processors: Iterable[int], system: str | PathLike[str] = SYSTEM) -> int:
    """Return how many different cores these processors belong to; a processor of unknown core is one of its own."""
    cores = set()
    for processor in processors:
        siblings = _read(system, f"devices/system/cpu/cpu{processor}/topology/thread_siblings_list")
        cores.add(siblings or str(processor))
    return len(cores)


def container_quota(system: str | PathLike[str] = SYSTEM) -> float | None:
    """Return the container's share of processor time in processors, ``None`` without a limit (cgroup v2, then v1)."""
    quota, _, period = _read(system, "fs/cgroup/cpu.max").partition(" ")
    if not quota.isdigit():
        quota, period = (_read(system, f"fs/cgroup/cpu/cpu.cfs_{name}_us") for name in ("quota", "period"))
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() and int(period) else None


def _read(system: str | PathLike[str], name: str) -> str:
    try:
        with open(f"{fspath(system)}/{name}", encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:  # not every kernel and container has every file
        return ""
