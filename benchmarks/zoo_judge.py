"""The zoo beside onnxruntime and OpenVINO: right outputs, times in turns, loads, memory, and steps that numpy took.

    python benchmarks/zoo_export.py FOLDER
    python benchmarks/zoo_judge.py FOLDER [--only NAME ...] [--rows FILE] [--threads 2] [--again] [--openvino]

Each model of the folder is judged by a process of its own, and has its row written into a file of JSON lines at once: a
run that is ended goes on with what has no row. Times are the least of many short turns of either engine, since a
machine with other work on it only ever adds to them. OpenVINO runs in float32; what it refuses has its reason in the
row. ``--rows FILE`` alone prints the table of rows that are there.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import platform
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from ort_core.cli.measuring.bench_turns import Contest, EngineProcess, contest
from ort_core.cli.measuring.bench_worker import OpenRequest, TurnRequest
from ort_core.errors import Fail

TURNS = 6
OPENVINO_TURNS = 4
TURN_S = 0.15
REASON_LENGTH = 200
LIMIT_S = 400  # of one model
VERSIONS = ("ort-core", "numpy", "llvmlite", "onnxruntime")
OPENVINO = str(Path(__file__).with_name("openvino_engine.py"))
BEHIND = 0.9  # a ratio below it is told as a loss
WRONG = 1e-3  # of the largest value: beyond it, and beyond what onnxruntime is from torch, too, a result is wrong
COMPILER_FAILED = "the compiler failed"  # in the reason of a step that an exception left to numpy
GAVE_WAY = "gives way to kernels"  # in the log of a program whose sizes or data do not fit: all of it is numpy's
TABLE_WIDTH = 150
Row = dict[str, Any]  # Any: plain data for JSON


def judged(model: Path, threads: int, *, openvino: bool) -> Row:
    """Return the row of one model: what it is beside onnxruntime, beside torch, and, if asked for, beside OpenVINO."""
    stored = np.load(model.with_suffix(".npz"))
    feeds = {name.removeprefix("input:"): stored[name] for name in stored.files if name.startswith("input:")}
    truth = [stored[name] for name in sorted(stored.files) if name.startswith("result:")]
    feeds = {name: value for name, value in feeds.items() if name in input_names(model)}
    with tempfile.TemporaryDirectory(prefix="ort-zoo-") as cache:
        os.environ["ORT_CACHE_DIR"] = cache
        refusal = refused_by_both(model, feeds, threads)
        if refusal:
            return {"model": model.stem, "refused": refusal}
        first = measured(model, feeds, threads, turns=2)
        warm = measured(model, feeds, threads, turns=TURNS)
        steps = steps_by_numpy(model) | programs_given_up(model, feeds)
        beside = beside_openvino(model, feeds, threads) if openvino else {}
    ours, theirs = (min(min(each[place]) for each in warm.rounds) / 1e6 for place in (0, 1))
    mine, other = warm.opened
    return {
        "model": model.stem, "ms": round(ours, 3), "onnxruntime_ms": round(theirs, 3), "ratio": round(theirs / ours, 3),
        "first_load_s": round(first.opened[0].load_ns / 1e9, 3), "warm_load_s": round(mine.load_ns / 1e9, 3),
        "onnxruntime_load_s": round(other.load_ns / 1e9, 3), "second_run_ms": round(first.rounds[0][0][0] / 1e6, 1),
        "peak_mb": round(first.peaks[0] / 1e6), "warm_peak_mb": round(warm.peaks[0] / 1e6),
        "onnxruntime_peak_mb": round(warm.peaks[1] / 1e6),
        "error": furthest(mine.outputs, other.outputs), "error_torch": furthest(mine.outputs, truth),
        "onnxruntime_error_torch": furthest(other.outputs, truth), "numpy_steps": steps,
        **beside,
    }  # fmt: skip


def beside_openvino(model: Path, feeds: Mapping[str, np.ndarray], threads: int) -> Row:
    """Return what OpenVINO takes and its ratio to what ort-core takes in the same turns, or why it does not run."""
    try:
        found = measured(model, feeds, threads, turns=OPENVINO_TURNS, against=OPENVINO)
    except Fail as error:
        return {"openvino_refused": str(error).removeprefix(f"{OPENVINO}: ")[:REASON_LENGTH]}
    ours, theirs = (min(min(each[place]) for each in found.rounds) / 1e6 for place in (0, 1))
    mine, other = found.opened
    return {
        "openvino_ms": round(theirs, 3), "openvino_ratio": round(theirs / ours, 3),
        "openvino_load_s": round(other.load_ns / 1e9, 3), "openvino_peak_mb": round(found.peaks[1] / 1e6),
        "openvino_error": furthest(other.outputs, mine.outputs),
    }  # fmt: skip


def measured(
    model: Path, feeds: Mapping[str, np.ndarray], threads: int, turns: int, against: str = "onnxruntime"
) -> Contest:
    """Return a contest in short turns; the cache of compiled code is as it is."""
    requests = [
        OpenRequest(engine, str(model), [("CPUExecutionProvider", {})], 99, (), threads, feeds)
        for engine in ("ort-core", against)
    ]
    return contest(requests, TurnRequest(1 if turns > 2 else 0, None, TURN_S), turns, lambda _turn: None)


def refused_by_both(model: Path, feeds: Mapping[str, np.ndarray], threads: int) -> str:
    """Return why onnxruntime does not run an export, where ort-core does not either; that is the exporter's fault."""
    reasons = []
    for engine in ("onnxruntime", "ort-core"):
        with EngineProcess(engine) as process:
            try:
                process.open(OpenRequest(engine, str(model), [("CPUExecutionProvider", {})], 99, (), threads, feeds))
            except Fail as error:
                reasons.append(str(error))
        if not reasons:  # it runs: a refusal of ours is told by the measurement
            return ""
    return reasons[0] if len(reasons) == 2 else ""


