"""Single nodes: over many elements they are compiled, and small elements are copied by whole vectors, to the last."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, parser

import ort_core as ort

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
def test_a_node_is_compiled_where_it_may_have_many_elements(op_type: str) -> None:
    assert engine_of(NODES[op_type]) == "native"
    assert engine_of(NODES[op_type], "100000") == "native"
    assert engine_of(NODES[op_type], "9") == "numpy"


@pytest.mark.parametrize("kind", ["uint8", "bool", "int16"])
@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 31, 63, 64, 65, 127, 129, 200])
def test_copies_of_small_elements_reach_the_last_one(count: int, kind: str) -> None:
    text = (
        f"({kind}[R, N] x, {kind}[R, 1] z) => ({kind}[?, ?] y, {kind}[?, ?] w) <int64[2] s = {{3, {count}}}> "
        "{ y = Concat<axis = 1>(x, z, x) w = Expand(z, s) }"
    )
    session = ort.InferenceSession(model(text).SerializeToString(), providers=["CPUExecutionProvider"])
    x, z = (np.random.default_rng(count).integers(0, 2, (3, n)).astype(kind) for n in (count, 1))
    y, w = session.run(None, {"x": x, "z": z})
    np.testing.assert_array_equal(y, np.concatenate([x, z, x], axis=1))
    np.testing.assert_array_equal(w, np.broadcast_to(z, (3, count)))
