"""Operator cases recorded from onnxruntime's own tests, computed by the function bodies of their operators."""

from __future__ import annotations

import gzip
import json
from collections import Counter

import onnx
import pytest
from outside_runners import build_worker, find_cases, import_runner

from ort_core.errors import OrtError
from ort_core.ir.rejection import Rejection
from ort_core.ir.subgraph import extract
from ort_core.kernels.evaluator import BoundGraph
from ort_core.kernels.kernel import Unguarded
from ort_core.ops.bodies.table import MICROSOFT
from ort_core.rewrite.decompose import decompose
from ort_core.testing.claims import typed_model, view_of

CASES = find_cases("operators")
OPSETS = (13, 17, 18, 21, 26)  # where operators that bodies are made of changed, or came


def cases_of(path):
    with gzip.open(path, "rt") as file:
        cases = [json.loads(line) for line in file]
    return [c for c in cases if c["domain"] == "com.microsoft" and c["op"] in MICROSOFT and c["expect"] == "success"]


FILES = [path for path in sorted(CASES.glob("*.jsonl.gz")) if cases_of(path)]


@pytest.fixture(scope="module")
def worker():
    return build_worker(import_runner("run_operator_cases"))


def judge(worker, case, opset: int) -> str:
    """Return ``pass``, ``no body``, ``skipped``, or what is wrong with the results of a case's body."""
    try:
        content, feeds, outs = worker.build(case)
    except (ValueError, KeyError, TypeError) as error:  # a case that this runner cannot express
        return f"skipped: {error}"
    if any(r["kind"] in ("unsupported", "big") for r in case["inputs"] + case["outputs"]):
        return "skipped"
    model = onnx.ModelProto.FromString(content)
    for imported in model.opset_import:
        if imported.domain == "":
            imported.version = opset
    try:
        view = view_of(typed_model(model))
    except OrtError as error:
        return f"skipped: {error}"
    graph, _ = extract(view.nodes)
    made = decompose(graph, graph.nodes[0], view.context)
    if isinstance(made, Rejection):
        return f"no body: {made.reason}"
    if any(isinstance(value, tuple) for value in feeds.values()):
        return "skipped"
    results = BoundGraph(graph, view.context).run([feeds[v.name] for v in graph.inputs], {}, Unguarded())
    found = {value.name: result for value, result in zip(graph.outputs, results, strict=True)}
    try:
        for r in outs:
            if case["verify"]:
                worker.check(r, found[r["uname"]])
    except AssertionError as error:
        return str(error)
    return "pass"


@pytest.mark.filterwarnings("ignore")  # the cases feed hostile numbers on purpose
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name.removesuffix(".jsonl.gz"))
def test_bodies_give_the_results_of_onnxruntimes_own_tests(path, worker):
    wrong, counts = {}, Counter()
    for index, case in enumerate(cases_of(path)):
        opset = OPSETS[index % len(OPSETS)]  # every case once: thousands differ in sizes only
        outcome = judge(worker, case, opset)
        counts[outcome.split(":")[0]] += 1
        if outcome.split(":")[0] not in ("pass", "no body", "skipped"):
            wrong[f"{case['test']}#{index} {case['op']} opset {opset}"] = outcome
    assert wrong == {}
    assert counts["pass"], f"nothing was compared: {dict(counts)}"
