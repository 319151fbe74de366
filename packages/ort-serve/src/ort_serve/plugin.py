"""The plugin of ort-serve: two subcommands of ``ort``, and no provider."""

from __future__ import annotations

from collections.abc import Mapping

from ort_core.plugin import hookimpl

ORT_PLUGIN_API = (2, 0)


@hookimpl
def ort_cli_commands() -> Mapping[str, object]:
    """Return the subcommands of this package."""
    from ort_serve.commands.batch import batch
    from ort_serve.commands.serve import serve

    return {"batch": batch, "serve": serve}
