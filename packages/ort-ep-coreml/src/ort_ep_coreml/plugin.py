"""The plugin: what ort-core calls to learn of the providers and the subcommand. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Mapping

from ort_core.plugin import ExecutionProvider, hookimpl

ORT_PLUGIN_API = (2, 0)  # the version of the specification that this package was written for


@hookimpl
def ort_providers() -> list[type[ExecutionProvider]]:
    """Return the provider for Apple's devices, and the one that checks its programs anywhere."""
    from ort_ep_coreml.provider import CoreMlEvaluationProvider, CoreMlExecutionProvider

    return [CoreMlExecutionProvider, CoreMlEvaluationProvider]


@hookimpl
def ort_cli_commands() -> Mapping[str, object]:
    """Return the subcommand of this package."""
    from ort_ep_coreml.commands.export_coreml import export_coreml

    return {"export-coreml": export_coreml}
