"""Take whole models through claims, build, save, reload and evaluation, against the reference provider: a table.

    python packages/ort-ep-coreml/tests/sweep_models.py MODEL.onnx ... [--size NAME=NUMBER] [--option NAME=VALUE]

What Core ML does not get runs on the reference provider. Needs coremltools; large models take minutes.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx

import ort_core as ort
from ort_conformance.comparison import distance, find_difference

EVALUATION, REFERENCE = "CoreMLEvaluationExecutionProvider", "ReferenceExecutionProvider"
HEADER = "| model | nodes to Core ML | programs | result | largest difference | left, with the commonest reason |"
SIZES = {"batch": 1, "sequence": 8, "past_sequence": 4, "total_sequence": 12}


def feeds(session: ort.InferenceSession, sizes: Mapping[str, int]) -> dict[str, np.ndarray]:
    """Return seeded inputs: ones for masks, small numbers for integers (types: 0 and 1), normal floats."""
    generator = np.random.default_rng(7)
    found = {}
    for each in session.get_inputs():
        shape = [size if isinstance(size, int) else sizes.get(str(size), 1) for size in each.shape]
        kind = each.type[7:-1]
        if "mask" in each.name:
            found[each.name] = np.ones(shape, kind)
        elif "int" in kind:
            found[each.name] = generator.integers(0, 2 if "type" in each.name else 7, shape).astype(kind)
        else:
            found[each.name] = generator.standard_normal(shape).astype({"float": "float32"}.get(kind, kind))
    return found


def is_real(value: object) -> bool:
    """Return whether a value is an array of floats."""
    return isinstance(value, np.ndarray) and value.dtype.kind == "f"


def recorded(path: Path, session: ort.InferenceSession) -> dict[str, np.ndarray] | None:
    """Return the inputs of the first data set beside a model, ``None`` where there is none."""
    names = [each.name for each in session.get_inputs()]
    files = [path.parent / "test_data_set_0" / f"input_{place}.pb" for place in range(len(names))]
    if not all(file.exists() for file in files):
        return None
    tensors = [onnx.TensorProto.FromString(file.read_bytes()) for file in files]
    return dict(zip(names, map(onnx.numpy_helper.to_array, tensors), strict=True))


def row(path: Path, sizes: Mapping[str, int], options: Mapping[str, object]) -> str:
    """Return a line of the table for a model."""
    started = time.monotonic()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of placement: the table says it
        session = ort.InferenceSession(str(path), providers=[(EVALUATION, options), REFERENCE], enable_fallback=False)
        reference = ort.InferenceSession(str(path), providers=[REFERENCE])
    report = session.explain()
    own = report.on(EVALUATION)
    given = recorded(path, reference) or feeds(reference, sizes)
    found, expected = session.run(None, given), reference.run(None, given)
    result = "right"
    if find_difference(found, expected, "approximate") is not None:
        compiled = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, given)
        result = f"differs; the CPU provider by {max(map(distance, compiled, expected)):.1e}"
    worst = max((distance(a, b) for a, b in zip(found, expected, strict=True) if is_real(b)), default=0.0)
    reasons: dict[str, int] = {}
    for node in report.nodes:
        for refusal in node.refusals:
            if refusal.provider == EVALUATION:
                text = f"{node.op_type}: {refusal.reason}"
                reasons[text] = reasons.get(text, 0) + 1
    left = max(reasons, key=lambda text: reasons[text]) if reasons else "-"
    parts = len({node.partition for node in own})
    name = path.stem if path.stem != "model" else path.parent.name
    seconds = time.monotonic() - started
    counts = f"{len(own)} of {len(report.nodes)}"
    return f"| {name} | {counts} | {parts} | {result} | {worst:.1e} | {left} |  <!-- {seconds:.0f} s -->"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--size", action="append", default=[], help="value of an open size")
    parser.add_argument("--option", action="append", default=[], help="option of the provider")
    arguments = parser.parse_args()
    sizes = {**SIZES, **{name: int(value) for name, value in (each.split("=") for each in arguments.size)}}
    options = dict(each.split("=", 1) for each in arguments.option)
    print(HEADER, flush=True)  # noqa: T201 - the table is what this file is for
    for path in arguments.models:
        try:
            print(row(path, sizes, options), flush=True)  # noqa: T201 - as above
        except ort.OrtError as error:
            print(f"| {path.stem} | - | - | failed | - | {error} |", flush=True)  # noqa: T201 - as above


if __name__ == "__main__":
    main()
