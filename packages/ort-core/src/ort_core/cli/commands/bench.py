"""``ort bench``: how long a run takes, alone or in turns with another engine."""

from __future__ import annotations

import importlib.metadata
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
    ModelPath,
    Operators,
    ProviderNames,
    Seed,
    Shapes,
    Threads,
)

if TYPE_CHECKING:
    from ort_core.cli.inputs.feeds import Feeds, InputRequest
    from ort_core.cli.measuring.bench_turns import Contest
    from ort_core.cli.measuring.bench_worker import TurnRequest
    from ort_core.cli.sessions import SessionRequest
    from ort_core.ir.model import Model


_ROUNDS = 7  # turns of each engine where --rounds does not say


def bench(
    model: ModelPath,
    iterations: Annotated[
        int | None, typer.Option("--iterations", "-n", min=1, help="How many runs; without it, --duration decides.")
    ] = None,
    duration: Annotated[float, typer.Option("--duration", "-d", min=0.01, help="Seconds to measure.")] = 5.0,
    warmup: Annotated[int, typer.Option("--warmup", "-w", min=0, help="Runs before the measurement.")] = 3,
    against: Annotated[
        str | None,
        typer.Option("--against", metavar="ENGINE", help="Compare in turns with 'onnxruntime', or FILE.py's engine."),
    ] = None,
    rounds: Annotated[
        int | None, typer.Option("--rounds", min=5, help="Turns of each engine, with --against; 7 without it.")
    ] = None,
    roofline: Annotated[
        bool,
        typer.Option(
            "--roofline",
            help="Also measure the machine, and show the least time and the steps that lose most.",
        ),
    ] = False,
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
    """Measure the latency of a model."""
    from ort_core.cli.console import print_json
    from ort_core.cli.inputs.feeds import InputRequest
    from ort_core.cli.measuring.bench_worker import TurnRequest
    from ort_core.cli.parameters import check_needed
    from ort_core.cli.sessions import SessionRequest
    from ort_core.onnx_io.load import load_model

    _check_engine(against)
    if against is None:
        check_needed("--against", {"--rounds": rounds})
    elif roofline:
        raise typer.BadParameter("it measures one engine: leave out --against", param_hint="--roofline")
    loaded = load_model(model)
    inputs_request, session = (
        InputRequest(inputs, shape, dim, seed),
        SessionRequest(provider, level, disable, False, threads, ops, config),
    )
    if against is None:
        report = _bench_alone(model, loaded, inputs_request, session, TurnRequest(warmup, iterations, duration))
    else:
        turns = rounds or _ROUNDS
        turn = TurnRequest(warmup, iterations, duration / turns / 2)
        report = _bench_against(against, turns, model, loaded, inputs_request, session, turn)
    if roofline:
        from ort_core.cli.measuring.bench_roofline import measure_under_roofline

        median = report["latency_ms"]["p50"]
        report["roofline"] = measure_under_roofline(model, inputs_request, session, median)
    if json:
        print_json(report)
    elif against is None:
        _show(report)
    else:
        _show_contest(report, engine_title(against))


def _check_engine(name: str | None) -> None:
    if name is None:
        return
    if name.endswith(".py"):
        if not Path(name).is_file():
            raise typer.BadParameter(f"there is no file {name}", param_hint="--against")
        return
    if name != "onnxruntime":
        raise typer.BadParameter(
            f"{name!r} is not known; give onnxruntime, or a Python file with a function open_engine(request)",
            param_hint="--against",
        )
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        raise typer.BadParameter(
            "onnxruntime is not installed: pip install onnxruntime", param_hint="--against"
        ) from None


def engine_title(name: str) -> str:
    """Return what an engine is called in a report: the name of a file that brings one, without its folder."""
    return Path(name).stem.removesuffix("_engine") if name.endswith(".py") else name


def _bench_alone(
    model: Path, loaded: Model, inputs: InputRequest, request: SessionRequest, turn: TurnRequest
) -> dict[str, Any]:  # Any: plain data
    from ort_core.cli.console import working
    from ort_core.cli.inputs.feeds import run_with_feeds
    from ort_core.cli.measuring.bench_worker import measure, peak_memory
    from ort_core.cli.sessions import providers_used

    start = time.perf_counter_ns()
    with working(f"Loading {model.name}"):
        session = request.open(model)
    load_ns = time.perf_counter_ns() - start
    first: list[int] = []

    def run_first(feeds: Feeds) -> None:
        begin = time.perf_counter_ns()
        session.run(None, feeds.values)
        first.append(time.perf_counter_ns() - begin)

    with working(f"Measuring {model.name}"):
        feeds, _ = run_with_feeds(loaded, inputs, run_first)
        latencies = measure(lambda: session.run(None, feeds.values), turn)
    return {
        "model": str(model), "providers": providers_used(session), "threads": request.threads, "warmup": turn.warmup,
        "inputs": _shapes(feeds.values), "load_ms": load_ns / 1e6, "first_run_ms": first[-1] / 1e6,
        **statistics(latencies, batch_size(loaded, feeds.values)), "peak_memory_nbytes": peak_memory(),
    }  # fmt: skip


def statistics(latencies: Sequence[int], batch: int) -> dict[str, Any]:  # Any: plain data
    """Return percentiles in milliseconds and throughput."""
    import numpy as np

    values = np.array(latencies, np.float64) / 1e6
    p50, p90, p99 = (float(p) for p in np.percentile(values, (50, 90, 99)))
    return {
        "runs": len(latencies),
        "latency_ms": {"p50": p50, "p90": p90, "p99": p99, "min": float(values.min()), "mean": float(values.mean()),
                       "max": float(values.max()), "std": float(values.std())},
        "runs_per_second": 1e3 / float(values.mean()),
        "batch": batch,
        "items_per_second": batch * 1e3 / float(values.mean()),
    }  # fmt: skip


def batch_size(model: Model, feeds: Mapping[str, object]) -> int:
    """Return the size of the first axis of the first input that has one named like a batch or left open, else 1."""
    for value in model.graph.inputs:
        shape = getattr(feeds.get(value.name), "shape", ())
        if shape and value.shape and not isinstance(value.shape[0], int):
            return int(shape[0])
    return 1


def _bench_against(
    engine: str,
    rounds: int,
    model: Path,
    loaded: Model,
    inputs: InputRequest,
    request: SessionRequest,
    turn: TurnRequest,
) -> dict[str, Any]:  # Any: plain data
    from ort_core.cli.console import counted, working
    from ort_core.cli.inputs.feeds import run_with_feeds
    from ort_core.cli.measuring.bench_turns import contest
    from ort_core.cli.measuring.bench_worker import OpenRequest
    from ort_core.cli.parameters import parse_config, parse_providers
    from ort_core.cli.sessions import optimization_level

    def open_both(feeds: Feeds) -> Contest:
        level = int(optimization_level(request.level))
        ours = OpenRequest(
            "ort-core", str(model), parse_providers(request.providers), level, tuple(request.disabled or ()),
            request.threads, feeds.values, tuple(request.operators or ()), tuple(parse_config(request.config).items()),
        )  # fmt: skip
        theirs = OpenRequest(engine, str(model), [("CPUExecutionProvider", {})], 99, (), request.threads, feeds.values)
        with counted(f"Measuring {model.name} in turns", rounds) as advance:
            return contest((ours, theirs), turn, rounds, advance)

    with working(f"Trying {model.name}"):
        feeds, _ = run_with_feeds(loaded, inputs, request_once(model, request))
    measured = open_both(feeds)
    engines = []
    for place, name in enumerate(("ort-core", engine_title(engine))):
        latencies = [ns for turns in measured.rounds for ns in turns[place]]
        opened = measured.opened[place]
        engines.append({
            "engine": name, "version": opened.version, "providers": list(opened.providers),
            "load_ms": opened.load_ns / 1e6, "first_run_ms": opened.first_run_ns / 1e6,
            **statistics(latencies, batch_size(loaded, feeds.values)), "peak_memory_nbytes": measured.peaks[place],
        })  # fmt: skip
    ratios, (low, high) = sorted(measured.ratios()), measured.interval()
    differences = compare_outputs(loaded, measured.opened[0].outputs, measured.opened[1].outputs)
    return {
        "model": str(model), "threads": request.threads, "inputs": _shapes(feeds.values), "rounds": rounds,
        "engines": engines, "speedup": ratios[len(ratios) // 2], "interval_95": [low, high],
        "outputs": differences,
    }  # fmt: skip


def request_once(model: Path, request: SessionRequest) -> Any:  # Any: a function of Feeds
    """Return a function that runs a model once on given feeds."""
    session = request.open(model)
    return lambda feeds: session.run(None, feeds.values)


def compare_outputs(model: Model, ours: Sequence[object], theirs: Sequence[object]) -> list[dict[str, object]]:
    """Return for each output how far two engines are apart."""
    from ort_core.cli.comparing.differences import difference

    names = [value.name for value in model.graph.outputs]
    return [difference(name, a, b, "approximate").as_dict() for name, a, b in zip(names, ours, theirs)]


def _shapes(feeds: Mapping[str, object]) -> dict[str, str]:
    from ort_core.cli.outputs.summaries import shape_text, summarize

    return {name: shape_text(summarize(value, 0)) for name, value in feeds.items()}


_COLUMNS = (("p50", "p50"), ("p90", "p90"), ("p99", "p99"), ("min", "min"), ("mean", "mean"))


def _show(report: Mapping[str, Any]) -> None:  # Any: plain data, as in the JSON document
    from ort_core.cli.console import bytes_text, output_console, rate_text, time_text
    from ort_core.cli.tables import new_table, show_facts, show_table

    console = output_console()
    table = new_table(("runs", *(name for name, _ in _COLUMNS), "runs/s"), numbers=("runs", *dict(_COLUMNS), "runs/s"))
    latency = report["latency_ms"]
    cells = [time_text(latency[key] * 1e6) for _, key in _COLUMNS]
    table.add_row(str(report["runs"]), *cells, rate_text(report["runs_per_second"]))
    show_table(console, table)
    inputs = ", ".join(f"{name} {text}" for name, text in list(report["inputs"].items())[:4])
    more = f", and {len(report['inputs']) - 4} more" if len(report["inputs"]) > 4 else ""
    facts = [
        ("inputs", inputs + more),
        ("items/s", f"{rate_text(report['items_per_second'])} (batch {report['batch']})"),
        ("load", f"{time_text(report['load_ms'] * 1e6)}, first run {time_text(report['first_run_ms'] * 1e6)}"),
        ("memory", f"{bytes_text(report['peak_memory_nbytes'])} at most, of the whole process"),
        ("ran on", f"{', '.join(report['providers'])}, threads: {report['threads'] or 'as the provider chooses'}"),
    ]
    show_facts(console, facts)
    if "roofline" in report:
        from ort_core.cli.measuring.bench_roofline import show_roofline

        console.print()
        show_roofline(report["roofline"])


def _show_contest(report: Mapping[str, Any], against: str) -> None:  # Any: plain data, as in the JSON document
    from ort_core.cli.console import bytes_text, output_console, time_text
    from ort_core.cli.tables import new_table, show_table

    console = output_console()
    names = [name for name, _ in _COLUMNS]
    table = new_table(("engine", "runs", *names), numbers=("runs", *names))
    costs = new_table(("engine", "version", "load", "first run", "memory"), numbers=("load", "first run", "memory"))
    for engine in report["engines"]:
        cells = [time_text(engine["latency_ms"][key] * 1e6) for _, key in _COLUMNS]
        table.add_row(engine["engine"], str(engine["runs"]), *cells)
        times = [time_text(engine[key] * 1e6) for key in ("load_ms", "first_run_ms")]
        costs.add_row(engine["engine"], engine["version"], *times, bytes_text(engine["peak_memory_nbytes"]))
    show_table(console, table)
    show_table(console, costs)
    low, high = report["interval_95"]
    word = "faster" if report["speedup"] >= 1 else "as fast"
    console.print(
        f"ort-core is {report['speedup']:.3g} x {word} than {against} (median of {report['rounds']} rounds, "
        f"95 % interval {low:.3g} to {high:.3g})".replace("as fast than", "as fast as")
    )
    for output in report["outputs"]:
        console.print(f"output {output['name']}: {output['text']}")
