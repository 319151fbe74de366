"""``ort explain``: where each node runs, and why not elsewhere."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ort_core.cli.parameters import (
    Config,
    Disabled,
    JsonFlag,
    Level,
    LevelName,
    ModelPath,
    Operators,
    ProviderNames,
    Strict,
)
from ort_core.whole_files import replace_text

if TYPE_CHECKING:
    from ort_core.ir.graph import Graph
    from ort_core.options import SessionOptions
    from ort_core.partitioning.report import NodePlacement, PlacementReport
    from ort_core.stages import ProviderRequest


def explain(
    model: ModelPath,
    provider: ProviderNames = None,
    level: Level = LevelName.ALL,
    disable: Disabled = None,
    strict: Strict = False,
    config: Config = None,
    ops: Operators = None,
    nodes: Annotated[bool, typer.Option("--nodes", help="One line for each node.")] = False,
    fusions: Annotated[
        bool, typer.Option("--fusions", help="Show which fusions nearly fired, and why they did not.")
    ] = False,
    as_if: Annotated[
        bool,
        typer.Option(
            "--as-if-available",
            help="Ask providers that cannot run here, too, what they would run, and compile nothing. This is how "
            "providers are asked when none of those named can run.",
        ),
    ] = False,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE.html", help="Write the graph as a picture (one page).")
    ] = None,
    trace: Annotated[
        Path | None, typer.Option("--trace", metavar="FILE.json", help="Times for the page: of `ort profile --trace`.")
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Show which provider runs which part of a model, and the reasons."""
    from ort_core.cli.console import print_json, working
    from ort_core.cli.outputs.output_files import check_folder
    from ort_core.cli.parameters import parse_providers
    from ort_core.cli.sessions import SessionRequest

    request = parse_providers(provider)
    if as_if and not request:
        raise typer.BadParameter("name the providers with --provider as well", param_hint="--as-if-available")
    times = _times(trace, html)
    if html is not None:
        check_folder(html, "--html", model)
    with working(f"Placing {model.name}"):
        options = SessionRequest(provider, level, disable, strict, operators=ops, config=config).options()
        graph, report = _placed(model, options, request, as_if=as_if)
        if fusions:
            report = _with_fusions(report, model, options, request)
    if html is not None:
        from ort_core.cli.pages.graph_facts import graph_facts
        from ort_core.cli.pages.graph_page import graph_page

        facts = graph_facts(graph, report, times)
        replace_text(html, graph_page(model.name, facts))
    if json:
        print_json({"model": str(model), **report.as_dict(), "page": None if html is None else str(html)})
        return
    _show(report)
    if report.near_misses is not None:
        from ort_core.cli.models.near_misses import show_near_misses

        show_near_misses(report.near_misses)
    if nodes:
        _show_nodes(report)
    if html is not None:
        from ort_core.cli.console import output_console

        output_console().print(f"page written to {html}")


def _placed(
    path: Path, options: SessionOptions, request: ProviderRequest | None, *, as_if: bool
) -> tuple[Graph, PlacementReport]:
    """Place a model as a session does; as if providers could run here when asked to, and when no session is possible.

    With ``--strict`` a provider that cannot run is an error.
    """
    from ort_core import stages
    from ort_core.environment import default_environment
    from ort_core.onnx_io.load import load_model

    environment, loaded = default_environment(), load_model(path)
    is_possible = not request or options.strict_placement or any(environment.check(name) for name, _ in request)
    if request and (as_if or not is_possible):
        foreseen = stages.foresee(loaded, options, environment, request, path.parent)
        return foreseen.model.graph, foreseen.report
    prepared = stages.prepare(loaded, options, environment, request, folder=path.parent, takes_defaults=True)
    report = stages.explain_executions(prepared)
    prepared.plan.close()
    return prepared.model.graph, report


def _with_fusions(
    report: PlacementReport, path: Path, options: SessionOptions, request: ProviderRequest | None
) -> PlacementReport:
    from dataclasses import replace

    from ort_core import stages
    from ort_core.environment import default_environment
    from ort_core.onnx_io.load import load_model

    if report.is_foreseen:
        raise typer.BadParameter("fusions run where a provider can run; none of these can here", param_hint="--fusions")
    found = stages.find_fusion_misses(load_model(path), options, default_environment(), request, folder=path.parent)
    return replace(report, near_misses=tuple(found))


