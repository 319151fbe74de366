"""Quantized models beside their float form, here and in onnxruntime: times in turns, and sizes of files.

    python benchmarks/quantization_speed.py FOLDER [MODEL ...] --results benchmarks/results/NAME.jsonl

Each model of the folder that is in the table of ``workloads.py`` is written in each form by ort-quantization, from its
prepared float form. Both engines run the same file, on the same inputs with the same number of threads, in turns with
the float form: of a turn the fastest run of each counts, of the turns the median; of ratios, the median of the ratios
within a turn, so that what else the machine does falls on both sides. ``--minutes`` ends it; a second call with the
models that it names goes on. Needs onnxruntime.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from ort_core.quantization.bfloat16 import convert_float_to_bfloat16
from ort_core.quantization.calibration.sample_files import SampleReader
from ort_core.quantization.float16 import convert_float_to_float16
from ort_core.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
from workloads import FLOAT32, TRAINED, Workload, workloads

import ort_core
from ort_core.quantization import QuantFormat, QuantType, quant_pre_process, quantize_dynamic, quantize_static

TURNS, TURN_S = 7, 0.1
ENGINES = {"ort_core": ort_core, "onnxruntime": onnxruntime}
Sample = dict[str, np.ndarray]
Row = dict[str, object]


def inputs_of(model: onnx.ModelProto, workload: Workload, seed: int) -> Sample:
    """Return random inputs of a workload's sizes, integers 0 or 1; sizes that it does not state are 1."""
    random, found = np.random.default_rng(seed), {}
    given = {each.name for each in model.graph.initializer}
    for value in model.graph.input:
        if value.name in given:
            continue
        tensor = value.type.tensor_type
        shape = [size.dim_value or workload.dims.get(size.dim_param, 1) for size in tensor.shape.dim]
        if value.name in workload.shapes:
            shape = [int(size) for size in workload.shapes[value.name].split("x")]
        kind = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        numbers = random.normal(size=shape) if kind.kind == "f" else random.integers(0, 2, shape)
        found[value.name] = np.asarray(numbers).astype(kind)
    return found


def by_blocks(source: Path, target: Path, bits: int) -> None:
    """Write weights in blocks of 32, computed with in int8 where an engine does so."""
    quantizer = MatMulNBitsQuantizer(str(source), bits, 32, is_symmetric=True, accuracy_level=4)
    quantizer.process()
    quantizer.model.save_model_to_file(str(target), use_external_data_format=True)


def in_halves(source: Path, target: Path, convert: Callable[..., onnx.ModelProto]) -> None:
    """Write a model in 16 bits that takes and gives float32."""
    onnx.save_model(
        convert(onnx.load(source), keep_io_types=True),
        target,
        save_as_external_data=True,
        location=f"{target.name}.data",
    )


def statically(source: Path, target: Path, samples: list[Sample], quant_format: QuantFormat) -> None:
    """Write a model quantized by ranges: uint8 by int8, a scale for each channel."""
    quantize_static(
        source, target, SampleReader(samples), quant_format, activation_type=QuantType.QUInt8, per_channel=True,
        use_external_data_format=True,
    )  # fmt: skip


def forms(samples: list[Sample]) -> Mapping[str, Callable[[Path, Path], None]]:
    """Return what writes each form."""
    return {
        "dynamic": lambda source, target: quantize_dynamic(source, target, use_external_data_format=True),
        "qdq": lambda source, target: statically(source, target, samples, QuantFormat.QDQ),
        "qoperator": lambda source, target: statically(source, target, samples, QuantFormat.QOperator),
        "int8 blocks": lambda source, target: by_blocks(source, target, 8),
        "int4 blocks": lambda source, target: by_blocks(source, target, 4),
        "float16": lambda source, target: in_halves(source, target, convert_float_to_float16),
        "bfloat16": lambda source, target: in_halves(source, target, convert_float_to_bfloat16),
    }


def session_of(engine: str, path: Path, threads: int) -> Any:  # Any: two engines' sessions
    """Return a session of an engine."""
    core: Any = ENGINES[engine]
    options = core.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    return core.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def status_of_load(path: Path) -> int:
    """Return how a process ends that loads a file in onnxruntime, which 1.32 does not survive of LSTMs in float16."""
    program = "import sys, onnxruntime; onnxruntime.InferenceSession(sys.argv[1], providers=['CPUExecutionProvider'])"
    return subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, check=False).returncode


def sessions_of(path: Path, threads: int) -> tuple[dict[str, Any], dict[str, str]]:  # Any: as above
    """Return the sessions of the engines that load a file, and the refusals of the others."""
    found, refused = {}, {}
    for engine in ENGINES:
        if engine == "onnxruntime" and (status := status_of_load(path)) < 0:
            refused[engine] = f"its process ended by signal {-status} when it loaded the file"
            continue
        try:
            found[engine] = session_of(engine, path, threads)
        except Exception as error:  # noqa: BLE001 - each refusal, of whichever engine or tool, is a row
            refused[engine] = f"{type(error).__name__}: {str(error).splitlines()[0][:160]}"
    return found, refused


