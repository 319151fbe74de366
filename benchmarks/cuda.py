"""The CUDA provider on a GPU within a budget of seconds: conformance, the card's rates, models beside other engines.

Everything is read from the folder of models; no network is needed. Inputs and outputs lie on the device. A run is what
passes between two events on the stream of the model; each figure is the median of the runs that fit into the share of
the budget that a row has, after a warm-up of compilation, tuning and capture. Engines take turns. The card's own rates
are measured first: bytes that a copy moves, float operations of a large product, what a captured graph costs to launch.
A row says which share of them a run reaches: of the bytes of the weights, which every run must read, and of the
operations of its products. Models in float16 are made of those in float32.

    python benchmarks/cuda.py FOLDER [MODEL ...] [--budget 900] [--rows FILE] [--page FILE] [--skip-conformance]

Rows of PyTorch need onnx2torch; rows of onnxruntime its CUDA package. What is not there is a row with the reason.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cuda_engines import ENGINES, Card, CupyCard, Engine, EngineError, Run
from cuda_report import goals, page, table
from half_models import to_half
from model_work import product_flops, weights_nbytes
from rich.console import Console
from workloads import Workload, workloads

from ort_ep_cuda.provider import CudaExecutionProvider

Row = dict[str, Any]  # Any: plain data for JSON
Clock = Callable[[], float]
MODELS = (
    "resnet50", "mobilenet_v2", "bert_base", "vit_base", "gpt2", "gpt2_past", "llama_small_past",
    "unet_diffusion", "whisper_tiny_encoder",
)  # fmt: skip
BATCHES = (1, 32)
PRECISIONS = ("float32", "tf32", "float16")
PAST = 512  # tokens of the conversation that decoding continues
RESULTS = Path(__file__).resolve().parent / "results"
WARM_UP_RUNS = 5  # compile, tune, capture, replay twice
CONFORMANCE_SHARE = 0.3  # of the budget, at most
TURNS = 3


def configurations(chosen: Sequence[Workload]) -> Iterator[tuple[Workload, int, str]]:
    """Yield each model with each batch and precision."""
    for workload in chosen:
        for batch in BATCHES:
            for precision in PRECISIONS:
                yield workload, batch, precision


def with_past(workload: Workload) -> Workload:
    """Return a model that decodes with a past of the benchmark's length."""
    if "past_sequence" not in workload.dims:
        return workload
    return replace(workload, dims={**workload.dims, "past_sequence": PAST, "total_sequence": PAST + 1})


def in_precision(workload: Workload, precision: str, folder: Path) -> Workload:
    """Return a model in float16 where that is asked for, written into a folder once."""
    if precision != "float16" or workload.title.endswith("fp16"):
        return workload
    made = folder / f"{workload.path.stem}_half.onnx"
    return replace(workload, path=made if made.is_file() else to_half(workload.path, made))


def measured(run: Run, duration_s: float, card: Card, clock: Clock) -> list[float]:
    """Return the times of runs in seconds by the device's events, at least three."""
    times: list[float] = []
    end = clock() + duration_s
    while len(times) < 3 or clock() < end:
        times.append(card.seconds(run))
    return times