def _times(trace: Path | None, html: Path | None) -> dict[str, float]:
    """Return the times of regions in a trace, by name; nothing without one."""
    if trace is None:
        return {}
    from ort_core.cli.pages.graph_page import region_times_ms

    if html is None:
        raise typer.BadParameter("times are shown on a page: give --html as well", param_hint="--trace")
    try:
        return region_times_ms(trace)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise typer.BadParameter(
            f"{trace} is not a Chrome trace of a session: {error}", param_hint="--trace"
        ) from error


def operators_text(nodes: tuple[NodePlacement, ...], limit: int = 8) -> str:
    """Return the most frequent operators of some nodes."""
    counts = Counter(node.op_type for node in nodes)
    listed = ", ".join(f"{op} x{count}" if count > 1 else op for op, count in counts.most_common(limit))
    return listed + (f" and {len(counts) - limit} more" if len(counts) > limit else "")


def _show(report: PlacementReport) -> None:
    from ort_core.cli.console import count_text, output_console
    from ort_core.cli.tables import new_table, show_table

    console = output_console()
    counts = ", ".join(f"{count} on {name}" for name, count in report.counts().items())
    if report.is_foreseen:
        console.print("Nothing was compiled: this is where nodes would run if every provider named could run here.")
        for name, reason in report.unavailable:
            console.print(f"{name} cannot run here: {reason}", soft_wrap=True)
    asked = f"(asked in this order: {', '.join(report.providers)})"
    console.print(f"{count_text(len(report.nodes), 'node')}: {counts or 'none'} {asked}")
    table = new_table(("partition", "provider", "nodes", "operators"), numbers=("nodes",))
    for name, placed in report.partitions().items():
        table.add_row(name, placed[0].provider, str(len(placed)), operators_text(placed))
    show_table(console, table)
    _show_executions(report)
    rows = _refusal_rows(report)
    if rows:
        table = new_table(("not taken by", "operator", "nodes", "reason"), numbers=("nodes",))
        for row in rows:
            table.add_row(*row)
        show_table(console, table)
    for text in report.notes:
        console.print(text)
    for text in report.fallbacks:
        console.print(f"fallback: {text}")


def _show_executions(report: PlacementReport) -> None:
    """Show how nodes run, where providers tell, and why some run in a plainer way than others."""
    from ort_core.cli.console import output_console
    from ort_core.cli.tables import new_table, show_table

    for name, ways in report.executions().items():
        inside = ", bodies included" if any(each.provider == name for each in report.inner) else ""
        told = ", ".join(f"{count} {how}" for how, count in ways.most_common())
        output_console().print(f"{name} runs {told}{inside}")
    rows = report.reasons().most_common()
    if rows:
        table = new_table(("runs by", "operator", "nodes", "reason"), numbers=("nodes",))
        for (how, operator, reason), count in rows:
            table.add_row(how, operator, str(count), reason)
        show_table(output_console(), table)


def _refusal_rows(report: PlacementReport) -> list[tuple[str, str, str, str]]:
    """Return who left what and why, the most frequent first; one row for a reason that holds for every node."""
    everything = str(len(report.nodes))
    absent = () if report.is_foreseen else report.unavailable
    rows = [(name, "(all)", everything, f"not available: {reason}") for name, reason in absent]
    general = Counter((r.provider, r.reason) for node in report.nodes for r in node.refusals)
    whole = {each for each, count in general.items() if count == len(report.nodes) > 1}
    rows += [(name, "(all)", everything, reason) for name, reason in whole]
    reasons: Counter[tuple[str, str, str]] = Counter()
    for node in report.nodes:
        reasons.update(
            (r.provider, node.op_type, r.reason) for r in node.refusals if (r.provider, r.reason) not in whole
        )
    return rows + [(name, op_type, str(count), reason) for (name, op_type, reason), count in reasons.most_common()]


def _show_nodes(report: PlacementReport) -> None:
    """Show one row for each node, without provider and partition where every row would say the same."""
    from ort_core.cli.console import output_console
    from ort_core.cli.tables import new_table, show_table

    nodes = (*report.nodes, *report.inner)
    has_places = len({(node.provider, node.partition) for node in nodes}) > 1
    is_told = any(node.execution is not None for node in nodes)
    places = ("provider", "partition") if has_places else ()
    table = new_table(("node", "operator", *places, *(("runs", "step", "reason") if is_told else ())))
    for node in nodes:
        name = "/".join((*node.path, node.name or "(no name)"))
        operator = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
        place = (node.provider, node.partition) if has_places else ()
        how = node.execution
        more = ("",) * 3 if how is None else (how.how, how.step, how.reason)
        table.add_row(name, operator, *place, *(more if is_told else ()))
    show_table(output_console(), table)
