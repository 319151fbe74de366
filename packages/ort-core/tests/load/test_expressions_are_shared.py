"""Equal layers describe what they compute once, also where several of their values meet in one expression."""

from __future__ import annotations

import numpy as np
import pytest
from exported_kinds import EXPORTED
from onnx import parser

import ort_core
from ort_core.cpu.lowering import expression_core
from ort_core.cpu.lowering.expression_core import SharedExpressions
from ort_core.ir.types import DataType
from ort_core.loops.scalar import binary, element, lift, structure, unary

NODES = 400
MANY_READERS = """<ir_version: 10, opset_import: ["" : 21]>
    g (float[3, 5] x, float[3, 5] u) => (float[3, 5] y)
    <float half = {0.5}> {
    a0 = Mul(x, half)
    a = Sigmoid(a0)
    b0 = Mul(u, half)
    b = Sigmoid(b0)
    c0 = Mul(x, half)
    c = Sigmoid(c0)
    p = Mul(a, b)
    q = Mul(a, a)
    r = Mul(c, a)
    s = Add(p, q)
    t = Sub(b, r)
    y0 = Mul(s, t)
    y1 = Add(y0, a)
    y = Add(y1, b)
}"""


def test_steps_that_are_equal_are_walked_once(tmp_path, monkeypatch):
    monkeypatch.setenv("ORT_CACHE_DIR", str(tmp_path))
    walks = [0]
    walk = expression_core._CoreWalk.core

    def counted(self, expression):
        walks[0] += 1
        return walk(self, expression)

    monkeypatch.setattr(expression_core._CoreWalk, "core", counted)
    found = []
    for count in (NODES, 2 * NODES):
        walks[0] = 0
        ort_core.InferenceSession(EXPORTED["unrolled"](count).proto(), providers=["CPUExecutionProvider"])
        found.append(walks[0])
    assert found[1] - found[0] <= NODES // 10, f"{found} expressions were walked for {NODES} and {2 * NODES} nodes"


@pytest.mark.parametrize("disabled", [[], ["CommonSubexpressionElimination"]])
def test_values_that_meet_in_one_expression_stay_apart(disabled):
    content = parser.parse_model(MANY_READERS).SerializeToString()
    session = ort_core.InferenceSession(content, providers=["CPUExecutionProvider"], disabled_optimizers=disabled)
    random = np.random.default_rng(7)
    x, u = random.standard_normal((2, 3, 5)).astype(np.float32)
    (found,) = session.run(None, {"x": x, "u": u})
    a, b = (1 / (1 + np.exp(-0.5 * each.astype(np.float64))) for each in (x, u))
    np.testing.assert_allclose(found, (a * b + a * a) * (b - a * a) + a + b, rtol=3e-6)


def test_readers_of_one_kind_share_copies_and_one_reader_never_meets_one_twice():
    shared = SharedExpressions()
    half = binary("mul", element(0, DataType.FLOAT), lift(0.5, DataType.FLOAT))
    tanh = shared.core_of(unary("tanh", half), None).root
    first = shared.apart(tanh, ())
    second = shared.apart(tanh, (first,))
    assert shared.apart(tanh, ()) is first
    assert shared.apart(first, ()) is first
    assert shared.apart(first, (first,)) is second is not first
    assert structure(first) == structure(second) == structure(tanh)
    reads = {0: element(3, DataType.FLOAT)}
    placed = shared.placed(first, reads, 0)
    assert shared.placed(first, {0: element(3, DataType.FLOAT)}, 0) is placed
    assert shared.placed(first, reads, 1) is not placed
    assert shared.placed(first, {0: element(2, DataType.FLOAT)}, 0) is not placed
    assert structure(placed) == structure(shared.placed(first, reads, 1))