def median(times: Sequence[float]) -> float:
    """Return the middle one."""
    return sorted(times)[len(times) // 2]


def measured_row(
    engines: Sequence[type[Engine]],
    workload: Workload,
    batch: int,
    precision: str,
    duration_s: float,
    card: Card,
    clock: Clock,
) -> list[Row]:
    """Measure one model by all engines in turns.

    Args:
        engines: ours first.
        workload: the model.
        batch: its batch.
        precision: of products.
        duration_s: for all engines together.
        card: times runs.
        clock: seconds.

    Returns:
        A row for each engine; one that cannot run the model has the reason.
    """
    rows: list[Row] = []
    runs: list[tuple[Row, Run]] = []
    for engine in engines:
        row: Row = {
            "kind": "run", "engine": engine.name, "model": workload.title, "batch": batch, "precision": precision,
        }  # fmt: skip
        rows.append(row)
        try:
            start = clock()
            run = engine.load(workload, batch, precision)
            for _ in range(WARM_UP_RUNS):
                run.call()
            row["load_s"] = clock() - start
            runs.append((row, run))
        except EngineError as error:
            row["error"] = str(error)
    share = duration_s / max(len(runs) * TURNS, 1)
    for _ in range(TURNS):
        for row, run in runs:
            times = measured(run, share, card, clock)
            row.setdefault("turns_s", []).append(median(times))
            row["runs"] = row.get("runs", 0) + len(times)
    work = (weights_nbytes(workload.path), product_flops(workload.path, {**workload.dims, "batch": batch}))
    for row, _ in runs:
        row["median_s"] = median(row["turns_s"])
        row["weights_nbytes"], row["product_flops"] = work
    return rows


def with_shares(row: Row, card: Row) -> Row:
    """Add which shares of the card's rates a run reaches: in reading the weights once, and in its products."""
    if "median_s" in row:
        row["share_of_bandwidth"] = row["weights_nbytes"] / row["median_s"] / card["copy_bytes_per_s"]
        if row["product_flops"]:
            row["share_of_flops"] = row["product_flops"] / row["median_s"] / card["product_flops"][row["precision"]]
    return row


def card_row(card: Card) -> Row:
    """Measure the card."""
    launch_s, kernel_s = card.launch_seconds()
    return {
        "kind": "card", **card.facts(), "copy_bytes_per_s": card.copy_rate(),
        "product_flops": {precision: card.product_rate(precision) for precision in PRECISIONS},
        "graph_launch_s": launch_s, "graph_kernel_s": kernel_s,
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
    with tempfile.TemporaryDirectory() as folder:
        for number, (workload, batch, precision) in enumerate(todo):
            left = end - clock()
            if left <= 0:
                reason = f"the budget of {budget_s:.0f} s is over"
                write({"kind": "left out", "count": len(todo) - number, "reason": reason})
                return
            duration = left / (len(todo) - number) / 2  # the other half is for loading
            made = in_precision(workload, precision, Path(folder))
            for row in measured_row(engines, made, batch, precision, duration, card, clock):
                write(with_shares(row, facts))


def main(arguments: Sequence[str]) -> int:
    """Measure, print a table, write rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--budget", type=float, default=900.0)
    parser.add_argument("--rows", type=Path, default=RESULTS / f"{datetime.now(UTC).date()}-cuda.jsonl")
    parser.add_argument("--page", type=Path, help="write the table as Markdown, too")
    parser.add_argument("--skip-conformance", action="store_true")
    given = parser.parse_args(arguments)
    own = Path(__file__).resolve().parent  # CuPy imports a package named as this file is: let it not find this one
    sys.path[:] = [place for place in sys.path if Path(place).resolve() != own]
    found = CudaExecutionProvider.check()
    if not found:
        Console().print(f"nothing is measured: {found}")
        return 2
    chosen = [with_past(each) for each in workloads(given.folder) if each.path.stem in given.models]
    missing = sorted(set(given.models) - {each.path.stem for each in chosen})
    if missing:
        Console().print(f"not in {given.folder}, and left out: {', '.join(missing)}")
    start, rows = time.monotonic(), [machine_row()]
    if not given.skip_conformance:
        rows.append(conformance_row(given.budget * CONFORMANCE_SHARE, share=0.2))
    left = given.budget - (time.monotonic() - start)
    run(CupyCard(), ENGINES, chosen, left, rows.append)
    Console().print(table(rows), *goals(rows), sep="\n")
    given.rows.parent.mkdir(parents=True, exist_ok=True)
    given.rows.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    Console().print(f"rows: {given.rows}")
    if given.page is not None:
        given.page.write_text(page(rows), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
