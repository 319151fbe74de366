"""Claims whose lowered form is kept as text in ``goldens/``: what the frontend is handed, and what it makes of that.

    python packages/ort-ep-openvino/tests/lowered_programs.py     # writes the files anew; read the difference
"""

from __future__ import annotations

from pathlib import Path

import onnx

from ort_core.plugin import GraphView
from ort_core.testing.claims import typed_model, view_of
from ort_ep_openvino import _sdk
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
        "g (float[2,4,8,16] q, float[2,4,8,16] k, float[2,4,8,16] v) => (float[2,4,8,16] y) <float[] c = {0.25}> "
        "{ t = Transpose<perm=[0,1,3,2]>(k)  a = MatMul(q, t)  b = Mul(a, c)  p = Softmax(b)  y = MatMul(p, v) }"
    ),
    "quantized_product": (
        "g (float[n,4] x, uint8[4,4] w) => (float[n,4] y) <float[] s = {0.5}, uint8[] z = {128}> "
        "{ q = QuantizeLinear(x, s, z)  a = DequantizeLinear(q, s, z)  b = DequantizeLinear(w, s, z)  y = MatMul(a, b) }"
    ),
}
"""ONNX text by name of the golden."""


def view_of_text(text: str) -> GraphView:
    """Return the view of a graph before any pass."""
    return view_of(typed_model(onnx.parser.parse_model(HEADER + text)))


def lowered(text: str) -> str:
    """Return what the frontend is handed, as ONNX text, then each operation that it makes of it, with its result."""
    view = view_of_text(text)
    program = program_of(view, view.nodes)
    model = _sdk.read_model(program.content, program.weights)
    ports = _sdk.separate_passed(model, program.inputs)
    lines = [f"{kind} {result}".rstrip() for kind, result in _sdk.operations(model)]
    handed = onnx.printer.to_text(onnx.load_from_string(program.content).graph)
    return "\n".join([handed, "", f"passed on: {dict(ports.passed)}", *lines, ""])


def path_of(name: str) -> Path:
    """Return the file of a golden."""
    return GOLDENS / f"{name}.txt"


if __name__ == "__main__":
    for name, text in PROGRAMS.items():
        path_of(name).write_text(lowered(text), encoding="utf-8")
