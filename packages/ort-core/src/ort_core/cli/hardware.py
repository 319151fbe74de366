"""The machine: processor, features that matter to kernels, cores, memory, and the limits set on this process."""

from __future__ import annotations

import importlib
import os
import platform
import sys
from dataclasses import dataclass

_FEATURES = (  # what code generators and kernels ask for, of what numpy detects
    "SSE42", "AVX", "AVX2", "FMA3", "F16C", "AVX512F", "AVX512BW", "AVX512VL", "AVX512VNNI", "AVX512_BF16",
    "AVX512_SPR", "AVX512_ICL", "AVX512_SKX", "NEON", "ASIMD", "ASIMDHP", "ASIMDDP", "ASIMDFHM", "SVE", "VSX", "VSX4",
    "VX", "RVV", "LSX",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Hardware:
    """Facts of the machine; limits are ``None`` where nothing limits."""

    system: str
    processor: str
    features: tuple[str, ...]
    logical_cores: int
    physical_cores: int | None
    usable_cores: int
    container_cores: float | None
    memory_nbytes: int
    available_nbytes: int
    container_memory_nbytes: int | None


def find_hardware() -> Hardware:
    """Return the facts of this machine."""
    import psutil

    memory = psutil.virtual_memory()
    logical = os.cpu_count() or 1
    name, usable, quota, limit = platform.processor() or platform.machine(), logical, None, None
    if sys.platform == "linux":
        from ort_core.cli import processor_linux

        name = processor_linux.processor_name() or name
        usable, quota = processor_linux.usable_cores(), processor_linux.container_cores()
        limit = processor_linux.container_memory()
    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    return Hardware(
        system, name, _features(), logical, psutil.cpu_count(logical=False), usable, quota, memory.total,
        memory.available, limit,
    )  # fmt: skip


def _features() -> tuple[str, ...]:
    try:
        found = importlib.import_module("numpy._core._multiarray_umath").__cpu_features__
    except (ImportError, AttributeError):  # numpy promises no such name; without it the list is empty
        return ()
    return tuple(name for name in _FEATURES if found.get(name))
