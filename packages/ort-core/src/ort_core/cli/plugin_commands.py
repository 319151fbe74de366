"""Subcommands that plugins bring through the hook ``ort_cli_commands``."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from typing import Any

import typer

from ort_core.cli.command_class import OrtCommand
from ort_core.cli.console import warn

PACKAGES_OF_COMMANDS = {
    "new-ep": ("ort-conformance", "./conformance"),
    "conformance": ("ort-conformance", "./conformance"),
    "quantize": ("ort-quantization", "./packages/ort-quantization"),
    "batch": ("ort-serve", "./packages/ort-serve"),
    "serve": ("ort-serve", "./packages/ort-serve"),
    "genai": ("ort-genai", "./packages/ort-genai"),
    "export-coreml": ("ort-ep-coreml", "./packages/ort-ep-coreml"),
}
"""Subcommands of packages of this repository: the distribution and its folder. Advice in messages only."""


def missing_command_text(name: str) -> str:
    """Return what to install for a subcommand that a package of this repository brings, or why it cannot be used."""
    from ort_core.environment import default_environment

    distribution, folder = PACKAGES_OF_COMMANDS[name]
    broken = [
        p for p in default_environment().plugins.plugins if p.distribution == distribution and p.refusal is not None
    ]
    if broken:
        return f"`ort {name}` comes with {distribution}, whose plugin cannot be used: {broken[0].refusal}"
    return (
        f"`ort {name}` comes with the package {distribution}, which is not installed here: pip install {distribution} "
        f"(in a clone of the repository: pip install {folder})"
    )


def find_plugin_commands() -> dict[str, Any]:  # Any: typer's own Command, whose home differs by version
    """Return the commands of all usable plugins by name; one that is no command is warned about and left out."""
    if not has_foreign_plugins():
        return {}
    from ort_core.environment import default_environment

    commands: dict[str, Any] = {}
    for plugin, offered in default_environment().plugins.call("ort_cli_commands"):
        if not isinstance(offered, Mapping):
            warn(f"plugin {plugin!r} returned a {type(offered).__name__} from ort_cli_commands, expected a mapping")
            continue
        for name, command in offered.items():
            if name in commands or not (isinstance(command, typer.Typer) or callable(command)):
                reason = "another plugin has it already" if name in commands else f"{command!r} is not a command"
                warn(f"the subcommand {name!r} of plugin {plugin!r} is left out: {reason}")
                continue
            commands[name] = _as_command(name, command)
    return commands


def has_foreign_plugins() -> bool:
    """Return whether a distribution other than ort-core names plugins; ours bring no commands and cost an import."""
    from ort_core.providers.hookspecs import ENTRY_POINT_GROUP

    points = importlib.metadata.entry_points(group=ENTRY_POINT_GROUP)
    return any(point.dist is None or point.dist.name != "ort-core" for point in points)


def _as_command(name: str, offered: Any) -> Any:  # Any: a Typer or a function in, typer's Command out
    if isinstance(offered, typer.Typer):
        command = typer.main.get_command(offered)
    else:
        single = typer.Typer(add_completion=False)
        single.command(name, cls=OrtCommand)(offered)
        command = typer.main.get_command(single)
    command.name = name
    return command
