"""Options of the CPU provider."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CpuOptions:
    """``use_arena`` as onnxruntime has it; numpy owns the memory of kernels, so it has no effect on results."""

    use_arena: bool = True
