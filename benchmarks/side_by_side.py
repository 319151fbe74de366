"""Latency of every model in a folder beside onnxruntime: `ort bench --against onnxruntime` for each, and one table.

Each engine runs in a process of its own, one at a time, in turns (A B A B ...), with equal inputs and threads. The
ratio is onnxruntime's median time over ours, median over the turns, with its 95 % interval: above 1 means that
ort-core is faster.

    python benchmarks/side_by_side.py FOLDER [--threads 2] [--dim batch=1] [--json rows.jsonl] [MODEL ...]
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

TABLE_WIDTH = 120  # of a table that goes to a file


def measured(model: Path, threads: int, dims: list[str], duration_s: float) -> dict[str, object]:
    """Return the row of one model: what `ort bench` measured, or why it could not.

    Args:
        model: the .onnx file.
        threads: of both engines.
        dims: sizes of named dimensions, as NAME=SIZE.
        duration_s: seconds for all turns of both engines.
    """
    command = [sys.executable, "-m", "ort_core.cli", "bench", str(model), "--against", "onnxruntime", "--json"]
    command += ["--threads", str(threads), "--duration", str(duration_s)]
    known = named_dimensions(model)
    for dim in dims:
        if dim.partition("=")[0] in known:
            command += ["--dim", dim]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    row: dict[str, object] = {"model": model.stem, "threads": threads, "processor": platform.processor()}
    row["date"] = datetime.now(UTC).date().isoformat()
    if done.returncode:
        row["error"] = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit code {done.returncode}"
        return row
    result = json.loads(done.stdout)
    row.update({key: result[key] for key in ("inputs", "rounds", "engines", "speedup", "interval_95")})
    return row


def named_dimensions(model: Path) -> set[str]:
    """Return the names of sizes that the inputs of a model leave open."""
    command = [sys.executable, "-m", "ort_core.cli", "inspect", str(model), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return set()  # the measurement will say what is wrong with the model
    shapes = [value["shape"] or [] for value in json.loads(done.stdout)["inputs"]]
    return {size for shape in shapes for size in shape if isinstance(size, str)}


def table_of(rows: list[dict[str, object]]) -> Table:
    """Return the rows as a table, and the geometric mean of the ratios."""
    table = Table(title="ort-core beside onnxruntime")
    for heading in ("model", "ort-core p50 ms", "onnxruntime p50 ms", "ratio", "95 % interval", "load ms", "peak MB"):
        table.add_column(heading, justify="left" if heading == "model" else "right", no_wrap=True)
    ratios = []
    for row in rows:
        if "error" in row:
            table.add_row(str(row["model"]), str(row["error"]))
            continue
        ours, theirs = row["engines"]  # type: ignore[misc]  # two engines, ours first
        low, high = row["interval_95"]  # type: ignore[misc]  # a pair
        ratios.append(float(row["speedup"]))  # type: ignore[arg-type]  # a number
        table.add_row(
            str(row["model"]),
            f"{ours['latency_ms']['p50']:.2f}",
            f"{theirs['latency_ms']['p50']:.2f}",
            f"{row['speedup']:.2f}",
            f"{low:.2f} to {high:.2f}",
            f"{ours['load_ms']:.0f} / {theirs['load_ms']:.0f}",
            f"{ours['peak_memory_nbytes'] / 2**20:.0f} / {theirs['peak_memory_nbytes'] / 2**20:.0f}",
        )
    if ratios:
        product = 1.0
        for ratio in ratios:
            product *= ratio
        table.add_row("geometric mean", "", "", f"{product ** (1 / len(ratios)):.2f}")
    return table


def main() -> int:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder with .onnx files, their weights beside them")
    parser.add_argument("models", nargs="*", help="names without .onnx; all when none is given")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--duration", type=float, default=5.0, help="seconds for each model")
    parser.add_argument("--dim", action="append", default=[], metavar="NAME=SIZE", help="size of a named dimension")
    parser.add_argument("--json", type=Path, help="write one JSON row a model there")
    arguments = parser.parse_args()
    paths = sorted(arguments.folder.glob("*.onnx"))
    if arguments.models:
        paths = [path for path in paths if path.stem in arguments.models]
    if not paths:
        parser.error(f"no models in {arguments.folder}")
    rows = []
    console = Console(stderr=True)
    for path in paths:
        console.print(f"measuring {path.stem}")
        rows.append(measured(path, arguments.threads, arguments.dim, arguments.duration))
    if arguments.json:
        arguments.json.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    Console(width=None if sys.stdout.isatty() else TABLE_WIDTH).print(table_of(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
