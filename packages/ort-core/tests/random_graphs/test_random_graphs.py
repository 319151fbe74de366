"""A share of the campaign of random graphs; and the generator, the judges and the minimizer themselves."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx.inliner
import pytest
from onnx import TensorProto, helper, numpy_helper

from random_graphs import element_types as et
from random_graphs.campaign import WORKER, code_digest, read_lines, summary
from random_graphs.cases import Case, case_of_seed
from random_graphs.engines import BY_NAME, READ, READING, ROUNDING, WAYS, Engine
from random_graphs.families import families
from random_graphs.growing import grow
from random_graphs.into_functions import with_functions
from random_graphs.judging import Difference, difference, judge
from random_graphs.minimizing import minimized
from random_graphs.older_forms import NoOlderForm, in_opset
from random_graphs.rounded_truth import rounded_truths
from random_graphs.triples import NoTruth, exact
from random_graphs.truth import Interpreter, array_of
from random_graphs.writer import GraphWriter, Refused
from random_graphs.writing import written

CAMPAIGN = WORKER.with_name("campaign.py")
OTHER_WAYS = {each.name for each in WAYS}
FIRST, SEEDS, BATCHES = 0, 26, 2  # `nox -s graphs` tries as many as one likes


@pytest.mark.slow
@pytest.mark.parametrize("batch", range(BATCHES))
def test_random_graphs_give_their_truth_in_every_engine(batch, tmp_path):
    out = tmp_path / "found.jsonl"
    command = [sys.executable, str(CAMPAIGN), str(FIRST + batch * SEEDS), str(SEEDS), str(out), "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    lines = read_lines(out)
    found = summary(lines)
    assert found["unexplained"] == {}, "`python minimize.py FOLDER SEED` writes the failing test of a seed"
    assert done.returncode == 0, done.stderr[-2000:]
    assert found["codes"] == {code_digest(): SEEDS}, "the record tells which code each seed ran"
    grown = [line["endings"] for line in lines if line["nodes"]]
    assert len(grown) >= SEEDS - 2, "few seeds grow nothing"
    right = Counter(ending for each in grown for ending in each.items())
    assert right["cpu", "right"] == right["reference", "right"] == len(grown)
    assert right["onnxruntime", "right"] > SEEDS * 0.4, f"too few graphs are seen by onnxruntime: {right}"
    others = sum(count for (engine, ending), count in right.items() if engine in OTHER_WAYS and ending == "right")
    assert others == len(grown), "each graph is run in one way more"


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
    unseen = {each.name: each for each in families()}
    for seed in range(200):
        g = GraphWriter.of_seed(seed)
        g.input(et.F32)
        grow(g, 2)
        for each in list(unseen.values()):
            mark = g.mark()
            try:
                each.step(g)
            except (Refused, IndexError, ValueError):
                g.undo(mark)
            else:
                del unseen[each.name]
        if not unseen:
            return
    raise AssertionError(f"no graph of 200 has taken {sorted(unseen)}")


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


def test_roundings_of_large_numbers_beside_each_other_widen_the_window_of_their_softmax():
    run, large = Interpreter(13, {}), np.array([[9633.752]], np.float32)
    terms = [exact(np.array([[0.29063833, 0.4497016]], np.float32)), exact(large)]
    (total,) = run.node(helper.make_node("Add", ["a", "b"], ["c"]), terms, {})
    (shares,) = run.node(helper.make_node("Softmax", ["c"], ["y"], axis=-1), [total], {})
    powers = np.exp(sum(each.native() for each in terms) - large)
    assert difference(powers / powers.sum(), shares) is None
    assert difference(np.array([[0.4, 0.6]], np.float32), shares) is not None


def test_terms_that_cancel_leave_the_roundings_of_the_terms():
    run, terms = Interpreter(14, {}), np.array([[-1.6892477], [1.7389599]], np.float32)
    scale = exact(np.array([-0.64970374], np.float32))
    node = helper.make_node("SimplifiedLayerNormalization", ["x", "w"], ["n"], axis=-1, epsilon=0.1)
    (rows,) = run.node(node, [exact(terms), scale], {})
    (total,) = run.node(helper.make_node("ReduceSum", ["n", "a"], ["y"]), [rows, exact(np.array([0]))], {})
    rounded = rows.truth.astype(np.float32)
    for way in (np.float32(-np.inf), np.float32(np.inf)):
        assert difference(np.nextafter(rounded, way).sum(0, keepdims=True), total) is None
    assert difference(rounded.sum(0, keepdims=True) * np.float32(1.001), total) is not None


@pytest.mark.parametrize(("last", "hangs"), [(-18, True), (-19, False)])
def test_equal_means_have_no_least_one(last, hangs):
    run = Interpreter(19, {})
    levels = exact(np.array([[[-9, -18, -28], [-28, -9, last]]], np.float32))
    (reals,) = run.node(helper.make_node("Mul", ["q", "s"], ["x"]), [levels, exact(np.float32(0.0589))], {})
    (means,) = run.node(helper.make_node("AveragePool", ["x"], ["m"], kernel_shape=[3]), [reals], {})
    with pytest.raises(NoTruth, match="last bit") if hangs else contextlib.nullcontext():
        assert run.node(helper.make_node("ArgMin", ["m"], ["y"], axis=1), [means], {})[0].truth.ravel() == [1]


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


def test_an_output_between_two_pixels_has_no_truth():
    sizes = helper.make_tensor("sizes", TensorProto.INT64, [3], [1, 1, 9])
    node = helper.make_node(
        "Resize",
        ["x", "", "", "sizes"],
        ["y"],
        coordinate_transformation_mode="pytorch_half_pixel",
        nearest_mode="floor",
    )
    scope = {"x": exact(np.arange(7, dtype=np.float32).reshape(1, 1, 7)), "sizes": exact(array_of(sizes))}
    inputs = [scope[name] if name else None for name in node.input]
    with pytest.raises(NoTruth, match="last bit"):  # 4.5 / (9 / 7) - 0.5 is 3 in float32, and less in float64
        Interpreter(21, {}).node(node, inputs, scope)
    node.attribute[1].s = b"ceil"
    node.attribute[0].s = b"asymmetric"
    assert Interpreter(21, {}).node(node, inputs, scope)[0].truth.tolist() == [[[0, 1, 2, 3, 4, 4, 5, 6, 6]]]


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
    first = {"bodies": 270, "functions": 75}  # near one that is wanted: each seed before it takes a while
    seeds = range(first.get(kind, 0), first.get(kind, 0) + 100)
    case = grown() if kind == "by hand" else next(c for c in map(case_of_seed, seeds) if c and wanted[kind](c))
    path = written(case, Difference("cpu", "values", 0, "y", "planted"), tmp_path)
    assert ran(path) == 0
    text = path.read_text().replace("found.astype(np.float64)", "(found.astype(np.float64) + 1)")
    path.write_text(text)
    assert ran(path) == 1


def _is_plain(case: Case) -> bool:
    """Whether a case has bodies and numbers only, and needs no operators of users."""
    has_bodies = any(attribute.HasField("g") for node in case.model.graph.node for attribute in node.attribute)
    given = [value for feeds in case.feeds for value in feeds.values()]
    has_numbers = all(isinstance(value, np.ndarray) and value.dtype.kind != "O" for value in given)
    return has_bodies and has_numbers and all(each.domain == "" for each in case.model.opset_import)


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


def test_functions_hold_control_flow_and_what_its_bodies_read():
    body = helper.make_graph(
        [helper.make_node("Add", ["x", "inner"], ["z"])], "b", [], [helper.make_tensor_value_info("z", 1, None)],
        [numpy_helper.from_array(np.ones(1, np.float32), "inner")],
    )  # fmt: skip
    branches = {"then_branch": body, "else_branch": body}
    flat = case_of(
        [helper.make_node("Tanh", ["x"], ["x2"]), helper.make_node("If", ["c"], ["y"], **branches)],
        {"x": np.zeros(2, np.float32), "c": np.array(True)}, ["y", "x2"],
    ).model  # fmt: skip
    made = [each for seed in range(20) for each in with_functions(flat, seed).functions]
    held = [each for each in made if any(node.op_type == "If" for node in each.node)]
    assert held
    assert all("inner" not in each.input and {"c", "x"} <= set(each.input) for each in held if len(each.node) == 1)


def test_older_opsets_get_older_forms():
    g = GraphWriter.of_seed(0)
    value = g.input(et.F32, 2)
    axes = g.constant(np.array([0], np.int64))
    assert in_opset("Unsqueeze", [value, axes], {}, 13) == ([value, axes], {})
    assert in_opset("Unsqueeze", [value, axes], {}, 12) == ([value], {"axes": [0]})
    assert in_opset("TopK", [value, axes], {"axis": 1}, 9) == ([value], {"axis": 1, "k": 0})
    with pytest.raises(NoOlderForm, match="is an attribute"):
        in_opset("Unsqueeze", [value, value], {}, 12)
    with pytest.raises(NoOlderForm, match="fewer inputs"):
        in_opset("Slice", [value, axes, axes, axes, axes], {}, 9)


def test_a_step_of_quantization_that_hangs_on_a_last_bit_is_within_one_scale():
    quantize = helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"])
    whole = helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"])
    x = np.linspace(-1, 1, 200, dtype=np.float32)
    x[7] = 0.025  # 2.5 scales
    given = {"x": exact(x), "s": exact(np.array(0.01, np.float32)), "z": exact(np.array(0, np.int8))}
    run = Interpreter(21, {})
    (steps,) = run.node(quantize, list(given.values()), {})
    assert not steps.is_exact
    (truth,) = run.node(whole, [steps, given["s"], given["z"]], {})
    right = truth.native()
    assert difference(right, truth) is None
    other = right.copy()
    other[7] = 0.03 if right[7] < 0.025 else 0.02
    assert difference(other, truth) is None
    other[20] += np.float32(0.01)
    assert difference(other, truth)[1].startswith("1 of 200")


def test_whoever_needs_onnxruntimes_files_goes_with_it():
    without = {each.way for each in (*WAYS, *READING) if "onnxruntime" in each.uses}
    assert without == {"ORT format", *READ}


def test_a_file_of_ours_that_onnxruntime_reads_wrong_is_a_difference_where_it_reads_the_case_right(monkeypatch):
    feeds = {"x": np.ones((2, 3), np.float32)}
    right = case_of([helper.make_node("Exp", ["x"], ["y"])], feeds, ["y"])
    wrong = case_of([helper.make_node("Sin", ["x"], ["y"])], feeds, ["y"])
    saving = Engine._saving
    monkeypatch.setattr(Engine, "_saving", lambda self, case, *others: saving(self, wrong, *others))
    for engine in READING:
        assert judge(right, [engine]).endings == {engine.name: "different"}
    unread = case_of([helper.make_node("Exp", ["x"], [""]), helper.make_node("Exp", ["x"], ["y"])], feeds, ["y"])
    assert judge(unread, [READING[0]]).endings == {READING[0].name: "not asked"}


def ran(path: Path) -> int:
    """Return the status of pytest on a file."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(path.parent), str(path)]
    return subprocess.run(command, capture_output=True, check=False, timeout=300, cwd=path.parent).returncode


