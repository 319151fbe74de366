"""The plugin: what ort-core calls to learn of the provider. Imports nothing heavy."""

from __future__ import annotations

from ort_core.plugin import ExecutionProvider, hookimpl

ORT_PLUGIN_API = (2, 0)  # the version of the specification that this package was written for


@hookimpl
def ort_providers() -> list[type[ExecutionProvider]]:
    """Return the provider class."""
    from ort_ep_template.provider import TemplateExecutionProvider

    return [TemplateExecutionProvider]
