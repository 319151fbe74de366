"""What a run through ort-ep-openvino costs over calling OpenVINO directly, in one process, in turns.

Two direct calls are compared: a request whose input and output tensors were bound once (the least that any caller pays,
and only possible where the arrays stay the same), and the compiled model called with a dict of arrays, as OpenVINO's
documentation shows it. All run the same model with the same properties; the outputs are compared first. What is told
is the median over the rounds of the difference within a round, with its 95 % interval: many short rounds say more on a
machine that others use than a few long ones.

    python benchmarks/provider_overhead.py [MODEL dim=n ...] [--rounds 60] [--turn 0.05] [--threads 2] [--json FILE]

Without a model: four nodes over 8 x 8 numbers.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
import openvino as ov
from rich.console import Console
from rich.table import Table
from run_calls import build_models

import ort_core as ort

BATCH_S = 0.01  # as many runs as fit are timed at once: a clock's own cost must not count
RESAMPLES = 2000  # of the bootstrap
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


def timed(call: Call, turn_s: float) -> float:
    """Return the median time of a call in microseconds, over batches that fill a turn; one at least."""
    start = time.perf_counter()
    call()
    once = max(time.perf_counter() - start, 1e-7)
    batch = max(1, int(BATCH_S / once))
    batches = []
    end = time.perf_counter() + turn_s
    while time.perf_counter() < end or not batches:
        begin = time.perf_counter_ns()
        for _ in range(batch):
            call()
        batches.append((time.perf_counter_ns() - begin) / batch / 1000)
    return statistics.median(batches)


def measured(name: str, calls: dict[str, Call], rounds: int, turn_s: float) -> list[dict[str, object]]:
    """Return a row for each direct call: medians over rounds, and the median difference of pairs with its interval."""
    found: dict[str, list[float]] = {label: [] for label in calls}
    orders = itertools.cycle(itertools.permutations(calls))  # who ran before leaves the caches to whoever follows
    for turn, order in zip(range(rounds + 1), orders):
        for label in order:
            taken = timed(calls[label], turn_s)
            if turn:  # the first warms up
                found[label].append(taken)
    ours = found.pop("session.run")
    rows: list[dict[str, object]] = []
    for label, theirs in found.items():
        over = [a - b for a, b in zip(ours, theirs, strict=True)]
        low, high = interval(over)
        direct = statistics.median(theirs)
        rows.append(
            {
                "model": name,
                "direct call": label,
                "ours_us": statistics.median(ours),
                "direct_us": direct,
                "over_us": statistics.median(over),
                "interval_95_us": [low, high],
                "over_percent": 100 * statistics.median(over) / direct,
                "interval_95_percent": [100 * low / direct, 100 * high / direct],
                "rounds": rounds,
            }
        )
    return rows


def interval(differences: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % interval of the median, by resampling the rounds."""
    drawn = np.random.default_rng(0).choice(np.array(differences), (RESAMPLES, len(differences)))
    low, high = np.percentile(np.median(drawn, axis=1), (2.5, 97.5))
    return float(low), float(high)


def table_of(rows: list[dict[str, object]]) -> Table:
    """Return the rows as a table."""
    table = Table("model", "direct call", "ours us", "direct us", "over us", "95 % interval", "over %", "95 % interval")
    for row in rows:
        table.add_row(
            str(row["model"]), str(row["direct call"]), f"{row['ours_us']:.2f}", f"{row['direct_us']:.2f}",
            f"{row['over_us']:.2f}", ends(row["interval_95_us"]),
            f"{row['over_percent']:.2f}", ends(row["interval_95_percent"]),
        )  # fmt: skip
    return table


def ends(bounds: object) -> str:
    """Return the ends of an interval as text."""
    low, high = bounds  # type: ignore[misc]  # a pair, as measured() writes it
    return f"{low:.2f} to {high:.2f}"


def main() -> int:
    """Measure one model and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", type=Path)
    parser.add_argument("sizes", nargs="*", help="open sizes as name=number")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--turn", type=float, default=0.05, help="seconds of each call in each round")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path, help="file to append the rows to")
    arguments = parser.parse_args()
    sizes = {name: int(number) for name, _, number in (each.partition("=") for each in arguments.sizes)}
    with tempfile.TemporaryDirectory() as folder:
        path = arguments.model or build_models(Path(folder))["4 nodes"]
        calls = calls_of(path, sizes or {"N": 1}, arguments.threads)
        rows = measured(path.stem, calls, arguments.rounds, arguments.turn)
    Console().print(table_of(rows))
    if arguments.json is not None:
        with arguments.json.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
