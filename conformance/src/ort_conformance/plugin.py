"""The plugin of ort-conformance: two subcommands of ``ort``, and no provider."""

from __future__ import annotations

from collections.abc import Mapping

from ort_core.plugin import hookimpl

ORT_PLUGIN_API = (2, 0)


@hookimpl
def ort_cli_commands() -> Mapping[str, object]:
    """Return the subcommands of this package."""
    from ort_conformance.commands.conformance import conformance
    from ort_conformance.commands.new_ep import new_ep

    return {"conformance": conformance, "new-ep": new_ep}
