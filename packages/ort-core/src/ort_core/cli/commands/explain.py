"""``ort explain``: where each node runs, and why not elsewhere."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ort_core.cli.parameters import Disabled, JsonFlag, Level, LevelName, ModelPath, Operators, ProviderNames, Strict

if TYPE_CHECKING:
    from ort_core.partitioning.report import NodePlacement, PlacementReport


def explain(
    model: ModelPath,
    provider: ProviderNames = None,
    level: Level = LevelName.ALL,
    disable: Disabled = None,
    strict: Strict = False,
    ops: Operators = None,
    nodes: Annotated[bool, typer.Option("--nodes", help="One line for each node.")] = False,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE.html", help="Write the graph as a picture (one page).")
    ] = None,
    trace: Annotated[
        Path | None, typer.Option("--trace", metavar="FILE.json", help="Times for the page: of `ort profile --trace`.")
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Show which provider runs which part of a model, and the reasons."""
    from ort_core import stages
    from ort_core.cli.console import print_json, working
    from ort_core.cli.output_files import check_folder
    from ort_core.cli.parameters import parse_providers
    from ort_core.cli.sessions import SessionRequest
    from ort_core.environment import default_environment
    from ort_core.onnx_io.load import load_model

    request = parse_providers(provider)
    times = _times(trace, html)
    if html is not None:
        check_folder(html, "--html")
    with working(f"Placing {model.name}"):
        options = SessionRequest(provider, level, disable, strict, operators=ops).options()
        prepared = stages.prepare(
            load_model(model), options, default_environment(), request, folder=model.parent, takes_defaults=True
        )
    if html is not None:
        from ort_core.cli.graph_facts import graph_facts
        from ort_core.cli.graph_page import graph_page

        facts = graph_facts(prepared.model.graph, prepared.report, times)
        html.write_text(graph_page(model.name, facts), encoding="utf-8")
    prepared.plan.close()
    if json:
        print_json({"model": str(model), **prepared.report.as_dict(), "page": None if html is None else str(html)})
        return
    _show(prepared.report)
    if nodes:
        _show_nodes(prepared.report)
    if html is not None:
        from ort_core.cli.console import output_console

        output_console().print(f"page written to {html}")


def _times(trace: Path | None, html: Path | None) -> dict[str, float]:
    """Return the times of regions in a trace, by name; nothing without one."""
    if trace is None:
        return {}
    from ort_core.cli.graph_page import region_times_ms

    if html is None:
        raise typer.BadParameter("times are shown on a page: give --html as well", param_hint="--trace")
    try:
        return region_times_ms(trace)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise typer.BadParameter(f"{trace} is no Chrome trace of a session: {error}", param_hint="--trace") from error


def operators_text(nodes: tuple[NodePlacement, ...], limit: int = 8) -> str:
    """Return the most frequent operators of some nodes."""
    counts = Counter(node.op_type for node in nodes)
    listed = ", ".join(f"{op} x{count}" if count > 1 else op for op, count in counts.most_common(limit))
    return listed + (f", {len(counts) - limit} more kinds" if len(counts) > limit else "")


def _show(report: PlacementReport) -> None:
    from ort_core.cli.console import new_table, output_console, show_table

    console = output_console()
    counts = ", ".join(f"{count} on {name}" for name, count in report.counts().items())
    console.print(f"{len(report.nodes)} nodes: {counts or 'none'} (asked in this order: {', '.join(report.providers)})")
    table = new_table(("partition", "provider", "nodes", "operators"), numbers=("nodes",))
    for name, placed in report.partitions().items():
        table.add_row(name, placed[0].provider, str(len(placed)), operators_text(placed))
    show_table(console, table)
    reasons: Counter[tuple[str, str, str]] = Counter()
    for node in report.nodes:
        reasons.update((r.provider, node.op_type, r.reason) for r in node.refusals)
    if reasons or report.unavailable:
        table = new_table(("not taken by", "operator", "nodes", "reason"), numbers=("nodes",))
        for name, reason in report.unavailable:
            table.add_row(name, "(all)", str(len(report.nodes)), f"not available: {reason}")
        for (name, op_type, reason), count in reasons.most_common():
            table.add_row(name, op_type, str(count), reason)
        show_table(console, table)
    for text in report.fallbacks:
        console.print(f"fallback: {text}")


def _show_nodes(report: PlacementReport) -> None:
    from ort_core.cli.console import new_table, output_console, show_table

    table = new_table(("node", "operator", "provider", "partition"))
    for node in report.nodes:
        name = "/".join((*node.path, node.name or "(no name)"))
        operator = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
        table.add_row(name, operator, node.provider, node.partition)
    show_table(output_console(), table)
