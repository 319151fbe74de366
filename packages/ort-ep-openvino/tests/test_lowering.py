"""Lowering: the programs that OpenVINO gets, as text; and that what stands for another operator means the same.

python packages/ort-ep-openvino/tests/test_lowering.py     # writes the files in goldens/ anew
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from ort_core.plugin import GraphView
from ort_core.plugin.ir import Graph
from ort_core.testing.claims import typed_model, view_of
from ort_ep_openvino import _sdk
from ort_ep_openvino.lowering.legalization import legalize
from ort_ep_openvino.lowering.ports import Ports
from ort_ep_openvino.lowering.program import program_of

GOLDENS = Path(__file__).with_name("goldens")
HEADER = '<ir_version: 10, opset_import: ["" : 21]> '
PROGRAMS = {
    "chain": "g (float[n,4] x) => (float[n,4] y) { a = Relu(x)  b = Tanh(a)  y = Add(a, b) }",
    "cast_like": "g (float[4] x, int32[2] like) => (int32[4] y) { a = Exp(x)  y = CastLike(a, like) }",
    "cast_to_bool": "g (float[4] x) => (bool[4] y) { y = Cast<to=9>(x) }",
    "handed_on": "g (float[4] x) => (float[4] y, float[4] z) { y = Identity(x)  z = Relu(x) }",
    "constant_axes": (
        "g (float[2,3] x) => (float[2] y) { a = Constant<value = int64[1] {1}>()  y = ReduceSum<keepdims=0>(x, a) }"
    ),
    "non_max_suppression": (
        "g (float[1,6,4] b, float[1,1,6] s) => (int64[k,3] y) <int64[1] m = {3}, float[1] t = {0.5}> "
        "{ y = NonMaxSuppression(b, s, m, t) }"
    ),
    "attention": (
        "g (float[2,4,8,16] q, float[2,4,8,16] k, float[2,4,8,16] v) => (float[2,4,8,16] y) <float c = {0.25}> "
        "{ t = Transpose<perm=[0,1,3,2]>(k)  a = MatMul(q, t)  b = Mul(a, c)  p = Softmax(b)  y = MatMul(p, v) }"
    ),
    "quantized_product": (
        "g (float[n,4] x, uint8[4,4] w) => (float[n,4] y) <float s = {0.5}, uint8 z = {128}> "
        "{ q = QuantizeLinear(x, s, z)  a = DequantizeLinear(q, s, z)  "
        "b = DequantizeLinear(w, s, z)  y = MatMul(a, b) }"
    ),
}
"""ONNX text of claims whose lowered form is kept in ``goldens/``, by name."""


def view_of_text(text: str) -> GraphView:
    """Return the view of a graph before any pass."""
    return view_of(typed_model(onnx.parser.parse_model(HEADER + text)))


def lowered(text: str) -> str:
    """Return what the frontend is handed, as ONNX text, then each operation that it makes of it, with its result."""
    view = view_of_text(text)
    program = program_of(view, view.nodes)
    weights = program.weights()
    model = _sdk.read_model(program.content, weights)
    ports = _sdk.separate_passed(model, program.inputs)
    lines = [f"{kind} {result}".rstrip() for kind, result in _sdk.operations(model)]
    handed = onnx.printer.to_text(onnx.load_from_string(program.content).graph)
    return "\n".join([handed, "", f"passed on: {dict(ports.passed)}", *lines, ""])


def path_of(name: str) -> Path:
    """Return the file of a golden."""
    return GOLDENS / f"{name}.txt"


@pytest.mark.usefixtures("sdk")
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_claim_is_lowered_to_the_program_that_is_kept(name):
    kept = path_of(name).read_text(encoding="utf-8")
    assert lowered(PROGRAMS[name]) == kept, f"goldens/{name}.txt: run this file to write it anew"


def test_every_golden_belongs_to_a_program():
    assert {path.stem for path in GOLDENS.glob("*.txt")} == set(PROGRAMS)


def test_what_openvino_reads_rightly_is_left_as_it_is():
    assert operators_behind("g (float[4] x) => (float16[4] y) { a = Relu(x)  y = Cast<to=10>(a) }") == ["Relu", "Cast"]


def test_a_cast_of_integers_to_bool_is_left_as_it_is():
    assert operators_behind("g (int32[4] x) => (bool[4] y) { y = Cast<to=9>(x) }") == ["Cast"]


@pytest.mark.parametrize("kind", ["float", "float16"])
def test_not_a_number_is_true(session, kind):
    x = np.array([0, -0.0, np.nan, np.inf, 1e-7, -2], np.float32 if kind == "float" else np.float16)
    with session(f"g ({kind}[6] x) => (bool[6] y) {{ y = Cast<to=9>(x) }}") as opened:
        assert opened.run(None, {"x": x})[0].tolist() == x.astype(bool).tolist()


CHOSEN = {
    "Where(c, c, c)": lambda c, x: c,
    "Where(c, x, c)": lambda c, x: c & x,
    "Where(c, c, x)": lambda c, x: c | x,
    "Where(x, c, c)": lambda c, x: c,
}


@pytest.mark.parametrize("size", ["n", "4"])
@pytest.mark.parametrize("choice", CHOSEN)
def test_booleans_are_chosen_by_one_of_them(session, choice, size):
    c, x = np.array([[True, True, False, False]]), np.array([[True, False, True, False]])
    with session(f"g (bool[1,{size}] c, bool[1,{size}] x) => (bool[1,{size}] y) {{ y = {choice} }}") as opened:
        feeds = {each.name: {"c": c, "x": x}[each.name] for each in opened.get_inputs()}
        assert opened.run(None, feeds)[0].tolist() == CHOSEN[choice](c, x).tolist()


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16])
@pytest.mark.parametrize("operator", ["Add", "Sub", "Mul"])
def test_narrow_integers_wrap_around(session, dtype, operator):
    limits = np.iinfo(dtype)
    edges = np.array([limits.min, limits.min + 1, 0, 1, 2, limits.max // 2, limits.max - 1, limits.max], dtype)
    a, b = np.repeat(edges, edges.size), np.tile(edges, edges.size)
    kind = np.dtype(dtype).name
    plain = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply}[operator]
    text = f"g ({kind}[64] a, {kind}[64] b) => (bool[64] y) {{ c = {operator}(a, b)  y = Less(c, b) }}"
    with session(text) as opened:
        assert opened.run(None, {"a": a, "b": b})[0].tolist() == (plain(a, b) < b).tolist()


@pytest.mark.parametrize("operator", ["ReduceMax", "ReduceMin"])
@pytest.mark.parametrize("kind", ["float", "float16"])
def test_the_extreme_of_infinities_is_infinite(session, operator, kind):
    worst = -np.inf if operator == "ReduceMax" else np.inf
    dtype = np.float32 if kind == "float" else np.float16
    x = np.array([[worst] * 3, [worst, 2, -3], [np.finfo(dtype).min, np.finfo(dtype).min, worst], [1, 2, 3]], dtype)
    plain = np.max if operator == "ReduceMax" else np.min
    with session(f"g ({kind}[n,3] x) => ({kind}[n,1] y) <int64[1] a = {{1}}> {{ y = {operator}(x, a) }}") as opened:
        assert opened.run(None, {"x": x})[0].tolist() == plain(x, axis=1, keepdims=True).tolist()


@pytest.mark.parametrize(("threshold", "kept"), [(1 / 3, 2), (0.3, 1), (0.4, 2)])
def test_a_box_whose_overlap_is_the_threshold_itself_stays(session, threshold, kept):
    boxes = np.array([[[0, 0, 1, 1], [0, 0.5, 1, 1.5]]], np.float32)  # they share a third of their union
    text = (
        "g (float[1,2,4] b, float[1,1,2] s, float[1] t) => (int64[k,3] y) <int64[1] m = {9}> "
        "{ y = NonMaxSuppression(b, s, m, t) }"
    )
    feeds = {"b": boxes, "s": np.array([[[0.9, 0.8]]], np.float32), "t": np.array([threshold], np.float32)}
    with session(text) as opened:
        assert len(opened.run(None, feeds)[0]) == kept


def test_ports_are_stored_with_a_model_and_found_again():
    ports = Ports((1, 0), (0, 2), ((1, 0),))
    assert Ports.opened(ports.sealed_with(b"a\nb")) == (ports, b"a\nb")


@pytest.mark.parametrize("content", [b"", b"x\n", b"[]\n", b'{"inputs": []}\n'])
def test_bytes_without_ports_are_an_error(content):
    with pytest.raises(ValueError):
        Ports.opened(content)


def operators_behind(text: str) -> list[str]:
    """Return the operators of a graph after legalization."""
    found: list[str] = []

    def look(graph: Graph) -> None:
        legalize(graph)
        found.extend(node.op_type for node in graph)

    view = view_of_text(text)
    onnx.checker.check_model(view.to_onnx(view.nodes, legalize=look))
    return found


if __name__ == "__main__":
    for name, text in PROGRAMS.items():
        path_of(name).write_text(lowered(text), encoding="utf-8")