def input_names(model: Path) -> set[str]:
    """Return the inputs that an export kept."""
    from ort_core.onnx_io.load import load_model

    return {value.name for value in load_model(model).graph.inputs}


def furthest(found: Sequence[Any], expected: Sequence[Any]) -> float:  # Any: run-time values
    """Return the largest difference over the largest value of a result; the share of unequal elements of integers."""
    if len(found) != len(expected):
        return float("inf")
    return max((difference(np.asarray(a), np.asarray(b)) for a, b in zip(found, expected, strict=True)), default=0.0)


def difference(found: np.ndarray, expected: np.ndarray) -> float:
    """Return how far one result lies from another, infinite where shapes, NaNs or infinities are not the same."""
    if found.shape != expected.shape:
        return float("inf")
    if expected.dtype.kind != "f" or not expected.size:
        return float(np.mean(found != expected)) if expected.size else 0.0
    finite = np.isfinite(expected)
    if not np.array_equal(found[~finite], expected[~finite].astype(found.dtype), equal_nan=True):
        return float("inf")
    if not finite.any():
        return 0.0
    scale = float(np.abs(expected[finite]).max()) or 1.0
    apart = float(np.abs(found[finite].astype(np.float64) - expected[finite]).max()) / scale
    return apart if apart == apart else float("inf")


