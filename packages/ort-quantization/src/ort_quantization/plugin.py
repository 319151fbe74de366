"""The plugin of ort-quantization: a subcommand of ``ort``, and no provider."""

from __future__ import annotations

from collections.abc import Mapping

from ort_core.plugin import hookimpl

ORT_PLUGIN_API = (2, 0)


@hookimpl
def ort_cli_commands() -> Mapping[str, object]:
    """Return the subcommands of this package."""
    from ort_quantization.commands.quantize import quantize

    return {"quantize": quantize}
