"""The machine: processor, features that matter to kernels, cores, memory, and the limits set on this process."""

from __future__ import annotations

import importlib
import os
import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass

from ort_core.machine_memory import container_memory, physical_memory
from ort_core.machine_processors import processor_quota, usable_processors

_FEATURES = (  # what code generators and kernels ask for, of what numpy detects
    "SSE42", "AVX", "AVX2", "FMA3", "F16C", "AVX512F", "AVX512BW", "AVX512VL", "AVX512VNNI", "AVX512_BF16",
    "AVX512_SPR", "AVX512_ICL", "AVX512_SKX", "NEON", "ASIMD", "ASIMDHP", "ASIMDDP", "ASIMDFHM", "SVE", "VSX", "VSX4",
    "VX", "RVV", "LSX",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Hardware:
    """Facts of the machine; ``None`` where nothing limits, or where the system does not tell."""

    system: str
    processor: str
    features: tuple[str, ...]
    logical_cores: int
    physical_cores: int | None
    usable_cores: int
    container_cores: float | None
    memory_nbytes: int | None
    available_nbytes: int | None
    container_memory_nbytes: int | None


def find_hardware() -> Hardware:
    """Return the facts of this machine."""
    name = platform.processor() or platform.machine()
    if sys.platform == "linux":
        from ort_core.cli.machine import processor_linux

        name = processor_linux.processor_name() or name
    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    return Hardware(
        system, name, _features(), os.cpu_count() or 1, _physical_cores(), len(usable_processors()), processor_quota(),
        _known(physical_memory), _known(_available_memory), container_memory(),
    )  # fmt: skip


def _physical_cores() -> int | None:
    import psutil

    return _known(lambda: psutil.cpu_count(logical=False))


def _available_memory() -> int:
    import psutil

    return int(psutil.virtual_memory().available)


def _known(ask: Callable[[], int | None]) -> int | None:
    """Return the answer, ``None`` where a sandbox hides what the system would tell."""
    try:
        return ask()
    except OSError:
        return None


def _features() -> tuple[str, ...]:
    try:
        found = importlib.import_module("numpy._core._multiarray_umath").__cpu_features__
    except (ImportError, AttributeError):  # numpy promises no such name; without it the list is empty
        return ()
    return tuple(name for name in _FEATURES if found.get(name))
