"""Single nodes: over many elements, or as whole models, they are compiled; copies move whole vectors, to the end."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, parser

import ort_core as ort

KINDS = {"float": "float32", "double": "float64"}
NODES = {
    "Relu": "(float[N] x) => (float[N] y) { y = Relu(x) }",
    "Add": "(int64[N] x, int64[N] z) => (int64[N] y) { y = Add(x, z) }",
    "Concat": "(uint8[N] x, uint8[N] z) => (uint8[M] y) { y = Concat<axis = 0>(x, z) }",
    "Slice": "(bool[N] x) => (bool[M] y) <int64[1] a = {1}, int64[1] b = {-1}> { y = Slice(x, a, b) }",
    "Or": "(bool[N] x, bool[N] z) => (bool[N] y) { y = Or(x, z) }",
    "Cast": "(uint16[N] x) => (uint8[N] y) { y = Cast<to = 2>(x) }",
}


def model(text: str, sizes: str = "") -> ModelProto:
    text = text.replace("[N]", f"[{sizes}]").replace("[M]", "[?]") if sizes else text
    return parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> g {text}')


def engine_of(text: str, sizes: str = "") -> str:
    session = ort.InferenceSession(model(text, sizes).SerializeToString(), providers=["CPUExecutionProvider"])
    (told,) = (line for line in str(session.explain()).splitlines() if line.startswith("  on CPUExecutionProvider"))
    return told.split()[-1]


@pytest.mark.parametrize("op_type", NODES)
def test_a_node_that_is_a_whole_model_is_compiled_however_many_elements_it_has(op_type: str) -> None:
    assert engine_of(NODES[op_type]) == "native"
    assert engine_of(NODES[op_type], "100000") == "native"
    assert engine_of(NODES[op_type], "9") == "native"


@pytest.mark.parametrize("op_type", NODES)
def test_a_node_beside_a_numpy_step_is_compiled_where_it_may_have_many_elements(op_type: str) -> None:
    beside = ", int64[K] k, bool[K] c) => (int64[?] p, "
    text = NODES[op_type].replace(") => (", beside, 1).replace(" }", " p = Compress(k, c) }")
    assert engine_of(text, "9") == "numpy"
    told = ort.InferenceSession(model(text, "100000").SerializeToString(), providers=["CPUExecutionProvider"]).explain()
    assert told.executions()["CPUExecutionProvider"] == {"native": 1, "numpy": 1}


@pytest.mark.parametrize("kind", ["uint8", "bool", "int16", "float", "int64"])
@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 31, 63, 64, 65, 127, 129, 200])
def test_copies_reach_the_last_element_and_no_further(count: int, kind: str) -> None:
    text = (
        f"({kind}[R, N] x, {kind}[R, 1] z) => ({kind}[?, ?] y, {kind}[?, ?] w) <int64[2] s = {{3, {count}}}> "
        "{ y = Concat<axis = 1>(x, z, x) w = Expand(z, s) }"
    )
    session = ort.InferenceSession(model(text).SerializeToString(), providers=["CPUExecutionProvider"])
    x, z = (np.random.default_rng(count).integers(0, 2, (3, n)).astype(KINDS.get(kind, kind)) for n in (count, 1))
    y, w = session.run(None, {"x": x, "z": z})
    np.testing.assert_array_equal(y, np.concatenate([x, z, x], axis=1))
    np.testing.assert_array_equal(w, np.broadcast_to(z, (3, count)))


def compiled(text: str) -> ort.InferenceSession:
    assert engine_of(text) == "native"
    return ort.InferenceSession(model(text).SerializeToString(), providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("kind", ["uint8", "bool", "float16", "float", "double"])
@pytest.mark.parametrize("step", [2, 3, 4, 5, -1, -2])
def test_every_few_elements_are_copied_to_the_last_one(step: int, kind: str) -> None:
    start, stop = (0, 9999) if step > 0 else (-1, -9999)
    for count in (1, 2, 3, 4, 5, 16, 17, 33, 65, 130):
        text = f"({kind}[3, {count}] x) => ({kind}[?, ?] y) <int64[1] a = {{{start}}}, int64[1] b = {{{stop}}}, "
        text += (
            f"int64[1] c = {{1}}, int64[1] d = {{{step}}}> {{ u = Slice(x, a, b, c, d) y = Concat<axis = 1>(u, u) }}"
        )
        x = np.random.default_rng(count).integers(0, 2, (3, count)).astype(KINDS.get(kind, kind))
        wanted = np.concatenate([x[:, ::step], x[:, ::step]], axis=1)
        session = ort.InferenceSession(model(text).SerializeToString(), providers=["CPUExecutionProvider"])
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], wanted)


def test_an_expression_reads_every_other_element() -> None:
    text = "(float[R, 34] x) => (float[R, 17] y) <int64[1] a = {1}, int64[1] b = {999}, int64[1] d = {2}> "
    text += "{ u = Slice(x, a, b, a, d) v = Mul(u, u) y = Tanh(v) }"
    x = np.random.default_rng(0).standard_normal((5, 34)).astype(np.float32)
    np.testing.assert_allclose(compiled(text).run(None, {"x": x})[0], np.tanh(x[:, 1::2] ** 2), rtol=1e-5)


@pytest.mark.parametrize("kind", ["uint8", "float16", "float", "double"])
@pytest.mark.parametrize("mode", ["DCR", "CRD"])
@pytest.mark.parametrize("block", [2, 3, 4, 5])
def test_blocks_of_pixels_are_moved_for_every_width(block: int, mode: str, kind: str) -> None:
    text = (
        f"({kind}[B, {2 * block * block}, H, W] x) => ({kind}[?, ?, ?, ?] y, {kind}[?, ?, ?, ?] z) "
        f'{{ y = DepthToSpace<blocksize = {block}, mode = "{mode}">(x) z = SpaceToDepth<blocksize = {block}>(y) }}'
    )
    session = compiled(text)
    for width in (1, 3, 16, 23):
        x = np.random.default_rng(width).integers(0, 99, (2, 2 * block * block, 2, width))
        x = x.astype(KINDS.get(kind, kind))
        six = (2, block, block, 2, 2, width) if mode == "DCR" else (2, 2, block, block, 2, width)
        order = (0, 3, 4, 1, 5, 2) if mode == "DCR" else (0, 1, 4, 2, 5, 3)
        wanted = x.reshape(six).transpose(order).reshape(2, 2, 2 * block, width * block)
        y, z = session.run(None, {"x": x})
        np.testing.assert_array_equal(y, wanted)
        back = wanted.reshape(2, 2, 2, block, width, block).transpose(0, 3, 5, 1, 2, 4)
        np.testing.assert_array_equal(z, back.reshape(x.shape))


@pytest.mark.parametrize("k", [0, 1, -1, 3, -4, 40, -40])
def test_ones_lie_on_the_diagonal_alone(k: int) -> None:
    session = compiled(f"(bool[N, M] x) => (int64[N, M] y) {{ y = EyeLike<dtype = 7, k = {k}>(x) }}")
    for shape in ((5, 9), (9, 5), (40, 40), (1, 1), (0, 3), (3, 0)):
        np.testing.assert_array_equal(session.run(None, {"x": np.zeros(shape, bool)})[0], np.eye(*shape, k=k))


MICROSOFT = {
    "Trilu": "(float[N, M] x) => (float[N, M] y) { y = com.microsoft.Trilu<upper = 0>(x) }",
    "GatherND": "(float[N, M] x, int64[K, 1] i) => (float[K, M] y) { y = com.microsoft.GatherND(x, i) }",
    "Pad": "(float[N, M] x) => (float[?, ?] y) <int64[4] p = {0, 1, 2, 3}, float v = {1.5}> "
    "{ y = com.microsoft.Pad(x, p, v) }",
    "ExpandDims": "(float[N, M] x) => (float[?, ?, ?] y) <int32 a = {-1}> { y = com.microsoft.ExpandDims(x, a) }",
}


@pytest.mark.parametrize("name", MICROSOFT)
def test_operators_of_both_domains_are_compiled_alike(name: str) -> None:
    text = f'<ir_version: 10, opset_import: ["": 21, "com.microsoft": 1]> g {MICROSOFT[name]}'
    made = parser.parse_model(text).SerializeToString()
    session = ort.InferenceSession(made, providers=["CPUExecutionProvider"])
    if name != "ExpandDims":  # which moves nothing
        assert "1 native" in str(session.explain())
    feeds = {"x": np.arange(15, dtype=np.float32).reshape(3, 5), "i": np.array([[2], [0]])}
    given = {each.name: feeds[each.name] for each in session.get_inputs()}
    (wanted,) = onnxruntime.InferenceSession(made, providers=["CPUExecutionProvider"]).run(None, given)
    np.testing.assert_array_equal(session.run(None, given)[0], wanted)
