"""``ort providers``: which execution providers there are, and why one cannot be used."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from ort_core.cli.parameters import JsonFlag


def providers(
    options: Annotated[bool, typer.Option("--options", help="Explain each provider's options.")] = False,
    json: JsonFlag = False,
) -> None:
    """List execution providers, available or not."""
    from ort_core.cli.console import output_console, print_json
    from ort_core.cli.machine.provider_facts import describe_plugins, describe_providers
    from ort_core.cli.tables import new_table, show_table

    rows = describe_providers()
    broken = [plugin for plugin in describe_plugins() if plugin.reason]
    if json:
        print_json({"providers": [dataclasses.asdict(row) for row in rows],
                    "unusable_plugins": [dataclasses.asdict(plugin) for plugin in broken]})  # fmt: skip
        return
    console = output_console()
    table = new_table(("provider", "available", "package", "remarks"))
    for row in rows:
        by_default = "" if row.is_listed or not row.is_available else "only when asked for"
        remarks = "; ".join(filter(None, (by_default, row.remarks)))
        table.add_row(row.name, "yes" if row.is_available else "no", row.package or "-", remarks)
    show_table(console, table)
    for plugin in broken:
        console.print(f"plugin {plugin.name} ({plugin.package}) cannot be used: {plugin.reason}")
    if options:
        for row in filter(lambda row: row.options, rows):
            table = new_table(("option", "type", "default", "meaning"), title=row.name)
            for option in row.options:
                table.add_row(option.name, option.type, option.default, option.sentence or "-")
            show_table(console, table)
