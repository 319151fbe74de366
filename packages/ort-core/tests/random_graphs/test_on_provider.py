"""Random graphs on one provider with the CPU behind it: what it claimed is judged, what it left is not called right."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from ort_core.testing.environments import installed
from ort_core.testing.fake_providers import EchoProvider, FailsInCompile, FailsInRun, RefusingProvider, plugin_of
from random_graphs import worker
from random_graphs.cases import Case
from random_graphs.explained import Explained
from random_graphs.judging import Difference, judge
from random_graphs.on_provider import GraphsProvider, provider_of_file

REFERENCE = "ReferenceExecutionProvider"


def relu() -> Case:
    border = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", border[:1], border[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return Case(0, model, [{"x": np.array([-1, 0, 2], np.float32)}], ["elementwise"])


def test_a_provider_is_judged_and_its_operators_are_counted():
    engine = GraphsProvider(REFERENCE).engine(0)
    outcome = judge(relu(), [engine])
    assert outcome.endings == {REFERENCE: "right"}
    assert set(engine.claimed) == {"Relu"}


def test_a_graph_of_which_a_provider_claims_nothing_is_not_asked():
    with installed(plugin_of(RefusingProvider)):
        outcome = judge(relu(), [GraphsProvider(RefusingProvider.name).engine(0)])
    assert outcome.endings == {RefusingProvider.name: "not asked"}


@pytest.mark.parametrize("failing", [FailsInCompile, FailsInRun])
def test_what_a_provider_claims_and_fails_to_compute_is_a_finding(failing: type[EchoProvider]):
    with installed(plugin_of(failing)), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the fallback, as in a worker
        outcome = judge(relu(), [GraphsProvider(failing.name).engine(0)])
    assert [(found.engine, found.kind) for found in outcome.differences] == [(failing.name, "error")]


def test_a_known_difference_of_a_provider_is_explained_by_its_own_rows():
    row = Explained(REFERENCE, "Relu", "^values ", "a row of its own")
    found = Difference(REFERENCE, "values", 0, "y", "1 of 3 float32")
    assert GraphsProvider(REFERENCE, known=(row,)).explanation(relu(), found) == "a row of its own"
    assert GraphsProvider(REFERENCE).explanation(relu(), found) is None


def test_a_file_describes_a_provider_and_prepares_it(tmp_path: Path):
    path = tmp_path / "described_on_random_graphs.py"
    path.write_text(
        "from random_graphs.on_provider import GraphsProvider\n"
        "made = []\n"
        f"PROVIDER = GraphsProvider({REFERENCE!r}, prepare=lambda: made.append(1))\n",
        encoding="utf-8",
    )
    found = provider_of_file(str(path))
    assert found.name == REFERENCE
    assert found.prepare.__globals__["made"] == [1]


def test_a_line_of_a_seed_says_what_was_claimed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(worker, "case_of_seed", lambda seed: relu())
    line = worker.line_of_provider(5, GraphsProvider(REFERENCE))
    assert line["endings"] == {REFERENCE: "right"}
    assert set(line["claimed"]) == {"Relu"}
    assert (line["seed"], line["nodes"]) == (5, 1)