def test_a_case_can_be_cut_to_one_assignment_of_sizes():
    case = grown()
    twice = replace(case, feeds=[*case.feeds, *case.feeds])
    least, _ = minimized(twice, fault(twice), 60, fault)
    assert len(least.feeds) == 1


def test_sizes_are_cut_as_far_as_the_difference_shows():
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Reshape", ["a", "s"], ["y"]),
    ]
    weights = [
        numpy_helper.from_array(np.ones((17, 4), np.float32), "w"),
        numpy_helper.from_array(np.array([33, 2, 2], np.int64), "s"),
    ]
    case = case_of(nodes, {"x": np.ones((33, 17), np.float32)}, ["y"])
    case.model.graph.initializer.extend(weights)

    def shows(smaller: Case) -> Difference | None:
        try:
            smaller.truths()
        except NoTruth:
            return None
        (x,) = smaller.feeds[0].values()
        is_whole = len(smaller.model.graph.node) == 2
        return Difference("cpu", "values", 0, "y", "planted") if is_whole and x.shape[0] >= 5 else None

    least, _ = minimized(case, Difference("cpu", "values", 0, "y", "planted"), 60, shows)
    assert least.feeds[0]["x"].shape == (5, 1)
    assert array_of(next(t for t in least.model.graph.initializer if t.name == "w")).shape == (1, 4)


