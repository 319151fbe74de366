"""``ort profile``: where the time of a run goes, how far from the machine's limits, as tables, a trace and a page."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from ort_core.cli.parameters import (
    Config,
    Dims,
    Disabled,
    Inputs,
    JsonFlag,
    Level,
    LevelName,
    ModelPath,
    Operators,
    ProviderNames,
    Seed,
    Shapes,
    Threads,
)
from ort_core.whole_files import replace_text, written_whole


def profile(
    model: ModelPath,
    iterations: Annotated[int, typer.Option("--iterations", "-n", min=1, help="Runs to add up.")] = 5,
    warmup: Annotated[int, typer.Option("--warmup", "-w", min=0, help="Runs before the measurement.")] = 1,
    top: Annotated[int, typer.Option("--top", min=1, help="How many nodes and operators to show.")] = 10,
    trace: Annotated[
        Path | None, typer.Option("--trace", metavar="FILE.json", help="Keep the Chrome trace (for Perfetto).")
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE.html", help="Write a page with pictures (one file).")
    ] = None,
    inputs: Inputs = None,
    shape: Shapes = None,
    dim: Dims = None,
    seed: Seed = 0,
    provider: ProviderNames = None,
    level: Level = LevelName.ALL,
    disable: Disabled = None,
    threads: Threads = 0,
    config: Config = None,
    ops: Operators = None,
    json: JsonFlag = False,
) -> None:
    """Show which operators and nodes take the time of a run."""
    from ort_core.cli.console import print_json
    from ort_core.cli.inputs.feeds import InputRequest
    from ort_core.cli.measuring.profile_recording import measure_ceilings, record_profile
    from ort_core.cli.measuring.profile_report import summarize_trace
    from ort_core.cli.outputs.output_files import check_folder
    from ort_core.cli.sessions import SessionRequest

    if trace is not None:
        check_folder(trace, "--trace", model)
    if html is not None:
        check_folder(html, "--html", model)
    request = SessionRequest(provider, level, disable, False, threads, ops, config)
    inputs_request = InputRequest(inputs, shape, dim, seed)
    with tempfile.TemporaryDirectory(prefix="ort-profile-") as folder:
        recorded = record_profile(model, inputs_request, request, Path(folder), warmup, iterations)
        ceilings = measure_ceilings(recorded.providers, threads)
        written = recorded.trace
        report = {"model": str(model), **summarize_trace(written, iterations, recorded.run_ns, ceilings), "trace": None}
        if trace is not None:
            with written_whole(trace) as partial:
                shutil.copyfile(written, partial)
            report["trace"] = str(trace)
    report["page"] = None if html is None else str(html)
    if html is not None:
        from ort_core.cli.pages.profile_page import profile_page

        replace_text(html, profile_page(report))
    if json:
        print_json(report)
    else:
        _show(report, top)


def _show(report: Mapping[str, Any], top: int) -> None:  # Any: plain data, as in the JSON document
    from ort_core.cli.console import output_console, time_text
    from ort_core.cli.measuring.profile_report import ceiling_text

    console = output_console()
    if report["nodes"]:
        _show_rows("operator", report["operators"], top)
        _show_rows("node", report["nodes"], top)
    else:
        console.print("the provider ran whole partitions and told of no single node; --provider reference does")
    other = report["run_ms"] - report["nodes_ms"]
    console.print(
        f"one run: {time_text(report['run_ms'] * 1e6)}, in nodes {time_text(report['nodes_ms'] * 1e6)}, between them "
        f"{time_text(max(other, 0) * 1e6)} (mean of {report['iterations']} runs, with the profiler's own cost)"
    )
    for name, each in report["ceilings"].items():
        console.print(ceiling_text(name, each))
    if report["page"]:
        console.print(f"page written to {report['page']}")
    if report["trace"]:
        console.print(f"trace written to {report['trace']}; open it in https://ui.perfetto.dev or chrome://tracing")


def _show_rows(what: str, rows: Sequence[Mapping[str, Any]], top: int) -> None:  # Any: plain data
    from ort_core.cli.console import count_text, output_console, time_text
    from ort_core.cli.measuring.profile_report import first_name, rate_texts
    from ort_core.cli.tables import new_table, show_table

    has_steps = any(row.get("step") for row in rows)
    details = ("calls",) if what == "operator" else (*(("step",) if has_steps else ()), "operator", "output")
    rates = ("GFLOP/s", "GB/s", "of ceiling") if any("gflops_per_s" in row for row in rows) else ()
    columns = (what, *details, "time", "share", "so far", *rates)
    table = new_table(columns, numbers=("calls", "time", "share", "so far", *rates))
    so_far = 0.0
    for row in rows[:top]:
        so_far += row["share"]
        cells = [str(row[detail]) for detail in details]
        cells += [time_text(row["ms"] * 1e6), f"{row['share']:.1%}", f"{so_far:.1%}"]
        table.add_row(first_name(row), *cells, *(rate_texts(row) if rates else ()))
    show_table(output_console(), table)
    if len(rows) > top:
        output_console().print(f"… and {count_text(len(rows) - top, f'more {what}')}; --top shows more\n")
