"""The plugin of ort-genai: the subcommand ``ort genai``, and no provider."""

from __future__ import annotations

from collections.abc import Mapping

from ort_core.plugin import hookimpl

ORT_PLUGIN_API = (2, 0)


@hookimpl
def ort_cli_commands() -> Mapping[str, object]:
    """Return the subcommands of this package."""
    from ort_genai.commands.app import app

    return {"genai": app}