def test_special_values_are_an_assignment_more_with_their_truth():
    cases = [case for case in map(case_of_seed, range(200, 300)) if case and "special values" in case.flags]
    assert len(cases) > 5, "each eighth graph or so has some"
    for case in cases:
        arrays = [[a for a in feeds.values() if isinstance(a, np.ndarray)] for feeds in (case.feeds[0], case.feeds[-1])]
        assert [a.shape for a in arrays[0]] == [a.shape for a in arrays[1]]
        last = [array.astype(np.float64) for array in arrays[1] if array.dtype.kind != "O"]
        assert any(not np.isfinite(array).all() or (np.signbit(array) & (array == 0)).any() for array in last)


def fed_by_parts() -> Case:
    """A case whose inputs are a sequence and a map."""
    tensor = helper.make_tensor_type_proto
    inputs = [
        helper.make_value_info("parts", helper.make_sequence_type_proto(tensor(TensorProto.FLOAT, None))),
        helper.make_value_info("words", helper.make_map_type_proto(TensorProto.STRING, tensor(TensorProto.FLOAT, []))),
    ]
    nodes = [
        helper.make_node("ConcatFromSequence", ["parts"], ["joined"], axis=0),
        helper.make_node("DictVectorizer", ["words"], ["row"], domain="ai.onnx.ml", string_vocabulary=["a", "b", "c"]),
        helper.make_node("Add", ["joined", "row"], ["y"]),
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 3)]
    graph = helper.make_graph(nodes, "fed", inputs, outputs)
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    parts = [np.full((rows, 3), rows, np.float32) for rows in (1, 2, 5)]
    feeds = [{"parts": parts[:count], "words": {"c": 0.5, "a": 2.0}} for count in (3, 2)]
    return Case(1, model, feeds, ())


