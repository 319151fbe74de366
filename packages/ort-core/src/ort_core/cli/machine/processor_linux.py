"""The processor's name, the container's share of it, and peak memory, as Linux tells them."""

from __future__ import annotations

import os
import resource
from contextlib import suppress
from pathlib import Path


def processor_name() -> str:
    """Return the processor's name, empty when unknown."""
    lines = _read("/proc/cpuinfo").splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(("model name", "Model"))), "")


def usable_cores() -> int:
    """Return how many processors this process may run on; all where a sandbox does not tell."""
    with suppress(OSError):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def container_cores() -> float | None:
    """Return the container's share of processor time in cores, ``None`` without a limit."""
    quota, _, period = _read("/sys/fs/cgroup/cpu.max").strip().partition(" ")
    if not quota.isdigit():
        quota, period = (_read(f"/sys/fs/cgroup/cpu/cpu.cfs_{name}_us").strip() for name in ("quota", "period"))
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() and int(period) else None


def peak_resident() -> int:
    """Return the most memory this process has held, in bytes; ``getrusage`` would count the parent before exec."""
    for line in _read("/proc/self/status").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # a sandbox may hide /proc


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:  # not every kernel and container has every file
        return ""
