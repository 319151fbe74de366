"""Models in few bits beside other engines, in turns.

Float32 models run here with ``precision=bfloat16``, beside OpenVINO as it comes; models that are quantized already run
as they are, beside onnxruntime, too. A ratio is the other engine's median time over ours, median over the turns, with
its 95 % interval. An error is the largest difference from this engine's float32, relative to the largest number of that
output.

    python benchmarks/low_precision.py FOLDER [MODEL ...] [--threads N] [--duration S] [--rows FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from accuracy import feeds_of
from rich.console import Console
from rich.table import Table
from workloads import FLOAT32, LOW, Workload, workloads

HERE = Path(__file__).parent
Row = dict[str, Any]  # Any: plain data for JSON
TABLE_WIDTH = 130
QUANTIZED = ("int8", "int4")  # in the names of models that are
ENGINES = {"openvino": str(HERE / "openvino_default_engine.py"), "onnxruntime": "onnxruntime"}


def main() -> int:
    """Measure the models of the command line, and print and write their rows."""
    given = arguments()
    rows = [row for workload in chosen(given) for row in measured(workload, given)]
    show(rows, given.threads)
    if given.rows is not None:
        given.rows.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return int(any("error" in row for row in rows))


def arguments() -> argparse.Namespace:
    """Return the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("models", nargs="*")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--duration", type=float, default=3.0, help="seconds of all turns of two engines")
    parser.add_argument("--rows", type=Path)
    return parser.parse_args()


def chosen(given: argparse.Namespace) -> Iterator[Workload]:
    """Give float32 and quantized models of the folder, all or those that are named."""
    for workload in workloads(given.folder):
        if workload.group in (FLOAT32, LOW) and (not given.models or workload.name in given.models):
            yield workload


def measured(workload: Workload, given: argparse.Namespace) -> Iterator[Row]:
    """Give a row of a model for each engine that it is measured beside."""
    is_quantized = any(each in workload.name for each in QUANTIZED)
    engines = ENGINES if is_quantized else {"openvino": ENGINES["openvino"]}
    options = [] if is_quantized else ["--provider", "cpu:precision=bfloat16"]
    error = {} if is_quantized else {"error_of_bfloat16": rounding_error(workload)}
    for name, engine in engines.items():
        row: Row = {"model": workload.title, "precision": "as it is" if is_quantized else "bfloat16", "against": name}
        command = ["ort", "bench", str(workload.path), *workload.options(), *options, "--against", engine, "--json"]
        command += ["--threads", str(given.threads), "--duration", str(given.duration)]
        paths = os.pathsep.join(filter(None, (str(HERE), os.environ.get("PYTHONPATH"))))
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": paths})
        if done.returncode not in (0, 1) or not done.stdout.startswith("{"):
            yield {**row, "error": done.stderr[-600:]}
            continue
        result = json.loads(done.stdout)
        ours, theirs = (each["latency_ms"]["p50"] for each in result["engines"])
        yield {
            **row, "ort_core_ms": ours, "other_ms": theirs, "ratio": result["speedup"],
            "interval_95": result["interval_95"], "threads": given.threads, **error,
        }  # fmt: skip


def rounding_error(workload: Workload) -> float:
    """Return the largest difference that ``precision=bfloat16`` makes, relative to the largest number of an output."""
    import ort_core as ort

    feeds, found = feeds_of(workload, 0), []
    for precision in ("float32", "bfloat16"):
        provider = ("CPUExecutionProvider", {"precision": precision})
        session = ort.InferenceSession(workload.path, providers=[provider])
        found.append([np.asarray(each, np.float64) for each in session.run(None, feeds)])
    pairs = [(exact, rounded) for exact, rounded in zip(*found, strict=True) if exact.size]
    return max(float(np.abs(rounded - exact).max() / max(np.abs(exact).max(), 1e-30)) for exact, rounded in pairs)


def show(rows: list[Row], threads: int) -> None:
    """Print the rows as a table."""
    table = Table(title=f"{threads} threads")
    for name in ("model", "precision", "against", "ort-core ms", "other ms", "ratio", "95 %", "error"):
        table.add_column(name, justify="right" if name not in ("model", "precision", "against") else "left")
    for row in rows:
        first = (row["model"], row["precision"], row["against"])
        if "error" in row:
            table.add_row(*first, "-", "-", "-", "-", row["error"][-60:])
            continue
        low, high = row["interval_95"]
        error = row.get("error_of_bfloat16")
        table.add_row(
            *first, f"{row['ort_core_ms']:.3g}", f"{row['other_ms']:.3g}", f"{row['ratio']:.2f}",
            f"{low:.2f} to {high:.2f}", "" if error is None else f"{error:.1e}",
        )  # fmt: skip
    Console(width=TABLE_WIDTH).print(table)


if __name__ == "__main__":
    sys.exit(main())