def test_sequences_and_maps_are_fed_in_every_way_and_by_the_test_that_is_written(tmp_path):
    case = fed_by_parts()
    ((truth,), _) = case.truths()
    assert truth.truth[:2].tolist() == [[3.0, 1.0, 1.5], [4.0, 2.0, 2.5]]
    engines = [BY_NAME["onnxruntime"], BY_NAME["cpu"], *WAYS]
    assert set(judge(case, engines).endings.values()) == {"right"}
    path = written(case, Difference("cpu", "values", 0, "y", "planted"), tmp_path)
    assert ran(path) == 0
    path.write_text(path.read_text().replace("'c': 0.5", "'c': 1.5"))
    assert ran(path) == 1


@pytest.mark.parametrize("engine", [*WAYS, *READING], ids=lambda engine: engine.name)
def test_every_way_runs_every_assignment_and_sees_a_wrong_truth(engine):
    case = case_of([helper.make_node("Exp", ["x"], ["y"])], {"x": np.ones((2, 3), np.float32)}, ["y"])
    for dim in case.model.graph.input[0].type.tensor_type.shape.dim:
        dim.ClearField("value")
    case = replace(case, feeds=[*case.feeds, {"x": np.full((4, 1), 2, np.float32)}])
    assert judge(case, [engine]).endings == {engine.name: "right"}
    assert {number for number, _ in engine.runs(case)} == {0, 1}
    wrong = replace(case, feeds=[case.feeds[0], {"x": np.full((4, 1), 3, np.float32)}])
    outputs = list(engine.runs(wrong))
    assert any(difference(found[0], case.truths()[number][0]) for number, found in outputs if number == 1)


def product_case(planted: float = 0.0) -> Case:
    """Return a case of a product, what compares it, and what compares no rounded number."""
    x, w = (
        np.random.default_rng(seed).standard_normal(shape, np.float32) for seed, shape in ((1, (9, 40)), (2, (40, 7)))
    )
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"]),
        helper.make_node("Less", ["y", "c"], ["is_less"]),
        helper.make_node("Cast", ["is_less"], ["compared"], to=TensorProto.FLOAT),
        helper.make_node("Abs", ["x"], ["z"]),
    ]
    w[0, 0] += planted
    c = x @ w + np.float32(0.01)
    return case_of(nodes, {"x": x, "w": w, "c": c}, ["y", "compared", "z"])


def test_a_session_that_rounds_to_bfloat16_is_judged_where_its_window_leaves_no_question():
    case = product_case()
    ((product, compared, moved),) = rounded_truths(case)
    assert compared is None, "a comparison of rounded numbers has no truth"
    assert moved is not None
    assert judge(case, [ROUNDING]).endings == {"bfloat16": "right"}
    ((exact_product, *_),) = rounded_truths(replace(case, feeds=product_case(3.0).feeds))
    assert difference(exact_product.native(), product), "a weight that is wrong shows"


def test_a_session_whose_results_are_all_open_is_not_asked_to_round():
    only = replace(
        product_case(),
        model=case_of(product_case().model.graph.node, dict(product_case().feeds[0]), ["compared"]).model,
    )
    assert judge(only, [ROUNDING]).endings == {"bfloat16": "not asked"}
