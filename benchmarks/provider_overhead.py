"""What a run through ort-ep-openvino costs over calling OpenVINO directly, in one process, in turns.

Two direct calls are compared: a request whose input and output tensors were bound once (the least that any caller pays,
and only possible where the arrays stay the same), and the compiled model called with a dict of arrays, as OpenVINO's
documentation shows it. All run the same model with the same properties; the outputs are compared first.

    python benchmarks/provider_overhead.py [MODEL dim=n ...] [--rounds 15] [--threads 2] [--json rows.jsonl]

Without a model: four nodes over 8 x 8 numbers.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import openvino as ov
from rich.console import Console
from rich.table import Table
from run_calls import build_models

import ort_core as ort

TURN_S = 0.2  # of each call in each round; a tiny model runs thousands of times in it, a large one a few
CONFIG = {"EXECUTION_MODE_HINT": "ACCURACY", "INFERENCE_PRECISION_HINT": "f32"}
PROVIDER = "OpenVINOExecutionProvider"
Call = Callable[[], object]


def fixed(path: Path, sizes: dict[str, int]) -> onnx.ModelProto:
    """Return a model whose inputs have fixed sizes.

    Raises:
        ValueError: a size is neither in the model nor given.
    """
    model = onnx.load(path)
    for info in (*model.graph.input, *model.graph.output):
        for dim in info.type.tensor_type.shape.dim:
            if dim.dim_param in sizes:
                dim.dim_value = sizes[dim.dim_param]
    open_sizes = {d.dim_param for i in model.graph.input for d in i.type.tensor_type.shape.dim if not d.dim_value}
    if open_sizes:
        raise ValueError(f"{path.name} has the open sizes {sorted(open_sizes)}: give each as name=number")
    return model


def feeds_of(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    """Return seeded feeds: numbers near 0 for floats, small ones for integers."""
    generator = np.random.default_rng(0)
    weights = {tensor.name for tensor in model.graph.initializer}
    feeds = {}
    for info in model.graph.input:
        if info.name in weights:
            continue
        kind = info.type.tensor_type
        shape = [dim.dim_value for dim in kind.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        is_float = np.issubdtype(dtype, np.floating)
        numbers = generator.standard_normal(shape) if is_float else generator.integers(0, 2, shape)
        feeds[info.name] = numbers.astype(dtype)
    return feeds


def calls_of(path: Path, sizes: dict[str, int], threads: int) -> dict[str, Call]:
    """Return the three calls, ready to be timed.

    Raises:
        RuntimeError: the provider does not run the whole model, or an output differs.
    """
    model = fixed(path, sizes)
    feeds = feeds_of(model)
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder) / "model.onnx"
        onnx.save(model, here, save_as_external_data=True)  # beyond 2 GB a model has no bytes of its own
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        session = ort.InferenceSession(str(here), options, providers=[PROVIDER])
        compiled = ov.Core().compile_model(str(here), "CPU", {**CONFIG, "INFERENCE_NUM_THREADS": threads})
    placed = {node.provider for node in session.explain().nodes}
    if placed != {PROVIDER}:
        raise RuntimeError(f"{path.name} runs on {sorted(placed)}; a comparison needs it wholly on {PROVIDER}")
    request = compiled.create_infer_request()
    results = [np.empty(array.shape, array.dtype) for array in compiled(feeds).values()]
    for name, array in feeds.items():
        request.set_tensor(name, ov.Tensor(array, shared_memory=True))
    for index, array in enumerate(results):
        request.set_output_tensor(index, ov.Tensor(array, shared_memory=True))
    request.infer(share_outputs=True)
    for found, expected in zip(session.run(None, feeds), results, strict=True):
        if not np.array_equal(found, expected):
            raise RuntimeError(f"{path.name}: an output differs from that of a direct call")
    return {
        "session.run": lambda: session.run(None, feeds),
        "bound request": lambda _bound=(feeds, results): request.infer(share_outputs=True),  # it keeps no array alive
        "compiled(feeds)": lambda: compiled(feeds),
    }


def timed(call: Call) -> float:
    """Return the median time of a call in microseconds, over batches that fill a turn."""
    start = time.perf_counter()
    call()
    once = max(time.perf_counter() - start, 1e-7)
    batch = max(1, int(0.01 / once))
    batches = []
    end = time.perf_counter() + TURN_S
    while time.perf_counter() < end or len(batches) < 3:
        begin = time.perf_counter_ns()
        for _ in range(batch):
            call()
        batches.append((time.perf_counter_ns() - begin) / batch / 1000)
    return statistics.median(batches)


def measured(name: str, calls: dict[str, Call], rounds: int) -> list[dict[str, object]]:
    """Return a row for each direct call: medians over rounds, and the median difference of pairs with its range."""
    found: dict[str, list[float]] = {label: [] for label in calls}
    for turn in range(rounds + 1):  # the first turn warms up
        for label in list(calls) if turn % 2 else list(reversed(calls)):
            taken = timed(calls[label])
            if turn:
                found[label].append(taken)
    ours = found.pop("session.run")
    rows: list[dict[str, object]] = []
    for label, theirs in found.items():
        over = sorted(a - b for a, b in zip(ours, theirs, strict=True))
        rows.append(
            {
                "model": name,
                "direct call": label,
                "ours_us": statistics.median(ours),
                "direct_us": statistics.median(theirs),
                "over_us": statistics.median(over),
                "lowest_us": over[0],
                "highest_us": over[-1],
                "over_percent": 100 * statistics.median(over) / statistics.median(theirs),
            }
        )
    return rows


def table_of(rows: list[dict[str, object]]) -> Table:
    """Return the rows as a table."""
    table = Table("model", "direct call", "ours us", "direct us", "over us", "range", "over %")
    for row in rows:
        table.add_row(
            str(row["model"]), str(row["direct call"]), f"{row['ours_us']:.2f}", f"{row['direct_us']:.2f}",
            f"{row['over_us']:.2f}", f"{row['lowest_us']:.2f} to {row['highest_us']:.2f}", f"{row['over_percent']:.2f}",
        )  # fmt: skip
    return table


def main() -> int:
    """Measure one model and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", type=Path)
    parser.add_argument("sizes", nargs="*", help="open sizes as name=number")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path, help="file to append the rows to")
    arguments = parser.parse_args()
    sizes = {name: int(number) for name, _, number in (each.partition("=") for each in arguments.sizes)}
    with tempfile.TemporaryDirectory() as folder:
        path = arguments.model or build_models(Path(folder))["4 nodes"]
        calls = calls_of(path, sizes or {"N": 1}, arguments.threads)
        rows = measured(path.stem, calls, arguments.rounds)
    Console().print(table_of(rows))
    if arguments.json is not None:
        with arguments.json.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
