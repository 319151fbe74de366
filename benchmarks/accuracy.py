"""Errors against float64 of ort-core and onnxruntime in float32, on the same models and inputs.

The truth is the model rewritten to double (``double_precision``) and evaluated by ort-core's numpy kernels. An error is
the root mean square of an output's differences from it, over the root mean square of the output; the ratio is ours
over onnxruntime's: below 1 means that ort-core is closer to the truth.

    python benchmarks/accuracy.py FOLDER [MODEL ...] [--rows FILE]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
from double_precision import to_double
from rich.console import Console
from rich.table import Table
from workloads import FLOAT32, Workload, workloads

Arrays = Mapping[str, np.ndarray]
Row = dict[str, Any]  # Any: plain data for JSON


def feeds_of(workload: Workload) -> dict[str, np.ndarray]:
    """Return the inputs that ``ort bench`` makes up for a workload."""
    from ort_core.cli.feeds import InputRequest, build_feeds
    from ort_core.onnx_io.load import load_model

    dims = [f"{name}={size}" for name, size in workload.dims.items()]
    made = build_feeds(load_model(workload.path), InputRequest(dims=dims))
    return {name: np.asarray(value) for name, value in made.values.items()}


def outputs_of(module: Any, model: object, feeds: Arrays, provider: str) -> dict[str, np.ndarray]:
    """Return a model's outputs by name from a module with onnxruntime's API."""
    options = module.SessionOptions()
    options.log_severity_level = 3
    if provider != "CPUExecutionProvider":
        options.graph_optimization_level = module.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = module.InferenceSession(model, options, providers=[provider])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(feeds)), strict=True))


def truth_of(workload: Workload, feeds: Arrays) -> dict[str, np.ndarray]:
    """Return the outputs in float64."""
    import ort_core

    wide = {name: array.astype(np.float64) if array.dtype == np.float32 else array for name, array in feeds.items()}
    model = to_double(workload.path).SerializeToString()
    return outputs_of(ort_core, model, wide, "ReferenceExecutionProvider")


def relative_error(found: np.ndarray, truth: np.ndarray) -> float:
    """Return the root mean square of the differences over that of the truth."""
    differences = found.astype(np.float64) - truth
    return float(np.sqrt(np.mean(differences**2)) / max(float(np.sqrt(np.mean(truth**2))), np.finfo(np.float64).tiny))


def measured(workload: Workload) -> Row:
    """Return the errors of both engines: of each model the worst of its real outputs of one shape with the truth's."""
    import onnxruntime

    import ort_core

    feeds = feeds_of(workload)
    truth = truth_of(workload, feeds)
    errors = {}
    for name, module in (("ort-core", ort_core), ("onnxruntime", onnxruntime)):
        found = outputs_of(module, str(workload.path), feeds, "CPUExecutionProvider")
        errors[name] = {
            output: relative_error(array, truth[output])
            for output, array in found.items()
            if array.dtype == np.float32 and array.size and array.shape == truth[output].shape
        }
    worst = {name: max(by_output.values()) for name, by_output in errors.items()}
    ratio = max(errors["ort-core"][output] / other for output, other in errors["onnxruntime"].items() if other)
    return {"kind": "accuracy", "model": workload.title, "errors": worst, "ratio": ratio}


def main() -> int:
    """Measure from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder with .onnx files, their weights beside them")
    parser.add_argument("models", nargs="*", help="names without .onnx; all float32 models when none is given")
    parser.add_argument("--rows", type=Path, help="append one JSON row a model there")
    arguments = parser.parse_args()
    table = Table(title="root mean square errors against float64")
    for heading in ("model", "ort-core", "onnxruntime", "largest ratio of an output"):
        table.add_column(heading, justify="left" if heading == "model" else "right")
    rows = []
    console = Console(stderr=True)
    for workload in workloads(arguments.folder):
        if workload.group != FLOAT32 or (arguments.models and workload.path.stem not in arguments.models):
            continue
        console.print(f"measuring {workload.title}")
        try:
            rows.append(measured(workload))
        except ValueError as error:
            console.print(f"{workload.title} is left out: {error}")
            continue
        errors = rows[-1]["errors"]
        table.add_row(
            workload.title,
            f"{errors['ort-core']:.2e}",
            f"{errors['onnxruntime']:.2e}",
            f"{rows[-1]['ratio']:.2f}",
        )
    Console().print(table)
    if arguments.rows:
        with arguments.rows.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
