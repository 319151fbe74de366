"""The processor's name and peak memory, as Linux tells them."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

assert sys.platform != "win32"


def processor_name() -> str:
    """Return the processor's name, empty when unknown."""
    lines = _read("/proc/cpuinfo").splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(("model name", "Model"))), "")


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
