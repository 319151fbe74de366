"""Every model of a folder beside onnxruntime and OpenVINO: latency, load times, peak memory; rows, a table, a page.

Each engine runs in a process of its own, one at a time, in turns (A B A B ...), with equal inputs and threads, and its
outputs are compared. A ratio is the other engine's median time over ours, median over the turns, with its 95 %
interval: above 1 means that ort-core is faster.

    python benchmarks/side_by_side.py FOLDER [MODEL ...] [--against onnxruntime] [--against openvino] [--rows FILE]
    python benchmarks/performance_page.py ROWS    # writes docs/performance.md from the rows of a full run
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import math
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from load_times import load_times
from rich.console import Console
from rich.table import Table
from workloads import FLOAT32, LOW, TRAINED, Workload, generated_models, workloads

TABLE_WIDTH = 130  # of a table that goes to a file
_FRAME = "╭╮╰╯│─ "  # what rich draws around an error of the command
ENGINES = {"onnxruntime": "onnxruntime", "openvino": str(Path(__file__).with_name("openvino_engine.py"))}
Row = dict[str, Any]  # Any: plain data for JSON


def measured(workload: Workload, engine: str, threads: int, duration_s: float, rounds: int) -> Row:
    """Return what ``ort bench`` says of one workload beside one engine, or why it could not.

    Args:
        workload: the model and its sizes.
        engine: a name of ``ENGINES``.
        threads: of both engines.
        duration_s: seconds for all turns of both engines.
        rounds: turns of each.
    """
    row: Row = {"kind": "latency", "model": workload.title, "group": workload.group, "against": engine}
    result = _bench(workload, threads, duration_s, ["--against", ENGINES[engine], "--rounds", str(rounds)])
    if isinstance(result, str):
        return {**row, "error": result}
    row.update({key: result[key] for key in ("inputs", "rounds", "engines", "speedup", "interval_95")})
    row["outputs_equal"] = all(output["is_equal"] for output in result["outputs"])
    wrong = [output for output in result["outputs"] if not output["is_equal"]]
    if wrong:  # what the page says of it
        worst = max(wrong, key=lambda output: output["max_absolute"] or 0.0)
        row["difference"] = {key: worst[key] for key in ("name", "text", "mismatches", "count", "max_absolute")}
    return row


def roofline(workload: Workload, threads: int, duration_s: float) -> Row:
    """Return the least time that a run could take on this machine beside the time that it takes, and what loses most.

    Args:
        workload: the model and its sizes.
        threads: of the session.
        duration_s: seconds of runs.
    """
    row: Row = {"kind": "roofline", "model": workload.title, "group": workload.group}
    result = _bench(workload, threads, duration_s, ["--roofline"])
    if isinstance(result, str):
        return {**row, "error": result}
    found = result["roofline"]
    row.update({key: found[key] for key in ("least_ms", "p50_ms", "share", "unknown_ms", "ceilings")})
    known = [step for step in found["steps"] if step["is_known"]]
    if known:
        worst = max(known, key=lambda step: step["lost_ms"])
        row["worst"] = {key: worst[key] for key in ("operator", "output", "ms", "least_ms", "lost_ms")}
    return row


def _bench(workload: Workload, threads: int, duration_s: float, options: Sequence[str]) -> Row | str:
    """Return what ``ort bench`` says of a workload, or the last line of its error."""
    command = [sys.executable, "-m", "ort_core.cli", "bench", str(workload.path), "--json", *options]
    command += ["--threads", str(threads), "--duration", str(duration_s), *workload.options()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [text for line in done.stderr.splitlines() if (text := line.strip(_FRAME))]
        return lines[-1] if lines else f"exit code {done.returncode}"
    result: Row = json.loads(done.stdout)
    return result


def machine(threads: int, engines: Sequence[str]) -> Row:
    """Return the row that says where and with what the others were measured."""
    from ort_core.cli.machine.hardware import find_hardware

    hardware = find_hardware()
    packages = ("ort-core", "numpy", "llvmlite", *engines)
    return {
        "kind": "machine", "processor": hardware.processor, "features": list(hardware.features),
        "cores": hardware.usable_cores, "memory_nbytes": hardware.memory_nbytes, "system": platform.system(),
        "threads": threads, "date": datetime.now(UTC).date().isoformat(), "python": platform.python_version(),
        "versions": {name: importlib.metadata.version(name) for name in packages},
    }  # fmt: skip


def geometric_mean(ratios: Sequence[float]) -> float:
    """Return the geometric mean of positive numbers."""
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def table_of(rows: Sequence[Row], engine: str) -> Table:
    """Return the latencies beside one engine, with the geometric mean of each group."""
    table = Table(title=f"ort-core beside {engine}")
    for heading in ("model", "ort-core", engine, "ratio", "95 % interval", "peak MiB", "outputs"):
        table.add_column(heading, justify="left" if heading == "model" else "right", no_wrap=True)
    mine = [row for row in rows if row["kind"] == "latency" and row["against"] == engine]
    for group in dict.fromkeys(row["group"] for row in mine):
        inside = [row for row in mine if row["group"] == group]
        for row in inside:
            table.add_row(*cells(row))
        ratios = [row["speedup"] for row in inside if "error" not in row]
        if ratios:
            table.add_row(
                f"[bold]{group}: geometric mean", "", "", f"[bold]{geometric_mean(ratios):.2f}", end_section=True
            )
    return table


def cells(row: Row) -> tuple[str, ...]:
    """Return the cells of one latency row."""
    if "error" in row:
        return (row["model"], "", "not run", "", "", "", "")
    ours, theirs = row["engines"]
    low, high = row["interval_95"]
    return (
        row["model"], milliseconds(ours["latency_ms"]["p50"]), milliseconds(theirs["latency_ms"]["p50"]),
        f"{row['speedup']:.2f}", f"{low:.2f} to {high:.2f}",
        f"{ours['peak_memory_nbytes'] / 2**20:.0f} / {theirs['peak_memory_nbytes'] / 2**20:.0f}",
        "equal" if row["outputs_equal"] else difference_text(row.get("difference")),
    )  # fmt: skip


def difference_text(difference: Mapping[str, object] | None) -> str:
    """Return how far the outputs of a row differ; rows of older runs do not say it."""
    if not difference or not difference["count"]:
        return "differ"
    return f"differ: {difference['mismatches']} of {difference['count']}, by {difference['max_absolute']:.2g} at most"


def milliseconds(value: float) -> str:
    """Return a time in the unit that reads best."""
    return f"{value * 1e3:.3g} us" if value < 1 else f"{value:.3g} ms" if value < 999.5 else f"{value / 1e3:.3g} s"


def measurements(
    chosen: Sequence[Workload], engines: Sequence[str], arguments: argparse.Namespace, console: Console
) -> Iterator[Row]:
    """Measure, and yield the rows one by one: the machine, latencies, rooflines, load times of each model once."""
    yield machine(arguments.threads, engines)
    for workload in chosen:
        for engine in engines:
            console.print(f"measuring {workload.title} beside {engine}")
            yield measured(workload, engine, arguments.threads, arguments.duration, arguments.rounds)
    for workload in chosen:
        if workload.group in (FLOAT32, TRAINED, LOW):
            console.print(f"measuring the roofline of {workload.title}")
            yield roofline(workload, arguments.threads, arguments.duration)
    for workload in () if arguments.no_load else chosen:
        if workload.group in (FLOAT32, TRAINED, LOW):
            console.print(f"loading {workload.name}")
            yield {"kind": "load", "model": workload.name, "seconds": load_times(workload.path, arguments.threads)}


def main() -> int:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder with .onnx files, their weights beside them")
    parser.add_argument("models", nargs="*", help="names without .onnx; all when none is given")
    parser.add_argument("--against", action="append", choices=list(ENGINES), help="engines to compare with; repeatable")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--duration", type=float, default=5.0, help="seconds for each model and engine")
    parser.add_argument("--rounds", type=int, default=7, help="turns of each engine")
    parser.add_argument("--no-load", action="store_true", help="leave the load times out")
    parser.add_argument("--rows", type=Path, help="write one JSON row a measurement there")
    arguments = parser.parse_args()
    engines = arguments.against or ["onnxruntime"]
    console = Console(stderr=True)
    with tempfile.TemporaryDirectory(prefix="ort-bench-models-") as folder:
        chosen = [*workloads(arguments.folder), *generated_models(Path(folder))]
        if arguments.models:
            chosen = [workload for workload in chosen if workload.name in arguments.models]
        if not chosen:
            parser.error(f"none of the models of benchmarks/workloads.py is in {arguments.folder}")
        rows = []
        for row in measurements(chosen, engines, arguments, console):
            rows.append(row)
            if arguments.rows:  # after each measurement: a run of an hour may be ended before its last
                arguments.rows.write_text("".join(json.dumps(each) + "\n" for each in rows), encoding="utf-8")
    out = Console(width=None if sys.stdout.isatty() else TABLE_WIDTH)
    for engine in engines:
        out.print(table_of(rows, engine))
        for row in rows:
            if row.get("against") == engine and "error" in row:
                out.print(f"{row['model']} was not run: {row['error']}")
    for row in rows:
        if row["kind"] == "load":
            out.print(f"load {row['model']}: " + ", ".join(f"{k} {v:.2f} s" for k, v in row["seconds"].items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
