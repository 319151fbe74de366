"""What calibration takes by the count of samples, beside onnxruntime's tool: peak memory of a process of its own each.

    python benchmarks/quantization_memory.py --results benchmarks/results/NAME.jsonl

The model is ten convolutions of 32 channels over 112 by 112 values. ort-core is measured with an empty cache, which it
compiles into, and with the cache that this left. Needs onnxruntime; Linux and macOS.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

LAYERS, CHANNELS, SIZE = 10, 32, 112
ENGINES = ("ort_core", "onnxruntime")


def network() -> onnx.ModelProto:
    """Return ten convolutions, each with a Relu."""
    random = np.random.default_rng(0)
    nodes, tensors, value, count = [], [], "x", 3
    for place in range(LAYERS):
        weight = (random.normal(size=(CHANNELS, count, 3, 3)) / np.sqrt(9 * count)).astype(np.float32)
        tensors.append(numpy_helper.from_array(weight, f"w{place}"))
        nodes.append(helper.make_node("Conv", [value, f"w{place}"], [f"c{place}"], f"conv{place}", pads=[1, 1, 1, 1]))
        nodes.append(helper.make_node("Relu", [f"c{place}"], [f"r{place}"], f"relu{place}"))
        value, count = f"r{place}", CHANNELS
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, SIZE, SIZE])]
    outputs = [helper.make_tensor_value_info(value, TensorProto.FLOAT, [1, CHANNELS, SIZE, SIZE])]
    graph = helper.make_graph(nodes, "ten", inputs, outputs, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


class Samples:
    """Random images, made when they are asked for."""

    def __init__(self, count: int) -> None:
        self._left, self._random = count, np.random.default_rng(1)

    def get_next(self) -> dict[str, np.ndarray] | None:
        """Return the next one, ``None`` behind the last."""
        self._left -= 1
        shape = (1, 3, SIZE, SIZE)
        return {"x": self._random.normal(size=shape).astype(np.float32)} if self._left >= 0 else None


def measured(engine: str, method: str, count: int, folder: Path) -> dict[str, float]:
    """Calibrate, or run the float model once where the method is ``float``; return peak memory and time."""
    start = time.perf_counter()
    path = folder / "float.onnx"
    if method == "float":
        core = importlib.import_module(engine)
        session = core.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        samples = Samples(count)
        while (sample := samples.get_next()) is not None:
            session.run(None, sample)
    else:
        tool = importlib.import_module(f"{engine}.quantization")
        calibrate = importlib.import_module(f"{engine}.quantization.calibrate")
        calibrate.CalibrationDataReader.register(Samples)
        tool.quantize_static(
            str(path), str(folder / f"{engine}.onnx"), Samples(count), calibrate_method=tool.CalibrationMethod[method]
        )
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"peak_mb": round(kilobytes / 1024, 0), "seconds": round(time.perf_counter() - start, 1)}


def main() -> None:
    """Measure all, each in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]  # it has one
    parser.add_argument("--results", type=Path, help="file that rows are added to")
    parser.add_argument("--counts", type=int, nargs="+", default=[16, 64, 128, 1000])
    parser.add_argument("--methods", nargs="+", default=["float", "MinMax", "Percentile", "Entropy", "Distribution"])
    parser.add_argument("--limit", type=int, default=128, help="samples that onnxruntime's tool is given at most")
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        engine, method, count, folder = asked.one
        sys.stdout.write("\n" + json.dumps(measured(engine, method, int(count), Path(folder))))
        return
    with tempfile.TemporaryDirectory() as scratch:
        onnx.save(network(), Path(scratch) / "float.onnx")
        for method in asked.methods:
            cache = Path(scratch) / f"cache-{method}"
            for count in asked.counts:
                for engine in ENGINES:
                    if engine == "onnxruntime" and count > asked.limit:
                        continue
                    command = [sys.executable, __file__, "--one", engine, method, str(count), scratch]
                    row = {"engine": engine, "method": method, "samples": count}
                    if engine == "ort_core":
                        row["cache"] = "filled" if cache.exists() else "empty"
                    report({**row, **outcome(command, cache)}, asked.results)
                    if row.get("cache") == "empty":
                        outcome(command, cache)  # a session is stored for recall by the second process that loads it
                        report({**row, "cache": "filled", **outcome(command, cache)}, asked.results)


def outcome(command: list[str], cache: Path) -> dict[str, object]:
    """Return what a process with a folder of its cache measured, its last line, or its last word where it failed."""
    variables = {**os.environ, "ORT_CACHE_DIR": str(cache)}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"refused": done.stderr.strip().splitlines()[-1][:160]}
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])  # onnxruntime's tool prints before it
    return found


def report(row: dict[str, object], path: Path | None) -> None:
    """Show a row, and add it to a file."""
    line = json.dumps(row)
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
    if path is not None:
        with path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")


if __name__ == "__main__":
    main()
