"""How much processor time a first load takes by the kind of graph and the number of its nodes, beside onnxruntime.

Every load has a process of its own, an empty artefact cache and default options, and the processor time of all threads
counts, so that other load on the machine disturbs little. Imports count where ``InferenceSession`` does them.

    python benchmarks/load_growth.py --counts 2500 10000 40000 --kinds "elementwise chain" residual
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent.parent / "packages/ort-core/tests/load"))
from exported_kinds import EXPORTED
from growing_kinds import MORE
from growing_models import GROWING

KINDS = {**GROWING, **MORE, **EXPORTED}
LIMIT_S = 300
_LOAD = """
import sys, time
import {module} as engine
start = time.process_time()
engine.InferenceSession({model!r}, providers=["CPUExecutionProvider"])
print(time.process_time() - start)
"""


def load_seconds(module: str, model: Path) -> float | None:
    """Return the processor time of one load, ``None`` where it takes longer than the limit or fails."""
    program = _LOAD.format(module=module, model=str(model))
    with tempfile.TemporaryDirectory(prefix="ort-bench-cache-") as cache:
        environment = {**os.environ, "ORT_CACHE_DIR": cache}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # its caller's: each import would compile its module
        command = [sys.executable, "-W", "ignore", "-c", program]
        try:
            done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            return None
    return float(done.stdout.splitlines()[-1]) if done.returncode == 0 else None


def main(
    kinds: Annotated[list[str] | None, typer.Option(help="Kinds of graphs; all by default.")] = None,
    counts: Annotated[list[int] | None, typer.Option(help="Numbers of nodes.")] = None,
    ours_only: Annotated[bool, typer.Option(help="Leave onnxruntime out.")] = False,
    jsonl: Annotated[Path | None, typer.Option(help="Also append rows as JSON here.")] = None,
) -> None:
    """Print a table of seconds."""
    sizes = counts or [2_500, 10_000, 40_000]
    modules = ["ort_core"] if ours_only else ["ort_core", "onnxruntime"]
    table = Table("kind", *(f"{module} {size:,}" for size in sizes for module in modules))
    for kind in kinds or KINDS:
        row = [kind]
        with tempfile.TemporaryDirectory(prefix="ort-bench-model-") as folder:
            for size in sizes:
                model = Path(folder) / f"{size}.onnx"
                model.write_bytes(KINDS[kind](size).proto())
                for module in modules:
                    seconds = load_seconds(module, model)
                    row.append("-" if seconds is None else f"{seconds:.2f}")
                    if jsonl is not None:
                        with jsonl.open("a") as file:
                            file.write(json.dumps({"kind": kind, "nodes": size, "engine": module, "s": seconds}) + "\n")
        table.add_row(*row)
        print("  ".join(row), file=sys.stderr, flush=True)
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
