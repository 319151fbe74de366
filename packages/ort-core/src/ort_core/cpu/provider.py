"""CpuExecutionProvider: every operator on the CPU, node by node over the numpy kernels; the last resort of a session."""

from __future__ import annotations

import os
import platform
from typing import ClassVar

from ort_core.cpu.options import CpuOptions
from ort_core.plugin import Available, KernelProvider, Unavailable


class CpuExecutionProvider(KernelProvider):
    """Runs what nobody else took."""

    name: ClassVar[str] = "CPUExecutionProvider"
    options_type: ClassVar[type] = CpuOptions
    is_last_resort: ClassVar[bool] = True
    priority: ClassVar[int] = 0

    @classmethod
    def check(cls) -> Available | Unavailable:
        """Return what processor this is; always available."""
        return Available(f"{platform.machine()}, {os.cpu_count()} logical processors")
