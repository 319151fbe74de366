"""The table of fusions that nearly fired."""

from __future__ import annotations

from collections.abc import Sequence

from ort_core.cli.console import output_console
from ort_core.cli.tables import new_table, show_table
from ort_core.passes.near_misses import NearMiss, counted


def show_near_misses(misses: Sequence[NearMiss]) -> None:
    """Print one row for each pass, rule and reason, with the first node of each."""
    if not misses:
        output_console().print("no fusion nearly fired")
        return
    table = new_table(("nearly fired", "where", "nodes", "first at", "why it did not"), numbers=("nodes",))
    for each, count in counted(misses):
        name = each.rule if each.rule == each.pass_name else f"{each.rule} ({each.pass_name})"
        table.add_row(name, each.partition or "the model", str(count), each.node, each.reason)
    show_table(output_console(), table)
