"""Measured placement beside each of its providers alone: is its pick as fast as the better of the two?

For each model three sessions run, each in a process of its own, in turns, those that wait stopped: each provider alone
(before the last resort, placed by priority), and all of them placed by measuring. The ratio is the time of the measured
placement over that of the better one alone, the median over the turns with its 95 % interval: at 1 the policy found the
better provider, below 1 a mixture that beats both. Every session begins with an empty artefact cache of its own, so
that each decision is made anew, and none profits from what another has compiled.

    python benchmarks/measured_placement.py FOLDER [MODEL ...] [--provider NAME ...] [--rows FILE]
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from side_by_side import TABLE_WIDTH, machine, milliseconds
from workloads import Workload, trained_models, workloads

from ort_core.cli.inputs.feeds import InputRequest, build_feeds
from ort_core.cli.measuring.bench_turns import Contest, EngineProcess
from ort_core.cli.measuring.bench_worker import OpenAnswer, OpenRequest, TurnRequest
from ort_core.errors import OrtError
from ort_core.onnx_io.load import load_model

PROVIDERS = ("OpenVINOExecutionProvider", "CPUExecutionProvider")
LAST = "CPUExecutionProvider"  # takes what a provider alone leaves
LIMIT = 1.03  # of the interval's lower end
MEASURED = str(Path(__file__).with_name("measured_engine.py"))
Row = dict[str, Any]  # Any: plain data for JSON
Turns = list[tuple[int, ...]]


def measured(workload: Workload, providers: Sequence[str], threads: int, turn: TurnRequest, rounds: int) -> Row:
    """Return the row of one workload; ``error`` says why there is none.

    Args:
        workload: the model and its sizes.
        providers: in order of priority.
        threads: of every session.
        turn: how long one session runs in one round.
        rounds: turns of each session.
    """
    row: Row = {"kind": "placement", "model": workload.title, "group": workload.group, "rounds": rounds}
    try:
        opened, turns = in_turns(requests(workload, providers, threads), turn, rounds)
    except OrtError as error:
        return {**row, "error": str(error).splitlines()[0]}
    alone = {name: statistics.median(ns for each in turns[name] for ns in each) for name in providers}
    better = min(alone, key=alone.__getitem__)
    contest = Contest((opened[better], opened[MEASURED]), tuple(zip(turns[better], turns[MEASURED])), (0, 0))
    chosen = dict(part.split(":") for part in opened[MEASURED].providers)
    return row | {
        "alone_ms": {name: time / 1e6 for name, time in alone.items()}, "better": better,
        "measured_ms": statistics.median(ns for each in turns[MEASURED] for ns in each) / 1e6,
        "ratio": statistics.median(contest.ratios()), "interval_95": list(contest.interval()),
        "nodes": {name: int(count) for name, count in chosen.items()},
        "load_s": {title(name): answer.load_ns / 1e9 for name, answer in opened.items()},
        "largest_difference": largest_difference(opened),
    }  # fmt: skip


def requests(workload: Workload, providers: Sequence[str], threads: int) -> dict[str, OpenRequest]:
    """Return what each session is asked to load."""
    inputs = InputRequest(
        [str(workload.data)] if workload.data else None,
        [f"{name}={shape}" for name, shape in workload.shapes.items()],
        [f"{name}={size}" for name, size in workload.dims.items()],
    )
    feeds = build_feeds(load_model(workload.path), inputs).values
    every: list[tuple[str, dict[str, str]]] = [(name, {}) for name in providers]
    found = {MEASURED: OpenRequest(MEASURED, str(workload.path), every, 99, (), threads, feeds)}
    for name in providers:
        alone: list[tuple[str, dict[str, str]]] = [(each, {}) for each in dict.fromkeys((name, LAST))]
        found[name] = OpenRequest("ort-core", str(workload.path), alone, 99, (), threads, feeds)
    return found


def in_turns(
    asked: dict[str, OpenRequest], turn: TurnRequest, rounds: int
) -> tuple[dict[str, OpenAnswer], dict[str, Turns]]:
    """Open every session, then run them in turns; who begins changes each round.

    Raises:
        OrtError: a session cannot load or run the model.
    """
    names = list(asked)
    with ExitStack() as stack:
        engines = {}
        for name in names:
            stack.enter_context(empty_cache())
            engines[name] = stack.enter_context(EngineProcess(asked[name].engine))
        opened = {name: engines[name].open(asked[name]) for name in names}
        turns: dict[str, Turns] = {name: [] for name in names}
        for index in range(rounds):
            first = index % len(names)
            for name in names[first:] + names[:first]:
                turns[name].append(engines[name].turn(turn).latencies_ns)
    return opened, turns


@contextmanager
def empty_cache() -> Iterator[None]:
    """Give the process that is started inside an artefact cache of its own, empty at first."""
    before = os.environ.get("ORT_CACHE_DIR")
    with tempfile.TemporaryDirectory(prefix="ort-bench-cache-") as folder:
        os.environ["ORT_CACHE_DIR"] = folder
        try:
            yield
        finally:
            os.environ.pop("ORT_CACHE_DIR")
            if before is not None:
                os.environ["ORT_CACHE_DIR"] = before


def largest_difference(opened: dict[str, OpenAnswer]) -> float:
    """Return how far the sessions' outputs lie apart at most, in units of the largest value of the output."""
    first, *others = (answer.outputs for answer in opened.values())
    pairs = ((a, b) for other in others for a, b in zip(first, other, strict=True))
    return max((distance(a, b) for a, b in pairs if isinstance(a, np.ndarray)), default=0.0)


