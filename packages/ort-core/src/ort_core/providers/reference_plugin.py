"""The plugin of the reference provider; registers through the same door as a vendor's."""

from __future__ import annotations

from ort_core.providers.hookspecs import PLUGIN_API, hookimpl
from ort_core.providers.provider import ExecutionProvider
from ort_core.providers.reference import ReferenceExecutionProvider

ORT_PLUGIN_API = PLUGIN_API


@hookimpl
def ort_providers() -> list[type[ExecutionProvider]]:
    """Return the reference provider."""
    return [ReferenceExecutionProvider]
