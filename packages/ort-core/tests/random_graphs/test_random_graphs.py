"""A share of the campaign of random graphs; and the generator, the judges and the minimizer themselves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx.inliner
import pytest
from onnx import TensorProto, helper

from random_graphs.campaign import WORKER, summary
from random_graphs.cases import Case, case_of_seed
from random_graphs.families import families
from random_graphs.into_functions import with_functions
from random_graphs.judging import Difference, difference
from random_graphs.minimizing import minimized
from random_graphs.truth import Interpreter, NoTruth, exact
from random_graphs.writing import written

FIRST, SEEDS, BATCHES = 0, 30, 2  # `nox -s graphs` tries as many as one likes


@pytest.mark.slow
@pytest.mark.parametrize("batch", range(BATCHES))
def test_random_graphs_give_their_truth_in_every_engine(batch):
    command = [sys.executable, str(WORKER), str(FIRST + batch * SEEDS), str(SEEDS), "full"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    lines = [line for line in map(json.loads, done.stdout.splitlines()) if "trying" not in line]
    assert done.returncode == 0, f"the process ended behind seed {lines[-1:]}: {done.stderr[-2000:]}"
    found = summary(lines)
    assert found["unexplained"] == {}, "`python minimize.py FOLDER SEED` writes the failing test of a seed"
    right = Counter(ending for line in lines for ending in line["endings"].items())
    assert right["cpu", "right"] == right["reference", "right"] == SEEDS
    assert right["onnxruntime", "right"] > SEEDS * 2 / 3, f"too few graphs are seen by onnxruntime: {right}"


def test_a_seed_gives_one_graph_and_one_truth_in_every_process():
    seeds = range(100, 112)
    program = (
        f"import sys, hashlib; sys.path.insert(0, {str(WORKER.parents[1])!r})\n"
        "from random_graphs.cases import case_of_seed\n"
        f"for seed in {seeds!r}: print(hashlib.sha256(case_of_seed(seed).model.SerializeToString()).hexdigest())"
    )
    texts = [
        subprocess.run(
            [sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=True, timeout=300,
            env={**os.environ, "PYTHONHASHSEED": number},
        ).stdout
        for number in ("1", "2")
    ]  # fmt: skip
    assert texts[0] == texts[1]
    assert len(set(texts[0].split())) == len(seeds)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_every_family_finds_its_way_into_graphs():
    seen: Counter[str] = Counter()
    for seed in range(450):
        case = case_of_seed(seed)
        seen.update(case.families if case is not None else ())
    assert {each.name for each in families()} - seen.keys() == set()


def case_of(nodes, feeds, outputs, opset=21, types=TensorProto.FLOAT):
    inputs = [helper.make_tensor_value_info(name, types, array.shape) for name, array in feeds.items()]
    ends = [helper.make_tensor_value_info(name, types, None) for name in outputs]
    graph = helper.make_graph(nodes, "case", inputs, ends)
    return Case(7, helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10), [feeds], ())


def test_last_bits_are_no_difference_and_more_is():
    x = np.linspace(-2, 2, 33, dtype=np.float32)
    case = case_of([helper.make_node("Tanh", ["x"], ["y"])], {"x": x}, ["y"])
    ((truth,),) = case.truths()
    right = np.tanh(x.astype(np.float64)).astype(np.float32)
    assert difference(np.nextafter(right, np.float32(2)), truth) is None
    wrong = right.copy()
    wrong[5] += np.float32(1e-3)
    kind, text = difference(wrong, truth)
    assert kind == "values"
    assert text.startswith("1 of 33 float32, at [5]")
    assert difference(right.astype(np.float64), truth)[0] == "type"
    assert difference(right[:5], truth)[0] == "shape"


def test_a_question_that_hangs_on_a_last_bit_has_no_truth():
    feeds = {"x": np.array([0.1, 0.2], np.float32)}
    sums = helper.make_node("Exp", ["x"], ["e"])
    same = helper.make_node("Exp", ["x"], ["f"])
    asked = helper.make_node("GreaterOrEqual", ["e", "f"], ["y"])
    scope = {name: exact(array) for name, array in feeds.items()}
    run = Interpreter(21, {})
    (left,) = run.node(sums, [scope["x"]], scope)
    (right,) = run.node(replace_output(same, "other"), [exact(np.exp(feeds["x"]).astype(np.float32))], scope)
    with pytest.raises(NoTruth, match="last bit"):
        run.node(asked, [left, exact(left.truth.astype(np.float32))], scope)
    assert right.dtype is left.dtype


def replace_output(node, name):
    copy = type(node)()
    copy.CopyFrom(node)
    copy.output[0] = name
    return copy


def grown():
    """Return a case of several nodes, one of them a Tanh in the middle."""
    nodes = [
        helper.make_node("Abs", ["x"], ["a"]),
        helper.make_node("Mul", ["a", "x"], ["b"]),
        helper.make_node("Tanh", ["b"], ["c"]),
        helper.make_node("Add", ["c", "a"], ["d"]),
        helper.make_node("Neg", ["d"], ["y"]),
        helper.make_node("Relu", ["a"], ["z"]),
    ]
    return case_of(nodes, {"x": np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)}, ["y", "z"])


def fault(case: Case) -> Difference | None:
    """Say that each graph with a Tanh is wrong."""
    if any(node.op_type == "Tanh" for node in case.model.graph.node):
        return Difference("cpu", "values", 0, "y", "planted")
    return None


def test_the_minimizer_leaves_the_node_that_is_wrong():
    case = grown()
    least, found = minimized(case, fault(case), 60, fault)
    assert [node.op_type for node in least.model.graph.node] == ["Tanh"]
    assert found.text == "planted"
    assert [each.name for each in least.model.graph.input] == ["b"]


@pytest.mark.parametrize("kind", ["by hand", "bodies", "functions"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_the_test_that_the_minimizer_writes_runs_and_fails_where_the_engine_is_wrong(kind, tmp_path):
    wanted = {"bodies": _is_plain, "functions": _has_attributes_of_calls}
    case = grown() if kind == "by hand" else next(c for c in map(case_of_seed, range(61, 161)) if wanted[kind](c))
    path = written(case, Difference("cpu", "values", 0, "y", "planted"), tmp_path)
    assert ran(path) == 0
    text = path.read_text().replace("found.astype(np.float64)", "(found.astype(np.float64) + 1)")
    path.write_text(text)
    assert ran(path) == 1


def _is_plain(case: Case) -> bool:
    """Whether a case has bodies, and needs no operators of users."""
    has_bodies = any(attribute.HasField("g") for node in case.model.graph.node for attribute in node.attribute)
    return has_bodies and all(each.domain == "" for each in case.model.opset_import)


def _has_attributes_of_calls(case: Case) -> bool:
    """Whether a case calls functions some of whose attributes are given by the call, and needs no users' operators."""
    formals = any(function.attribute for function in case.served.functions)
    return formals and all(each.domain == "" for each in case.model.opset_import)


def test_functions_of_a_graph_hold_its_nodes():
    flat = grown().model
    for seed in range(20):
        parts = with_functions(flat, seed)
        inlined = onnx.inliner.inline_local_functions(parts)
        assert parts.functions, "each of these graphs has a run of nodes"
        assert [n.op_type for n in inlined.graph.node] == [n.op_type for n in flat.graph.node]


def ran(path: Path) -> int:
    """Return the status of pytest on a file."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(path.parent), str(path)]
    return subprocess.run(command, capture_output=True, check=False, timeout=300, cwd=path.parent).returncode


def test_a_case_can_be_cut_to_one_assignment_of_sizes():
    case = grown()
    twice = replace(case, feeds=[*case.feeds, *case.feeds])
    least, _ = minimized(twice, fault(twice), 60, fault)
    assert len(least.feeds) == 1