def distance(found: np.ndarray, expected: np.ndarray) -> float:
    """Return the largest difference of two numeric arrays in units of the largest value; infinity for other shapes."""
    if found.dtype.kind not in "fiub" or not found.size:
        return 0.0
    if found.shape != expected.shape:
        return math.inf
    left, right = found.astype(np.float64), expected.astype(np.float64)
    return float(np.abs(left - right).max() / max(1.0, float(np.abs(right).max())))


def title(name: str) -> str:
    """Return a provider's name, or that of the measured placement, as it stands in tables."""
    return "measured" if name == MEASURED else name.removesuffix("ExecutionProvider")


HEADINGS = (
    "model",
    "measured",
    "better alone",
    "other alone",
    "ratio",
    "95 % interval",
    "nodes by provider",
    "outputs apart",
    "loaded in",
)


def cells(row: Row) -> tuple[str, ...]:
    """Return the cells of one row."""
    if "error" in row:
        return (row["model"], "not run", *[""] * (len(HEADINGS) - 2))
    low, high = row["interval_95"]
    better, *others = sorted(row["alone_ms"], key=row["alone_ms"].__getitem__)
    return (
        row["model"],
        milliseconds(row["measured_ms"]),
        f"{milliseconds(row['alone_ms'][better])} ({title(better)})",
        ", ".join(milliseconds(row["alone_ms"][name]) for name in others),
        f"{row['ratio']:.2f}",
        f"{low:.2f} to {high:.2f}",
        ", ".join(f"{title(name)} {count}" for name, count in row["nodes"].items()),
        f"{row['largest_difference']:.0e}",
        f"{row['load_s']['measured']:.1f} s",
    )


def table_of(rows: Sequence[Row]) -> Table:
    """Return the table of a terminal."""
    table = Table(title="measured placement")
    for heading in HEADINGS:
        table.add_column(heading, justify="left" if heading == "model" else "right", no_wrap=True)
    for row in rows:
        if row["kind"] == "placement":
            table.add_row(*cells(row))
    return table


def main() -> int:
    """Run the benchmark; 1 when a model is above the limit, or failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder with .onnx files, or with folders of model and test data")
    parser.add_argument("models", nargs="*", help="names without .onnx; all when none is given")
    parser.add_argument("--provider", action="append", help="in order of priority; repeatable")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--turn", type=float, default=0.4, help="seconds of each session in each round")
    parser.add_argument("--rounds", type=int, default=9, help="turns of each session, at least 5")
    parser.add_argument("--rows", type=Path, help="add one JSON row a model there")
    arguments = parser.parse_args()
    chosen = [*workloads(arguments.folder), *trained_models(arguments.folder)]
    chosen = [each for each in chosen if not arguments.models or each.name in arguments.models]
    if not chosen:
        parser.error(f"none of these models is in {arguments.folder}")
    providers = arguments.provider or PROVIDERS
    turn = TurnRequest(3, None, arguments.turn)
    progress, out = Console(stderr=True), Console(width=None if sys.stdout.isatty() else TABLE_WIDTH)
    rows = [machine(arguments.threads, ("openvino",))]
    for workload in chosen:
        progress.print(f"measuring {workload.title}")
        rows.append(measured(workload, providers, arguments.threads, turn, arguments.rounds))
    if arguments.rows:
        known = arguments.rows.is_file()
        with arguments.rows.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows[1 if known else 0 :])
    out.print(table_of(rows))
    return int(any(is_missed(row, out) for row in rows[1:]))


def is_missed(row: Row, out: Console) -> bool:
    """Return whether a row misses the goal, and say how."""
    missed = row.get("error")
    if missed is None and row["interval_95"][0] > LIMIT:
        missed = f"at least {row['interval_95'][0]:.3f} of the better provider alone, where {LIMIT} is allowed"
    if missed is not None:
        out.print(f"{row['model']}: {missed}")
    return missed is not None


if __name__ == "__main__":
    sys.exit(main())
