"""The plugin of the CPU provider."""

from __future__ import annotations

from ort_core.plugin import PLUGIN_API, ExecutionProvider, hookimpl

ORT_PLUGIN_API = PLUGIN_API


@hookimpl
def ort_providers() -> list[type[ExecutionProvider]]:
    """Return the CPU provider."""
    from ort_core.cpu.provider import CpuExecutionProvider

    return [CpuExecutionProvider]
