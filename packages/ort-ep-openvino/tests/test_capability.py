"""Capability: what is claimed, and the reason for every node that is not."""

from __future__ import annotations

import re

import numpy as np
import pytest

import ort_core as ort
from ort_core.plugin import Claim, Rejection
from ort_core.plugin.ir import Constant
from ort_core.stages import PlacementWarning
from ort_ep_openvino import _sdk
from ort_ep_openvino.lowering.program import Program
from ort_ep_openvino.provider import OpenVinoExecutionProvider

pytestmark = pytest.mark.usefixtures("sdk")


def answers(view, text: str, **options: str) -> tuple[list[list[str]], dict[str, str]]:
    """Return the operators of each claim, and the reasons by operator."""
    found = OpenVinoExecutionProvider(options).get_capability(view(text))
    claims = [[node.op_type for node in answer.nodes] for answer in found if isinstance(answer, Claim)]
    return claims, {answer.node.op_type: answer.reason for answer in found if isinstance(answer, Rejection)}


def test_a_chain_is_one_claim(view):
    claims, reasons = answers(view, "g (float[n,4] x) => (float[n,4] y) { a = Relu(x)  b = Tanh(a)  y = Add(a, b) }")
    assert claims == [["Relu", "Tanh", "Add"]]
    assert not reasons


def test_a_node_in_the_middle_that_is_refused_splits_the_claim(view):
    text = (
        "g (float[2,3] x) => (float[2,3] y) { a = Relu(x) d = Cast<to=11>(a) e = Exp(d) b = Cast<to=1>(e) y = Tanh(b) }"
    )
    claims, reasons = answers(view, text)
    assert claims == [["Relu"], ["Tanh"]]
    assert set(reasons) == {"Cast", "Exp"}
    assert "float64 as float32" in reasons["Exp"]


@pytest.mark.parametrize(
    ("operator", "text", "why"),
    [
        ("Mul", "g (int64[4] x) => (int64[4] y) { y = Mul(x, x) }", "int64 as int32"),
        ("Exp", "g (double[4] x) => (double[4] y) { y = Exp(x) }", "float64 as float32"),
        ("Relu", "g (int8[4] x) => (int8[4] y) { y = Relu(x) }", "saturates"),
        ("Relu", "g (bfloat16[4] x) => (bfloat16[4] y) { y = Relu(x) }", "bfloat16"),
        ("Tile", "g (float[1,2,3,4] x, int64[4] r) => (float[a,b,c,d] y) { y = Tile(x, r) }", "unwritten"),
        ("Identity", "g (float[4] x) => (float[4] y) { y = Identity(x) }", "nothing to compute"),
        ("Max", "g (float[4] x) => (float[4] y) { y = Max(x) }", "nothing to compute"),
        ("Cast", "g (float[4] x) => (int64[4] y) { y = Cast<to=7>(x) }", "by int32"),
        ("Gather", "g (float[n,4] x, int64[3] i) => (float[3,4] y) { y = Gather(x, i) }", "whose size is open"),
        ("GatherND", "g (float[5,4] x, int64[3,2] i) => (float[3] y) { y = GatherND(x, i) }", "nothing proves"),
        ("ReduceSum", "g (float[4] x, int64[n] a) => (float[1] y) { y = ReduceSum(x, a) }", "number of axes"),
        (
            "Resize",
            'g (float[1,1,4,4] x, float[4] s) => (float[a,b,c,d] y) { y = Resize<mode="linear", antialias=1>(x, , s) }',
            "antialias",
        ),
        ("RandomNormal", "g () => (float[4] y) { y = RandomNormal<shape=[4]>() }", "not among"),
        (
            "RNN",
            "g (float[s,1,1] x, int32[1] n) => (float[s,1,1,1] y) <float[1,1,1] w = {1}> "
            "{ y = RNN<hidden_size=1>(x, w, w, , n) }",
            "where a size is open",
        ),
        ("ReduceL2", "g (float[4] x) => (float[4] y) { y = ReduceL2<noop_with_empty_axes=1>(x) }", "without axes"),
        (
            "ConvTranspose",
            "g (float[1,1,n] x) => (float[1,1,m] y) <float[1,1,2] w = {1,2}> "
            '{ y = ConvTranspose<strides=[2], auto_pad="SAME_UPPER">(x, w) }',
            "where a size is open",
        ),
        ("GatherElements", "g (float[2,4] x, int64[1,3] i) => (float[1,3] y) { y = GatherElements(x, i) }", "equal"),
        ("Split", "g (float[n] x) => (float[a] y, float[b] z) { y, z = Split<num_outputs=2>(x) }", "open size"),
    ],
)
def test_what_openvino_computes_otherwise_than_onnx_is_refused_with_the_reason(view, operator, text, why):
    claims, reasons = answers(view, text)
    assert not claims
    assert re.search(why, reasons[operator]), reasons


