"""Errors against float64 of ort-core and onnxruntime in float32, on the same models and inputs.

The truth is the model rewritten to double (``double_precision``) and evaluated by ort-core's numpy kernels. An error is
the root mean square of an output's differences from it, over the root mean square of the output, over several inputs;
the ratio is ours over onnxruntime's, of the output on which it is largest: below 1 means that ort-core is closer. Where
an output has few numbers there are more inputs: of Silero's state, the ratio over 5 inputs lay between 1.0 and 3.0, by
which 5 of 200 they were.

    python benchmarks/accuracy.py FOLDER [MODEL ...] [--rows FILE]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
from double_precision import to_double
from rich.console import Console
from rich.table import Table
from workloads import FLOAT32, TRAINED, Workload, workloads

Arrays = Mapping[str, np.ndarray]
Row = dict[str, Any]  # Any: plain data for JSON
NUMBERS, MOST_INPUTS = 2000, 200  # of each output, over all inputs; the latter for outputs of few numbers


def feeds_of(workload: Workload, seed: int) -> dict[str, np.ndarray]:
    """Return the inputs that ``ort bench`` makes up for a workload."""
    from ort_core.cli.inputs.feeds import InputRequest, build_feeds
    from ort_core.onnx_io.load import load_model

    dims = [f"{name}={size}" for name, size in workload.dims.items()]
    shapes = [f"{name}={shape}" for name, shape in workload.shapes.items()]
    made = build_feeds(load_model(workload.path), InputRequest(shapes=shapes, dims=dims, seed=seed))
    return {name: np.asarray(value) for name, value in made.values.items()}


def session_of(module: Any, model: object, provider: str) -> Any:
    """Return a session from a module with onnxruntime's API; the reference runs the model as it is written."""
    options = module.SessionOptions()
    options.log_severity_level = 3
    if provider != "CPUExecutionProvider":
        options.graph_optimization_level = module.GraphOptimizationLevel.ORT_DISABLE_ALL
    return module.InferenceSession(model, options, providers=[provider])


def outputs_of(session: Any, feeds: Arrays) -> dict[str, np.ndarray]:
    """Return outputs by name as arrays; of a classifier's maps the numbers, one map a row."""
    names = [output.name for output in session.get_outputs()]
    found = session.run(names, dict(feeds))
    return {
        name: np.array([list(row.values()) for row in value], np.float32) if isinstance(value, list) else value
        for name, value in zip(names, found, strict=True)
    }


def in_double(feeds: Arrays) -> dict[str, np.ndarray]:
    """Return feeds with float64 for float32."""
    return {name: array.astype(np.float64) if array.dtype == np.float32 else array for name, array in feeds.items()}


def squares_of(found: np.ndarray, truth: np.ndarray) -> tuple[float, float]:
    """Return the mean squares of the differences and of the truth."""
    return float(np.mean((found.astype(np.float64) - truth) ** 2)), float(np.mean(truth**2))


def relative_error(squares: Sequence[tuple[float, float]]) -> float:
    """Return the root of the differences' mean square over that of the truth, over all inputs together."""
    differences, truth = np.mean(squares, axis=0)
    return float(np.sqrt(differences / max(float(truth), np.finfo(np.float64).tiny)))


def measured(workload: Workload, seeds: int) -> Row:
    """Return both engines' errors of the output on which ours is largest beside onnxruntime's, over several inputs.

    Outputs whose number of rows depends on the numbers themselves (selected boxes) count where it is the truth's.
    """
    import onnxruntime

    import ort_core

    engines = {"ort-core": ort_core, "onnxruntime": onnxruntime}
    truth_session = session_of(ort_core, to_double(workload.path).SerializeToString(), "ReferenceExecutionProvider")
    sessions = {name: session_of(m, str(workload.path), "CPUExecutionProvider") for name, m in engines.items()}
    squares: dict[str, dict[str, list[tuple[float, float]]]] = {}
    seed, wanted = 0, seeds
    while seed < wanted:
        feeds = feeds_of(workload, seed)
        truth = outputs_of(truth_session, in_double(feeds))
        found = {name: outputs_of(session, feeds) for name, session in sessions.items()}
        for output, exact in truth.items():
            arrays = {name: outputs[output] for name, outputs in found.items()}
            if exact.size and all(a.dtype == np.float32 and a.shape == exact.shape for a in arrays.values()):
                wanted = max(wanted, min(MOST_INPUTS, -(-NUMBERS // exact.size)))
                for name, array in arrays.items():
                    squares.setdefault(output, {}).setdefault(name, []).append(squares_of(array, exact))
        seed += 1
    errors = {
        output: {name: relative_error(values) for name, values in by_engine.items()}
        for output, by_engine in squares.items()
    }
    ratios = {output: both["ort-core"] / both["onnxruntime"] for output, both in errors.items() if both["onnxruntime"]}
    worst = max(ratios, key=lambda output: ratios[output])
    row = {"kind": "accuracy", "model": workload.title, "inputs": seed, "output": worst}
    return row | {"errors": errors[worst], "ratio": ratios[worst]}


def main() -> int:
    """Measure from the command line."""
    from ort_core.errors import OrtError

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder with .onnx files, their weights beside them")
    parser.add_argument("models", nargs="*", help="names without .onnx; all float32 models when none is given")
    parser.add_argument("--seeds", type=int, default=5, help="inputs of each model, at least")
    parser.add_argument("--rows", type=Path, help="append one JSON row a model there")
    arguments = parser.parse_args()
    table = Table(title="root mean square errors against float64")
    for heading in ("model", "ort-core", "onnxruntime", "ratio"):
        table.add_column(heading, justify="left" if heading == "model" else "right")
    rows, reasons = list[Row](), list[str]()
    console = Console(stderr=True)
    for workload in workloads(arguments.folder):
        if workload.group not in (FLOAT32, TRAINED) or (arguments.models and workload.name not in arguments.models):
            continue
        console.print(f"measuring {workload.title}")
        try:
            rows.append(measured(workload, arguments.seeds))
        except (ValueError, OrtError) as error:
            table.add_row(workload.title, "-", "-", "-")
            reasons.append(f"{workload.title} is not judged: {error}")
            continue
        errors = rows[-1]["errors"]
        table.add_row(
            workload.title,
            f"{errors['ort-core']:.2e}",
            f"{errors['onnxruntime']:.2e}",
            f"{rows[-1]['ratio']:.2f}",
        )
    Console().print(table, *reasons, sep="\n")
    if arguments.rows:
        with arguments.rows.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