def steps_by_numpy(model: Path) -> dict[str, int]:
    """Return how often numpy runs which operator for which reason, nodes of bodies included."""
    command = [sys.executable, "-m", "ort_core.cli", "explain", str(model), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    report = json.loads(done.stdout)
    found: Counter[str] = Counter()
    for node in report["nodes"] + report["inner"]:
        execution = node.get("execution") or {}
        if execution.get("how") == "numpy":
            found[f"{node['op_type']}: {execution['reason']}"] += 1
    return dict(found.most_common())


def programs_given_up(model: Path, feeds: Mapping[str, np.ndarray]) -> dict[str, int]:
    """Return why native programs gave way to numpy in a run, as only a run tells: sizes or data that do not fit."""
    import ort_core

    reasons: Counter[str] = Counter()

    class Told(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            text = record.getMessage()
            if GAVE_WAY in text:
                reasons[text[-REASON_LENGTH:]] += 1

    partition, told = logging.getLogger("ort_core.cpu.partition.partition"), Told()
    session = ort_core.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    before = partition.level
    partition.addHandler(told)
    partition.setLevel(logging.DEBUG)
    try:
        session.run(None, dict(feeds))
    finally:
        partition.setLevel(before)
        partition.removeHandler(told)
    return {f"{GAVE_WAY}: {reason}": count for reason, count in reasons.items()}


def row_of(model: Path, threads: int, *, openvino: bool) -> Row:
    """Return the row of a model, judged by a process of its own; what that prints or raises is told in it."""
    command = [sys.executable, __file__, str(model.parent), "--here", model.stem, "--threads", str(threads)]
    command += ["--openvino"] if openvino else []
    load = round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        return {"model": model.stem, "fault": f"more than {LIMIT_S} s", "load": load}
    told = [line for line in done.stderr.splitlines() if line.strip() and "onnxruntime" not in line]
    if done.returncode:
        return {"model": model.stem, "fault": told[-1][:300] if told else f"exit code {done.returncode}", "load": load}
    row: Row = json.loads(done.stdout.splitlines()[-1])
    return {**row, "load": load, **({"told": told[:3]} if told else {})}


def fault_of(row: Row) -> str:
    """Return what is wrong with a model, or nothing: no result, another one, or a warning."""
    if "fault" in row or "refused" in row:
        return str(row.get("fault", ""))
    apart, theirs = row["error_torch"], row["onnxruntime_error_torch"]
    if row["error"] > WRONG and apart > max(WRONG, 2 * theirs):
        return f"{apart:.1e} from torch (onnxruntime {theirs:.1e})"
    failed = [step for step in row["numpy_steps"] if COMPILER_FAILED in step or step.startswith(GAVE_WAY)]
    return str([*row.get("told", ()), *failed, ""][0])


def table_of(rows: Sequence[Row]) -> Table:
    """Return a line for each model, the slowest beside onnxruntime first."""
    table = Table(title=f"{len(rows)} models of the zoo beside onnxruntime")
    table.add_column("model", no_wrap=True)
    for heading in ("ms", "theirs", "ratio", "OpenVINO", "first", "warm", "theirs", "MB", "theirs", "error"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("by numpy, or fault")
    for row in sorted(rows, key=lambda each: each.get("ratio", 0.0)):
        table.add_row(*cells(row))
    ratios = [row["ratio"] for row in rows if "ratio" in row]
    if ratios:
        mean = float(np.exp(np.mean(np.log(ratios))))
        behind = sum(ratio < BEHIND for ratio in ratios)
        table.caption = f"geometric mean {mean:.2f}, least {min(ratios):.2f}, {behind} below {BEHIND}"
    others = [row["openvino_ratio"] for row in rows if "openvino_ratio" in row]
    if others:
        mean = float(np.exp(np.mean(np.log(others))))
        table.caption = f"{table.caption}; OpenVINO over {len(others)}: mean {mean:.2f}, least {min(others):.2f}"
    return table


def cells(row: Row) -> tuple[str, ...]:
    """Return the cells of one model."""
    fault = fault_of(row)
    if "ratio" not in row:
        return (row["model"], *[""] * 10, f"[red]{fault}" if fault else f"by no engine: {row['refused']}")
    steps = "; ".join(f"{count} {step}" for step, count in list(row["numpy_steps"].items())[:2])
    return (
        row["model"], f"{row['ms']:.2f}", f"{row['onnxruntime_ms']:.2f}", f"{row['ratio']:.2f}",
        f"{row['openvino_ratio']:.2f}" if "openvino_ratio" in row else "-",
        f"{row['first_load_s']:.1f}", f"{row['warm_load_s']:.2f}", f"{row['onnxruntime_load_s']:.2f}",
        str(row["peak_mb"]), str(row["onnxruntime_peak_mb"]), f"{row['error']:.0e}",
        f"[red]{fault}" if fault else steps,
    )  # fmt: skip


def machine_row(threads: int) -> Row:
    """Return where and with what the rows were measured."""
    import importlib.metadata

    from ort_core.cli.machine.hardware import find_hardware

    hardware = find_hardware()
    return {
        "machine": hardware.processor, "features": list(hardware.features), "cores": hardware.usable_cores,
        "threads": threads, "date": datetime.now(UTC).date().isoformat(), "python": platform.python_version(),
        "versions": {name: importlib.metadata.version(name) for name in VERSIONS},
    }  # fmt: skip


def read_rows(path: Path) -> Iterator[Row]:
    """Yield the last row of each model."""
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    yield from {row["model"]: row for row in rows if "model" in row}.values()


def main() -> None:
    """Judge what the command line asks for, then print the table of all rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--only", nargs="*", help="begins of names")
    parser.add_argument("--rows", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--again", action="store_true", help="judge models that have a row, too")
    parser.add_argument("--openvino", action="store_true", help="measure it, too; it must be installed")
    parser.add_argument("--here", help="judge one model in this process")
    asked = parser.parse_args()
    if asked.here:
        print(json.dumps(judged(asked.folder / f"{asked.here}.onnx", asked.threads, openvino=asked.openvino)))
        return
    rows = asked.rows or asked.folder / "rows.jsonl"
    if asked.folder:
        judge_folder(asked.folder, rows, asked.only, asked.threads, again=asked.again, openvino=asked.openvino)
    Console(width=TABLE_WIDTH).print(table_of(list(read_rows(rows))))


def judge_folder(
    folder: Path, rows: Path, only: Sequence[str] | None, threads: int, *, again: bool, openvino: bool
) -> None:
    """Write the rows of the models of a folder that have none."""
    known = set() if again else {row["model"] for row in read_rows(rows)}
    if not rows.exists():
        rows.write_text(json.dumps(machine_row(threads)) + "\n")
    for stored in sorted(folder.glob("*.npz")):
        model = stored.with_suffix(".onnx")
        if model.stem in known or (only and not model.name.startswith(tuple(only))):
            continue
        row = row_of(model, threads, openvino=openvino)
        with rows.open("a") as file:
            file.write(json.dumps(row) + "\n")
        steps = row.get("numpy_steps", {})
        told = fault_of(row) or row.get("refused") or "; ".join(f"{count} {step}" for step, count in steps.items())
        print(f"{row['model']}: {row.get('ratio', '-')} {told[:200]}", flush=True)


if __name__ == "__main__":
    main()
