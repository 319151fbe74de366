"""Quantized models beside their float form, here and in onnxruntime: times in turns, and sizes of files.

    python benchmarks/quantization_speed.py MODEL ... --results benchmarks/results/NAME.jsonl

Each model is quantized dynamically and statically (QDQ, uint8 and int8 by channel) by ort-quantization; both engines
run the same files on the same inputs with the same number of threads, in turns. Of a turn the fastest run counts, of
the turns the median. Needs onnxruntime.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from ort_core.quantization.sample_files import SampleReader

import ort_core
from ort_core.quantization import QuantType, quant_pre_process, quantize_dynamic, quantize_static

TURNS, TURN_S = 7, 0.1
ENGINES = {"ort_core": ort_core, "onnxruntime": onnxruntime}


def inputs_of(model: onnx.ModelProto, seed: int) -> dict[str, np.ndarray]:
    """Return random inputs; open sizes are 1, integers 0 or 1."""
    random, found = np.random.default_rng(seed), {}
    given = {each.name for each in model.graph.initializer}
    for value in model.graph.input:
        if value.name in given:
            continue
        shape = [size.dim_value or 1 for size in value.type.tensor_type.shape.dim]
        kind = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        numbers = random.normal(size=shape) if kind.kind == "f" else random.integers(0, 2, shape)
        found[value.name] = np.asarray(numbers).astype(kind)
    return found


def forms(path: Path, folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the float model as it was prepared, and its quantized forms."""
    source = folder / "float.onnx"
    quant_pre_process(path, source)
    yield "float32", source
    model = onnx.load(source, load_external_data=False)
    quantize_dynamic(source, folder / "dynamic.onnx")
    yield "dynamic", folder / "dynamic.onnx"
    samples = [inputs_of(model, seed) for seed in range(4)]
    quantize_static(
        source, folder / "qdq.onnx", SampleReader(samples), activation_type=QuantType.QUInt8, per_channel=True
    )
    yield "qdq", folder / "qdq.onnx"


def session_of(engine: str, path: Path, threads: int) -> Any:  # Any: two engines' sessions
    """Return a session of an engine."""
    core: Any = ENGINES[engine]
    options = core.SessionOptions()
    options.intra_op_num_threads = threads
    return core.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def best(session: Any, sample: dict[str, np.ndarray]) -> float:  # Any: as above
    """Return the seconds of the fastest run of a turn."""
    found, end = float("inf"), time.perf_counter() + TURN_S
    while found == float("inf") or time.perf_counter() < end:
        start = time.perf_counter()
        session.run(None, sample)
        found = min(found, time.perf_counter() - start)
    return found


def main() -> None:
    """Measure all models, and write a row for each form."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]  # it has one
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--results", type=Path, help="file that rows are added to")
    parser.add_argument("--threads", type=int, default=1)
    asked = parser.parse_args()
    for path in asked.models:
        with tempfile.TemporaryDirectory() as scratch:
            made = dict(forms(path, Path(scratch)))
            sessions = {
                (form, engine): session_of(engine, made[form], asked.threads) for form in made for engine in ENGINES
            }
            sample = inputs_of(onnx.load(made["float32"], load_external_data=False), 9)
            turns: dict[tuple[str, str], list[float]] = {key: [] for key in sessions}
            for _ in range(TURNS):
                for key, session in sessions.items():
                    turns[key].append(best(session, sample))
            for form, file in made.items():
                row: dict[str, object] = {
                    "model": path.parent.name if path.stem == "model" else path.stem,
                    "form": form,
                }
                row |= {"bytes": file.stat().st_size, "threads": asked.threads}
                row |= {f"{engine}_ms": round(1e3 * statistics.median(turns[form, engine]), 4) for engine in ENGINES}
                line = json.dumps(row)
                sys.stdout.write(line + "\n")
                sys.stdout.flush()
                if asked.results is not None:
                    with asked.results.open("a", encoding="utf-8") as out:
                        out.write(line + "\n")


if __name__ == "__main__":
    main()