def test_the_rounding_of_a_constants_quotient_is_refused_and_that_of_others_is_not(view) -> None:
    claims, reasons = answers(view, "g (float[4] x) => (float[4] y) <float c = {9}> { q = Div(c, x) y = Round(q) }")
    assert claims == [["Div"]]
    assert "divides a constant" in reasons["Round"]
    claims, _ = answers(view, "g (float[4] x) => (float[4] y) <float c = {9}> { q = Div(x, c) y = Round(q) }")
    assert claims == [["Div", "Round"]]


@pytest.mark.parametrize(
    ("operator", "text"),
    [
        ("Equal", "g (int64[4] x) => (bool[4] y) <int64[1] c = {7}> { y = Equal(x, c) }"),
        ("Add", "g (int64[4] x) => (int64[4] y) { y = Add(x, x) }"),
        ("Div", "g (int32[4] x) => (int32[4] y) { y = Div(x, x) }"),
        ("Sub", "g (uint8[4] x) => (uint8[4] y) { y = Sub(x, x) }"),
        ("Concat", "g (int64[4] x) => (int64[8] y) { y = Concat<axis=0>(x, x) }"),
        ("Gather", "g (float[9,4] x, int64[3] i) => (float[3,4] y) { y = Gather(x, i) }"),
        ("Gather", "g (float[n,4] x) => (float[n] y) <int64 i = {-4}> { y = Gather<axis=1>(x, i) }"),
        ("ReduceSum", "g (float[2,3] x, int64[1] a) => (float[a,b] y) { y = ReduceSum(x, a) }"),
        ("Cast", "g (float[4] x) => (int32[4] y) { y = Cast<to=6>(x) }"),
        ("CastLike", "g (float[4] x, double[1] like, bool[4] b) => (bool[4] y) { y = CastLike(x, b) }"),
        ("Less", "g (uint16[4] x, uint16[4] z) => (bool[4] y) { y = Less(x, z) }"),
        ("Tile", "g (float[1,2,3,4] x) => (float[1,4,3,4] y) <int64[4] r = {1,2,1,1}> { y = Tile(x, r) }"),
    ],
)
def test_what_it_computes_rightly_under_a_condition_is_claimed_where_the_condition_holds(view, operator, text):
    claims, reasons = answers(view, text)
    assert claims == [[operator]], reasons


def test_sizes_are_computed_where_they_are_known_to_be_small(view):
    text = (
        "g (float[2,6] x) => (float[3,4] y) <int64[1] i = {1}, int64[1] two = {2}, int64[1] most = {-1}> "
        "{ s = Shape(x)  c = Gather(s, i)  h = Div(c, two)  t = Concat<axis=0>(h, most)  y = Reshape(x, t) }"
    )
    assert answers(view, text)[0] == [["Shape", "Gather", "Div", "Concat", "Reshape"]]
    opened = text.replace("[2,6]", "[2,n]").replace("[3,4]", "[a,b]")
    assert answers(view, opened)[0] == [["Shape", "Gather", "Div", "Concat", "Reshape"]]
    inner = opened.replace("{ s = Shape(x)", "{ r = Concat<axis=1>(x, x)  s = Shape(r)")
    claims, reasons = answers(view, inner)
    assert claims == [["Concat", "Shape", "Gather", "Div", "Concat", "Reshape"]], reasons  # each run looks at its sizes
    unseen = inner.replace("r = Concat<axis=1>(x, x)", "z = NonZero(x)  r = Concat<axis=1>(z, z)")
    assert "2**24" in answers(view, unseen)[1]["Div"]


def test_integers_that_multiply_beyond_what_is_looked_at_are_refused(view):
    claims, reasons = answers(view, "g (int32[4] x) => (int32[4] y) { a = Mul(x, x)  y = Div(a, x) }")
    assert claims == [["Mul"]]
    assert "2**24" in reasons["Div"]


