"""The CUDA provider on a GPU within a budget of seconds: conformance, the card's rates, models beside other engines.

Everything is read from the folder of models; no network is needed. Inputs and outputs lie on the device, runs are
waited for, and each figure is the median of the runs that fit into the row's share of the budget, after a warm-up of
compilation, tuning and capture. Engines take turns. The card's own rates are measured first, by events on the device:
bytes that a copy moves, and float operations of a large product. A row says which share of them a run reaches: of the
bytes of the weights, which every run must read.

    python benchmarks/cuda.py FOLDER [MODEL ...] [--budget 900] [--rows FILE] [--skip-conformance]

Rows of PyTorch need onnx2torch; rows of onnxruntime its CUDA package. What is not there is a row with the reason.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cuda_engines import ENGINES, Card, CupyCard, Engine, EngineError, weights_nbytes
from rich.console import Console
from rich.table import Table
from workloads import Workload, workloads

from ort_ep_cuda.provider import CudaExecutionProvider

Row = dict[str, Any]  # Any: plain data for JSON
Clock = Callable[[], float]
MODELS = (
    "resnet50", "mobilenet_v2", "bert_base", "bert_base_fp16", "vit_base", "gpt2", "gpt2_past", "llama_small_past",
    "unet_diffusion", "whisper_tiny_encoder",
)  # fmt: skip
BATCHES = (1, 32)
PRECISIONS = ("float32", "tf32")  # of models in float32; a model in float16 runs as it is
WARM_UP_RUNS = 5  # compile, tune, capture, replay twice
CONFORMANCE_SHARE = 0.3  # of the budget, at most
TURNS = 3


def configurations(chosen: Sequence[Workload]) -> Iterator[tuple[Workload, int, str]]:
    """Yield each model with each batch and precision."""
    for workload in chosen:
        precisions = ("float16",) if workload.title.endswith("fp16") else PRECISIONS
        for batch in BATCHES:
            for precision in precisions:
                yield workload, batch, precision


def measured(call: Callable[[], None], duration_s: float, clock: Clock) -> tuple[float, int]:
    """Return the median time of a run in seconds and how many there were, at least three."""
    times: list[float] = []
    end = clock() + duration_s
    while len(times) < 3 or clock() < end:
        start = clock()
        call()
        times.append(clock() - start)
    return sorted(times)[len(times) // 2], len(times)


def measured_row(
    engines: Sequence[type[Engine]], workload: Workload, batch: int, precision: str, duration_s: float, clock: Clock
) -> list[Row]:
    """Measure one model by all engines in turns.

    Args:
        engines: ours first.
        workload: the model.
        batch: its batch.
        precision: of float32 products.
        duration_s: for all engines together.
        clock: seconds.

    Returns:
        A row for each engine; one that cannot run the model has the reason.
    """
    rows: list[Row] = []
    calls: list[tuple[Row, Callable[[], None]]] = []
    for engine in engines:
        row: Row = {
            "kind": "run", "engine": engine.name, "model": workload.title, "batch": batch, "precision": precision,
        }  # fmt: skip
        rows.append(row)
        try:
            start = clock()
            call = engine.load(workload, batch, precision)
            for _ in range(WARM_UP_RUNS):
                call()
            row["load_s"] = clock() - start
            calls.append((row, call))
        except EngineError as error:
            row["error"] = str(error)
    share = duration_s / max(len(calls) * TURNS, 1)
    for _ in range(TURNS):
        for row, call in calls:
            median, count = measured(call, share, clock)
            row.setdefault("turns_s", []).append(median)
            row["runs"] = row.get("runs", 0) + count
    for row, _ in calls:
        row["median_s"] = sorted(row["turns_s"])[TURNS // 2]
        row["weights_nbytes"] = weights_nbytes(workload)
    return rows


def with_shares(row: Row, card: Row) -> Row:
    """Add which share of the card's bandwidth a run reaches in reading the weights once."""
    if "median_s" in row and card.get("copy_bytes_per_s"):
        rate = row["weights_nbytes"] / row["median_s"]
        row["share_of_bandwidth"] = rate / card["copy_bytes_per_s"]
    return row


