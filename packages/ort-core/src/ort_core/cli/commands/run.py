"""``ort run``: one run of a model, its inputs from files or made up, its outputs shown and saved.

A folder with test data sets is judged instead: every set is run, and its outputs are compared with the expected ones.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ort_core.cli.parameters import (
    Config,
    Dims,
    Disabled,
    Inputs,
    JsonFlag,
    Level,
    LevelName,
    Operators,
    ProviderNames,
    Seed,
    Shapes,
    Strict,
    Threads,
    ToleranceChoice,
    existing_model,
    existing_model_or_folder,
)

if TYPE_CHECKING:
    from ort_core.cli.inputs.feeds import Feeds
    from ort_core.options import RunOptions
    from ort_core.session import InferenceSession

_SETS = "Test data sets of a folder"
_MAX_ALIKE = 4  # inputs of one shape and origin in a row that are all listed


def run(
    model: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL",
            help="An .onnx file, or a folder with one; its test data sets are judged.",
            callback=existing_model_or_folder,
        ),
    ],
    inputs: Inputs = None,
    shape: Shapes = None,
    dim: Dims = None,
    seed: Seed = 0,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="OUT.npz", help="Save the outputs (.npz, or .json).")
    ] = None,
    fetch: Annotated[
        list[str] | None, typer.Option("--fetch", metavar="NAME", help="Compute this output only; repeatable.")
    ] = None,
    first: Annotated[int, typer.Option("--first", min=0, help="How many elements of each output to show.")] = 6,
    provider: ProviderNames = None,
    level: Level = LevelName.ALL,
    disable: Disabled = None,
    strict: Strict = False,
    threads: Threads = 0,
    config: Config = None,
    ops: Operators = None,
    time_limit: Annotated[
        float | None, typer.Option("--time-limit", metavar="SECONDS", min=0, help="Stop the run after this time.")
    ] = None,
    tolerance: Annotated[
        ToleranceChoice,
        typer.Option("--tolerance", help="How far from expected outputs passes.", rich_help_panel=_SETS),
    ] = ToleranceChoice.APPROXIMATE,
    rtol: Annotated[
        float | None,
        typer.Option("--rtol", min=0, help="Relative limit in place of the tolerance's.", rich_help_panel=_SETS),
    ] = None,
    atol: Annotated[
        float | None,
        typer.Option("--atol", min=0, help="Absolute limit in place of the tolerance's.", rich_help_panel=_SETS),
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Run a model once and show its outputs; judge a folder with test data sets, and exit with 1 when one differs."""
    from ort_core.cli.comparing.judging import JudgeRequest, judge_folder
    from ort_core.cli.inputs.data_sets import find_data_sets
    from ort_core.cli.sessions import SessionRequest

    folder, model = model, _model_in(model)
    request = SessionRequest(provider, level, disable, strict, threads, ops, config)
    sets = [] if inputs or shape or dim or output else find_data_sets(folder)
    if sets:
        judge_folder(
            JudgeRequest(model, sets, request, fetch, tolerance.value, rtol, atol, _run_options(time_limit)),
            is_json=json,
        )
        return
    from ort_core.cli.console import print_json, working
    from ort_core.cli.inputs.feeds import InputRequest, build_feeds, run_with_feeds
    from ort_core.cli.outputs.output_files import check_output, save_outputs
    from ort_core.cli.outputs.summaries import summarize
    from ort_core.cli.parameters import check_known
    from ort_core.cli.sessions import providers_used
    from ort_core.onnx_io.load import load_model

    check_output(output, model)
    with working(f"Loading {model.name}"):
        loaded = load_model(model)
        names = [value.name for value in loaded.graph.outputs]
        check_known(fetch or (), names, "output", "--fetch")
        inputs_request = InputRequest(inputs, shape, dim, seed)
        build_feeds(loaded, inputs_request)  # wrong options are told before the model is prepared
        start = time.perf_counter_ns()
        session = request.open(model)
        load_ns = time.perf_counter_ns() - start
    names = list(fetch or names)
    options = _run_options(time_limit)
    with working(f"Running {model.name}"):
        feeds, (results, run_ns) = run_with_feeds(loaded, inputs_request, lambda f: _timed(session, names, f, options))
    outputs = dict(zip(names, results, strict=True))
    if output is not None:
        save_outputs(output, outputs)
    report = {
        "model": str(model),
        "providers": providers_used(session),
        "load_ms": load_ns / 1e6,
        "run_ms": run_ns / 1e6,
        "inputs": {name: {**summarize(v, first), "origin": feeds.origins[name]} for name, v in feeds.values.items()},
        "outputs": {name: summarize(value, first) for name, value in outputs.items()},
        "saved": None if output is None else str(output),
    }
    if json:
        print_json(report)
    else:
        _show(report)


def _model_in(path: Path) -> Path:
    found = existing_model(path)
    assert found is not None, "it was checked when the command line was read"
    return found


def _run_options(time_limit: float | None) -> RunOptions:
    from ort_core.options import RunOptions

    options = RunOptions()
    if time_limit is not None:
        options.time_limit_s = time_limit  # type: ignore[assignment]  # an optional number, whose default is None
    return options


def _timed(
    session: InferenceSession, names: list[str], feeds: Feeds, options: RunOptions
) -> tuple[Sequence[object], int]:
    start = time.perf_counter_ns()
    results = session.run(names, feeds.values, options)
    return results, time.perf_counter_ns() - start


def _show(report: Mapping[str, Any]) -> None:  # Any: plain data, as in the JSON document
    from ort_core.cli.console import output_console, time_text
    from ort_core.cli.outputs.summaries import first_text, range_text, shape_text
    from ort_core.cli.tables import new_table, show_table

    console = output_console()
    table = new_table(("input", "value", "from"))
    rows = [(name, shape_text(summary), summary["origin"]) for name, summary in report["inputs"].items()]
    for alike in _runs_of_alike(rows):
        table.add_row(*alike[0])
        if len(alike) > _MAX_ALIKE:
            table.add_row(f"… {len(alike) - 2} like these …", "", "")
        for row in alike[-1:] if len(alike) > _MAX_ALIKE else alike[1:]:
            table.add_row(*row)
    if report["inputs"]:
        show_table(console, table)
    table = new_table(("output", "value", "min", "max", "mean", "first"), numbers=("min", "max", "mean"))
    for name, summary in report["outputs"].items():
        table.add_row(name, shape_text(summary), *range_text(summary), first_text(summary))
    show_table(console, table)
    times = f"loaded in {time_text(report['load_ms'] * 1e6)}, ran in {time_text(report['run_ms'] * 1e6)}"
    console.print(f"{times} on {', '.join(report['providers'])}")
    if report["saved"]:
        console.print(f"outputs saved to {report['saved']}")


def _runs_of_alike(rows: Sequence[tuple[str, str, str]]) -> list[list[tuple[str, str, str]]]:
    """Return rows in order, those in one list that differ in nothing but the name (the past of each layer)."""
    return [list(group) for _, group in itertools.groupby(rows, key=lambda row: row[1:])]