def test_sums_of_integers_are_claimed_where_their_elements_are_looked_at_or_bounded(view):
    last = "{ l = ReduceSum(m, axes)  s = Sub(l, one)  y = Cast<to=6>(s) }"
    mask = f"g (int64[b,t] m) => (int32[b,1] y) <int64[1] axes = {{1}}, int64[1] one = {{1}}> {last}"
    assert answers(view, mask)[0] == [["ReduceSum", "Sub", "Cast"]]
    grown = mask.replace("{ l = ReduceSum(m", "{ q = Add(m, m)  l = ReduceSum(q")
    assert "2**24" in answers(view, grown)[1]["ReduceSum"]
    counted = "g (float[3,9] x) => (int64[3] y) <int64[1] a = {1}> { i = ArgMax<axis=0>(x) y = ReduceSum(i, a) }"
    assert answers(view, counted.replace("int64[3] y", "int64[1,1] y"))[0] == [["ArgMax", "ReduceSum"]]


def test_an_index_that_is_computed_and_not_proven_keeps_its_reader_elsewhere(view):
    text = "g (float[9,4] x, int32[3] i) => (float[3,4] y) { j = Add(i, i)  y = Gather(x, j) }"
    claims, reasons = answers(view, text)
    assert claims == [["Add"]]
    assert "nothing proves" in reasons["Gather"]
    proven = "g (float[9,4] x, float[3,9] p) => (float[3,4] y) { i = ArgMax<axis=1,keepdims=0>(p)  y = Gather(x, i) }"
    assert answers(view, proven)[0] == [["ArgMax", "Gather"]]


def test_open_sizes_are_claimed_also_where_models_have_fixed_ones(view):
    text = "g (float[n,4] x) => (float[n,4] y) { y = Relu(x) }"
    assert answers(view, text)[0] == [["Relu"]]
    assert answers(view, text, disable_dynamic_shapes="1")[0] == [["Relu"]]


def test_a_device_that_is_not_there_is_the_reason(view):
    claims, reasons = answers(view, "g (float[4] x) => (float[4] y) { y = Relu(x) }", device_type="NPU")
    assert not claims
    assert "NPU" in reasons["Relu"]


def test_a_node_that_openvino_names_is_refused_and_its_neighbors_are_not(view, monkeypatch):
    asked, unsupported = [], _sdk.unsupported
    monkeypatch.setattr(_sdk, "unsupported", lambda *given: asked.append(given) or unsupported(*given))
    text = (
        "g (float[n,6,8,8] x, int64[k] s) => (float[a,b,c] y) <int64[1] z = {0}, int64[1] w = {2}, int64[1] m = {-1}> "
        "{ r = Relu(x)  d = Slice(s, z, w)  t = Concat<axis=0>(d, m)  q = Reshape(r, t)  y = Sigmoid(q) }"
    )
    claims, reasons = answers(view, text)
    assert claims == [["Relu", "Slice", "Concat"], ["Sigmoid"]]
    assert reasons == {"Reshape": "OpenVINO's device CPU does not run Reshape"}
    assert len(asked) == 4, "the whole, the node that was named, and both of what is left"


def test_a_weight_that_lies_transposed_is_not_copied_to_ask_about_it():
    lying = np.arange(2048, dtype=np.float32).reshape(32, 64)
    program = Program(b"", {"w": Constant.of(lying.T), "v": Constant.of(lying)}, ())
    asked = program.shuffled_weights()
    assert {name: array.shape for name, array in asked.items()} == {"w": (64, 32), "v": (32, 64)}
    assert all(array.flags.c_contiguous and np.shares_memory(array, lying) for array in asked.values())
    assert np.array_equal(program.weights()["w"], lying.T)


@pytest.mark.usefixtures("sdk")
@pytest.mark.parametrize("device", ["GPU.7", "AUTO:GPU.7", "HETERO:GPU.7,NPU.3"])
def test_a_device_that_is_not_there_is_told_of_and_its_provider_does_not_run(parse, device) -> None:
    model = parse("g (float[2] x) => (float[2] y) { y = Relu(x) }").SerializeToString()
    asked = [(OpenVinoExecutionProvider.name, {"device_type": device}), "CPUExecutionProvider"]
    with pytest.warns(PlacementWarning, match="OpenVINO sees no device GPU.7; it sees"):
        session = ort.InferenceSession(model, providers=asked)
    assert session.get_providers() == ["CPUExecutionProvider"]
