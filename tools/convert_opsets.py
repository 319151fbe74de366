"""Node cases in other operator sets: ``python tools/convert_opsets.py [--targets 7,13] [--json FILE] [PATTERN ...]``.

Each node case of the installed onnx is converted from its own opset to each target, checked by onnx's checker, and run
here (by the numpy kernels) and by onnxruntime, where that runs the case at all. Outcomes: ``equal``, ``refused`` with
the operator and what has no form, ``differ``, ``invalid``, ``failed``. The exit status is 1 where there is one of the
last three.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

import ort_core
from ort_conformance.case import Case
from ort_conformance.suites.backend_cases import node_cases
from ort_tools.opsets.conversion import convert_opset, opset_of
from ort_tools.opsets.refusal import OpsetRefusal

TARGETS = (7, 9, 10, 11, 12, 13, 14, 15, 17, 18, 19, 20, 21, 23, 25, 28)
_RELATIVE, _ABSOLUTE = 1e-3, 1e-5  # what function bodies in other operators may round otherwise
_COARSE = {"float16": 2e-2, "bfloat16": 5e-2}


def run_here(model: onnx.ModelProto, feeds: Mapping[str, object]) -> list[object]:
    """Return what the numpy kernels make of a model."""
    options = ort_core.SessionOptions()
    options.graph_optimization_level = ort_core.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort_core.InferenceSession(model.SerializeToString(), options, providers=["ReferenceExecutionProvider"])
    return list(session.run(None, feeds))


def run_there(model: onnx.ModelProto, feeds: Mapping[str, object]) -> list[object]:
    """Return what onnxruntime makes of a model."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, feeds))


def agree(found: object, expected: object) -> bool:
    """Return whether two results are one, but for rounding."""
    if isinstance(expected, (list, tuple)):
        return isinstance(found, (list, tuple)) and len(found) == len(expected) and all(map(agree, found, expected))
    if expected is None or found is None:
        return expected is found
    left, right = np.asarray(found), np.asarray(expected)
    if left.shape != right.shape:
        return False
    if right.dtype.kind in "OUSb":
        return bool((left.astype(str) == right.astype(str)).all())
    if left.dtype != right.dtype:
        return False
    wide = np.complex128 if right.dtype.kind == "c" else np.float64
    relative = _COARSE.get(right.dtype.name, _RELATIVE)
    return bool(np.allclose(left.astype(wide), right.astype(wide), relative, max(_ABSOLUTE, relative / 100), True))


def outcome_of(case: Case, target: int, runs_there: bool, *, fixes: bool = False) -> tuple[str, str]:
    """Convert a case and run it; return the outcome and what to say of it.

    Where axes and the like would have to be constants, the case is tried again with all inputs but the first fixed.
    """
    model = fixed(case) if fixes else case.model()
    try:
        converted = convert_opset(model, target)
    except OpsetRefusal as refusal:
        if "is not a constant" in refusal.what and not fixes and len(model.graph.input) > 1:
            outcome, text = outcome_of(case, target, runs_there, fixes=True)
            return ("equal, inputs fixed" if outcome == "equal" else outcome), text
        return "refused", f"{refusal.op_type}: {refusal.what}"
    except Exception as error:  # noqa: BLE001 - that conversion fails is a result
        return "failed", f"{type(error).__name__}: {error}"
    try:
        onnx.checker.check_model(converted, full_check=False)
    except onnx.checker.ValidationError as error:
        return "invalid", str(error)
    for name, run in (("here", run_here), ("in onnxruntime", run_there)):
        if name != "here" and not runs_there:
            continue
        try:
            for data in case.data_sets():
                taken = {each.name for each in converted.graph.input}
                feeds = {name: value for name, value in data.feeds.items() if name in taken}
                found, expected = run(converted, feeds), list(data.expected)
                if not all(map(agree, found[: len(expected)], expected)):
                    return "differ", name
        except Exception as error:  # noqa: BLE001 - that a run fails is a result
            if name == "here" or "NOT_IMPLEMENTED" not in str(error):
                return "failed", f"{name}: {error}"
    return "equal", ""


def fixed(case: Case) -> onnx.ModelProto:
    """Return a case's model with the inputs behind the first as constants."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model())
    feeds = next(iter(case.data_sets())).feeds
    for each in list(model.graph.input)[1:]:
        value = feeds.get(each.name)
        if isinstance(value, np.ndarray):
            model.graph.input.remove(each)
            model.graph.initializer.append(onnx.numpy_helper.from_array(value, each.name))
    return model


def runs(case: Case, run: object) -> bool:
    """Return whether a case runs as it is, with its results."""
    try:
        return all(
            all(map(agree, run(case.model(), data.feeds), data.expected))  # type: ignore[operator]  # one of the two runs
            for data in case.data_sets()
        )
    except Exception:  # noqa: BLE001 - then it is no evidence
        return False


def main(arguments: Sequence[str] | None = None) -> int:
    """Convert the cases, print what is wrong and the counts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("patterns", nargs="*", help="names of cases, * for any text; all by default")
    parser.add_argument("--targets", type=lambda text: [int(each) for each in text.split(",")], default=TARGETS)
    parser.add_argument("--json", type=Path, help="a line for each case and target")
    parser.add_argument("--every", type=int, default=1, help="take every n-th case")
    args = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    onnxruntime.set_default_logger_severity(4)
    cases = [
        case
        for case in (*node_cases(is_ml=False), *node_cases(is_ml=True))
        if "@" not in case.name and not case.unjudged
        if not args.patterns or any(fnmatchcase(case.name, each) for each in args.patterns)
    ][:: args.every]
    counts: dict[int, Counter[str]] = {target: Counter() for target in args.targets}
    lines = []
    for case in cases:
        own = opset_of(case.model().opset_import)
        if own is None or own < 7 or not runs(case, run_here):
            continue
        there = runs(case, run_there)
        for target in args.targets:
            outcome, text = outcome_of(case, target, there) if target != own else ("own", "")
            direction = "up" if target > own else "down"
            counts[target][outcome if outcome == "own" else f"{direction} {outcome}"] += 1
            lines.append({"case": case.name, "own": own, "target": target, "outcome": outcome, "text": text})
            if outcome in ("differ", "failed", "invalid"):
                print(f"{outcome:8} {case.name} {own} -> {target}: {text[:300]}", flush=True)
    if args.json:
        args.json.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    for target in args.targets:
        print(f"opset {target:2}: " + ", ".join(f"{key} {count}" for key, count in sorted(counts[target].items())))
    return int(any(each["outcome"] in ("differ", "failed", "invalid") for each in lines))


if __name__ == "__main__":
    sys.exit(main())