def card_row(card: Card) -> Row:
    """Measure the card."""
    return {
        "kind": "card", **card.facts(), "copy_bytes_per_s": card.copy_rate(),
        "product_flops": {precision: card.product_rate(precision) for precision in (*PRECISIONS, "float16")},
    }  # fmt: skip


def machine_row() -> Row:
    """Say where and when the rows come from."""
    versions: dict[str, str] = {}
    for name in (
        "ort-core",
        "cupy-cuda13x",
        "cupy-cuda12x",
        "nvmath-python",
        "nvidia-cublas",
        "nvidia-cudnn-frontend",
        "nvidia-cudnn-cu13",
        "torch",
        "onnxruntime-gpu",
    ):
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    date = datetime.now(UTC).date().isoformat()
    return {"kind": "machine", "date": date, "python": platform.python_version(), "versions": versions}


def conformance_row(seconds: float, share: float) -> Row:
    """Run a share of the conformance suite on the provider; what it finds is a row."""
    command = [sys.executable, "-m", "ort_core.cli", "conformance", "--provider", "CUDAExecutionProvider"]
    command += ["--suite", "contract", "--suite", "operators", "--share", str(share)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds)
    except subprocess.TimeoutExpired:
        return {"kind": "conformance", "error": f"it took more than {seconds:.0f} s"}
    lines = (done.stdout or done.stderr).strip().splitlines()
    return {"kind": "conformance", "status": done.returncode, "share": share, "summary": lines[-1] if lines else ""}


def run(
    card: Card,
    engines: Sequence[type[Engine]],
    chosen: Sequence[Workload],
    budget_s: float,
    write: Callable[[Row], None],
    clock: Clock = time.monotonic,
) -> None:
    """Measure the card, then every configuration; what the budget does not reach is a row that says so."""
    end = clock() + budget_s
    facts = card_row(card)
    write(facts)
    todo = list(configurations(chosen))
    for number, (workload, batch, precision) in enumerate(todo):
        left = end - clock()
        if left <= 0:
            reason = f"the budget of {budget_s:.0f} s is over"
            write({"kind": "left out", "count": len(todo) - number, "reason": reason})
            return
        duration = left / (len(todo) - number) / 2  # the other half is for loading
        for row in measured_row(engines, workload, batch, precision, duration, clock):
            write(with_shares(row, facts))


def table(rows: Sequence[Row]) -> Table:
    """Return the rows of runs as a table, a line for each model."""
    found: dict[tuple[str, int, str], dict[str, Row]] = {}
    for row in rows:
        if row["kind"] == "run":
            found.setdefault((row["model"], row["batch"], row["precision"]), {})[row["engine"]] = row
    names = list(dict.fromkeys(row["engine"] for row in rows if row["kind"] == "run"))
    shown = Table("model", "batch", "precision", *(f"{name}, ms" for name in names), "bandwidth")
    for (model, batch, precision), by_engine in found.items():
        cells = [f"{r['median_s'] * 1e3:.3f}" if "median_s" in (r := by_engine.get(n, {})) else "-" for n in names]
        share = by_engine.get(names[0], {}).get("share_of_bandwidth")
        shown.add_row(model, str(batch), precision, *cells, "-" if share is None else f"{share:.0%}")
    return shown


def main(arguments: Sequence[str]) -> int:
    """Measure, print a table, write rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--budget", type=float, default=900.0)
    parser.add_argument("--rows", type=Path)
    parser.add_argument("--skip-conformance", action="store_true")
    given = parser.parse_args(arguments)
    own = Path(__file__).resolve().parent  # CuPy imports a package named as this file is: let it not find this one
    sys.path[:] = [place for place in sys.path if Path(place).resolve() != own]
    found = CudaExecutionProvider.check()
    if not found:
        Console().print(f"nothing is measured: {found}")
        return 2
    chosen = [each for each in workloads(given.folder) if each.path.stem in given.models]
    start, rows = time.monotonic(), [machine_row()]
    if not given.skip_conformance:
        rows.append(conformance_row(given.budget * CONFORMANCE_SHARE, share=0.2))
    left = given.budget - (time.monotonic() - start)
    run(CupyCard(), ENGINES, chosen, left, rows.append)
    Console().print(table(rows))
    if given.rows is not None:
        given.rows.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