def best(session: Any, sample: Sample) -> float:  # Any: as above
    """Return the seconds of the fastest run of a turn."""
    found, end = float("inf"), time.perf_counter() + TURN_S
    while found == float("inf") or time.perf_counter() < end:
        start = time.perf_counter()
        session.run(None, sample)
        found = min(found, time.perf_counter() - start)
    return found


def size_of(path: Path) -> int:
    """Return the bytes of a model and of the files beside it that begin with its name."""
    return sum(each.stat().st_size for each in path.parent.glob(f"{path.name}*"))


def decibels(found: list[np.ndarray], expected: list[np.ndarray]) -> float | None:
    """Return the signal to noise of floats, over all results; nothing where they are equal."""
    pairs = [
        (np.asarray(a, np.float64), np.asarray(b, np.float64))
        for a, b in zip(found, expected)
        if isinstance(b, np.ndarray) and b.dtype.kind == "f" and a.shape == b.shape
    ]
    noise = sum(float(((a - b) ** 2).sum()) for a, b in pairs)
    signal = sum(float((b**2).sum()) for _, b in pairs)
    return round(10 * math.log10(signal / noise), 1) if noise and signal else None


def measured(floats: dict[str, Any], path: Path, sample: Sample, threads: int) -> Row:  # Any: as above
    """Return the times of a form beside those of the float form, in the same turns."""
    own, refused = sessions_of(path, threads)
    keys = {("float32", engine): each for engine, each in floats.items()}
    keys |= {("own", engine): each for engine, each in own.items()}
    turns: dict[tuple[str, str], list[float]] = {key: [] for key in keys}
    for _ in range(TURNS):
        for key, session in keys.items():
            turns[key].append(best(session, sample))
    row: Row = {"bytes": size_of(path)}
    for engine in ENGINES:
        if engine in refused:
            row[f"{engine}_refused"] = refused[engine]
            continue
        row[f"{engine}_ms"] = round(1e3 * statistics.median(turns["own", engine]), 4)
        row[f"{engine}_by_float"] = ratio(turns["own", engine], turns["float32", engine])
    if not refused:
        row["ort_core_by_onnxruntime"] = ratio(turns["own", "ort_core"], turns["own", "onnxruntime"])
        results = [own[engine].run(None, sample) for engine in ENGINES]
        row["agreement_db"] = decibels(*results)
        row["signal_to_noise_db"] = decibels(results[0], floats["ort_core"].run(None, sample))
    return row


def ratio(these: list[float], those: list[float]) -> float:
    """Return the median of the ratios of times within turns."""
    return round(statistics.median(a / b for a, b in zip(these, those, strict=True)), 3)


def rows(workload: Workload, folder: Path, chosen: list[str] | None, threads: int) -> Iterator[Row]:
    """Yield the rows of a model."""
    source, target = folder / "float.onnx", folder / "own" / "model.onnx"
    target.parent.mkdir()
    quant_pre_process(workload.path, source, save_as_external_data=True)
    model = onnx.load(source, load_external_data=False)
    sample, samples = inputs_of(model, workload, 9), [inputs_of(model, workload, seed) for seed in range(4)]
    floats, refused = sessions_of(source, threads)
    if refused:
        yield {"form": "float32", "refused": refused}
        return
    yield {"form": "float32"} | measured(floats, source, sample, threads)
    before = {node.op_type for node in model.graph.node}
    for form, write in forms(samples).items():
        if chosen and form not in chosen:
            continue
        for each in target.parent.iterdir():
            each.unlink()
        try:
            write(source, target)
        except Exception as error:  # noqa: BLE001 - each refusal, of whichever engine or tool, is a row
            yield {"form": form, "refused": f"{type(error).__name__}: {str(error).splitlines()[0][:160]}"}
            continue
        if {node.op_type for node in onnx.load(target, load_external_data=False).graph.node} == before and (
            "float16" not in form
        ):
            yield {"form": form, "refused": "nothing in the model is of this form"}
            continue
        yield {"form": form} | measured(floats, target, sample, threads)


def main() -> None:
    """Measure all models, and write a row for each form."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]  # it has one
    parser.add_argument("folder", type=Path, help="of models with their weights")
    parser.add_argument("models", nargs="*", help="names; all of the table in float32 by default")
    parser.add_argument("--forms", nargs="+", help="names; all by default")
    parser.add_argument("--results", type=Path, help="file that rows are added to")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=math.inf, help="behind which no further model begins")
    asked = parser.parse_args()
    end, skipped = time.monotonic() + 60 * asked.minutes, []
    for workload in workloads(asked.folder):
        if workload.group not in (FLOAT32, TRAINED) or (asked.models and workload.name not in asked.models):
            continue
        if time.monotonic() > end:
            skipped.append(workload.name)
            continue
        with tempfile.TemporaryDirectory() as scratch:
            for row in rows(workload, Path(scratch), asked.forms, asked.threads):
                report({"model": workload.name, "threads": asked.threads} | row, asked.results)
    if skipped:
        sys.stdout.write(f"not begun within {asked.minutes:g} minutes: {' '.join(skipped)}\n")


def report(row: Row, path: Path | None) -> None:
    """Show a row, and add it to a file."""
    line = json.dumps(row)
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
    if path is not None:
        with path.open("a", encoding="utf-8") as out:
            out.write(line + "\n")


if __name__ == "__main__":
    main()
