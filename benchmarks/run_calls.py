"""What one call of a session costs, beside onnxruntime: models so small that little else is measured.

Each engine runs in a process of its own, only one of them at any moment, in turns. For each model the table gives the
median time of `run` and of `run_with_iobinding`, and the ratio onnxruntime / ort-core (above 1: ort-core is faster),
the median over the turns with its range. The models: four nodes of an 8 x 8 perceptron layer; a chain of 200
elementwise nodes over 8 numbers, which shows what a node costs; and three nodes with a numpy kernel behind them, which
show what a run costs that cannot be one native call.

    python benchmarks/run_calls.py [--rounds 7] [--threads 2] [--json rows.jsonl]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
from onnx import parser
from rich.console import Console
from rich.table import Table

CALLS = 2000  # in each turn, in batches of 100 whose median is taken
BATCH = 100
ENGINES = ("ort_core", "onnxruntime")
FOUR = """
    <ir_version: 8, opset_import: ["": 17]>
    four (float[N, 8] x) => (float[N, 8] y)
    <float[8, 8] w = {WEIGHTS}, float[8] b = {BIAS}>
    { p = MatMul(x, w)  s = Add(p, b)  r = Relu(s)  y = Sigmoid(r) }"""
MIXED = """
    <ir_version: 8, opset_import: ["": 17]>
    mixed (float[N, 8] x) => (int64[2, M] y)
    { a = Mul(x, x)  b = Neg(a)  c = Tanh(b)  y = NonZero(c) }"""


def build_models(folder: Path) -> dict[str, Path]:
    """Write the models and return their paths by what they are."""
    weights = ", ".join(str((i % 7 - 3) / 8) for i in range(64))
    four = FOUR.replace("{WEIGHTS}", f"{{{weights}}}").replace("{BIAS}", "{" + ", ".join(["0.25"] * 8) + "}")
    steps = ["Sigmoid", "Neg", "Tanh", "Abs"]
    names = ["x", *(f"v{i}" for i in range(199)), "y"]
    nodes = "  ".join(f"{after} = {steps[i % 4]}({names[i]})" for i, after in enumerate(names[1:]))
    chain = f'<ir_version: 8, opset_import: ["": 17]> chain (float[N, 8] x) => (float[N, 8] y) {{ {nodes} }}'
    paths = {}
    for name, text in (("4 nodes", four), ("chain of 200 nodes", chain), ("4 nodes, one by numpy", MIXED)):
        paths[name] = folder / f"{name.replace(' ', '_')}.onnx"
        onnx.save(parser.parse_model(text), paths[name])
    return paths


def serve(engine: str, model: str, threads: int) -> None:
    """Measure once for each line of the standard input; answer with two medians in microseconds."""
    module = __import__(engine)
    options = module.SessionOptions()
    options.intra_op_num_threads = threads
    session = module.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    feeds = {"x": np.linspace(-1, 1, 8, dtype=np.float32).reshape(1, 8)}
    binding = session.io_binding()
    binding.bind_cpu_input("x", feeds["x"])
    binding.bind_output("y")
    for _ in sys.stdin:
        times = []
        for call in (lambda: session.run(None, feeds), lambda: session.run_with_iobinding(binding)):
            batches = []
            for _ in range(CALLS // BATCH):
                start = time.perf_counter_ns()
                for _ in range(BATCH):
                    call()
                batches.append((time.perf_counter_ns() - start) / BATCH / 1000)
            times.append(statistics.median(batches))
        sys.stdout.write(json.dumps(times) + "\n")
        sys.stdout.flush()


def measured(name: str, model: Path, rounds: int, threads: int) -> dict[str, object]:
    """Return the row of one model."""
    workers = {}
    for engine in ENGINES:
        command = [sys.executable, __file__, "--serve", engine, str(model), "--threads", str(threads)]
        workers[engine] = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    found: dict[str, list[list[float]]] = {engine: [] for engine in ENGINES}
    for turn in range(rounds + 1):  # the first turn warms up
        for engine in ENGINES if turn % 2 else reversed(ENGINES):
            worker = workers[engine]
            assert worker.stdin is not None
            assert worker.stdout is not None
            worker.stdin.write("\n")
            worker.stdin.flush()
            times = json.loads(worker.stdout.readline())
            if turn:
                found[engine].append(times)
    for worker in workers.values():
        worker.communicate()
    row: dict[str, object] = {"model": name, "threads": threads, "rounds": rounds}
    for position, way in enumerate(("run", "iobinding")):
        ours, theirs = ([times[position] for times in found[engine]] for engine in ENGINES)
        ratios = sorted(b / a for a, b in zip(ours, theirs, strict=True))
        row[way] = {
            "ort_core_us": statistics.median(ours), "onnxruntime_us": statistics.median(theirs),
            "ratio": statistics.median(ratios), "lowest": ratios[0], "highest": ratios[-1],
        }  # fmt: skip
    return row


def table_of(rows: list[dict[str, object]]) -> Table:
    """Return the rows as a table."""
    table = Table("model", "call", "ort-core us", "onnxruntime us", "ratio", "range")
    for row in rows:
        for way in ("run", "iobinding"):
            figures = row[way]
            assert isinstance(figures, dict)
            table.add_row(
                str(row["model"]), way, f"{figures['ort_core_us']:.2f}", f"{figures['onnxruntime_us']:.2f}",
                f"{figures['ratio']:.2f}", f"{figures['lowest']:.2f} to {figures['highest']:.2f}",
            )  # fmt: skip
    return table


def main() -> None:
    """Measure all models and print the table."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    arguments.add_argument("--rounds", type=int, default=7)
    arguments.add_argument("--threads", type=int, default=2)
    arguments.add_argument("--json", type=Path, help="append rows here")
    given = arguments.parse_args()
    if given.serve:
        serve(*given.serve, given.threads)
        return
    with tempfile.TemporaryDirectory() as folder:
        models = build_models(Path(folder))
        rows = [measured(name, path, given.rounds, given.threads) for name, path in models.items()]
    Console(width=120).print(table_of(rows))
    if given.json:
        with given.json.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)


if __name__ == "__main__":
    main()
