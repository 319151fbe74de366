"""Experts whose weights are gathered for each slot become MoE, with constants in its order; others say why not."""

from __future__ import annotations

import numpy as np
import pytest
from fusion_check import fires, ops_of, stays

from ort_core.ir.model import Model
from ort_core.ir.traversal import walk
from ort_core.passes.base import Level, RulePass
from ort_core.passes.fusions.experts import ExpertFusion

EXPERTS, HIDDEN, INNER = 4, 8, 6
RULE = RulePass("ExpertFusion", [ExpertFusion()], Level.EXTENDED)
ROUTERS = {
    "normalized behind": "p = Softmax <axis = -1> (logits) s, i = TopK(p, k) t = ReduceSum(s, last) w = Div(s, t)",
    "not normalized": "p = Softmax <axis = -1> (logits) w, i = TopK(p, k)",
    "of the largest": "s, i = TopK(logits, k) w = Softmax <axis = -1> (s)",
    "scaled": "p = Softmax <axis = -1> (logits) s, i = TopK(p, k) w = Mul(s, factor)",
}
ROWS = "xu = Unsqueeze(x, one) xe = Expand(xu, repeats) rows = Reshape(xe, rowshape) ids = Reshape(i, last)"
COLUMNS = "g1 = Gather <axis = 0> (w1, ids) r1 = Unsqueeze(rows, last) m1 = MatMul(g1, r1) f = Squeeze(m1, last)"
TURNED = "g1 = Gather <axis = 0> (w1, ids) r1 = Unsqueeze(rows, one) m1 = MatMul(r1, g1) h1 = Squeeze(m1, one) \
bg = Gather <axis = 0> (b1, ids) f = Add(h1, bg)"
BY_PLACE = COLUMNS.replace("g1 = Gather <axis = 0> (w1, ids)", "iu = Unsqueeze(ids, last) g1 = GatherND(w1, iu)")
HALVES = "a, b = Split <axis = -1, num_outputs = 2> (f)"
EVERY_OTHER = "a = Slice(f, zero, end, one, two) b = Slice(f, one, end, one, two)"
SILU = "e = Sigmoid(a) c = Mul(a, e) h = Mul(c, b)"
CLIPPED = "a2 = Clip(a, , high) b2 = Clip(b, low, high) z = Mul(a2, alpha) e = Sigmoid(z) c = Mul(a2, e) \
b3 = Add(b2, beta) h = Mul(b3, c)"
LAST = "g2 = Gather <axis = 0> (w2, ids) r2 = Unsqueeze(h, last) m2 = MatMul(g2, r2) o = Squeeze(m2, last)"
SUM = "wf = Reshape(w, last) wu = Unsqueeze(wf, last) q = Mul(o, wu) s3 = Reshape(q, slots) \
y = ReduceSum <keepdims = 0> (s3, one)"
TOKENS = "o3 = Reshape(o, slots) wu = Unsqueeze(w, last) q = Mul(o3, wu) y = ReduceSum <keepdims = 0> (q, one)"


def _constant(name: str, *shape: int, seed: int) -> str:
    numbers = np.random.default_rng(seed).standard_normal(shape).astype(np.float32).reshape(-1) / 3
    return f"float[{','.join(map(str, shape))}] {name} = {{{','.join(f'{each:.7g}' for each in numbers)}}}"


def _model(*body: str, outputs: int = 2 * INNER, is_turned: bool = False) -> str:
    first = (HIDDEN, outputs) if is_turned else (outputs, HIDDEN)
    constants = [
        _constant("w1", EXPERTS, *first, seed=1), _constant("w2", EXPERTS, HIDDEN, INNER, seed=2),
        _constant("b1", EXPERTS, outputs, seed=3),
        "int64[1] k = {2}, int64[1] last = {-1}, int64[1] one = {1}, int64[1] two = {2}, int64[1] zero = {0}",
        "int64[1] end = {9223372036854775807}, int64[3] repeats = {1,2,1}, int64[2] rowshape = {-1,8}",
        "int64[3] slots = {-1,2,8}, float high = {0.5}, float low = {-0.5}, float alpha = {1.702}, float beta = {1}",
        "float factor = {2.5}",
    ]  # fmt: skip
    head = f"g (float[T,{HIDDEN}] x, float[T,{EXPERTS}] logits) => (float[T,{HIDDEN}] y) <{', '.join(constants)}>"
    return f"{head} {{ {' '.join(body)} }}"


def _attributes(model: Model) -> dict[str, object]:
    (node,) = [each for each in walk(model.graph) if each.op_type == "MoE"]
    return {name: node.attribute(name) for name in node.attributes}


@pytest.mark.parametrize("end", [SUM, TOKENS], ids=["of slots", "of tokens"])
@pytest.mark.parametrize("router", ROUTERS)
def test_gathered_experts_become_one_node_whatever_the_router(router: str, end: str) -> None:
    model = _model(ROUTERS[router], ROWS, COLUMNS, HALVES, SILU, LAST, end)
    expected = ["MoE", "Mul"] if router == "scaled" else ["MoE"]
    fused = fires(RULE, model, expected, opset=18, sizes={"T": 5})
    attributes = _attributes(fused)
    assert (attributes["k"], attributes["activation_type"], attributes["swiglu_fusion"]) == (2, "swiglu", 1)
    assert attributes["normalize_routing_weights"] == int(router not in ("not normalized", "scaled"))


def test_weights_on_the_right_their_biases_and_limits_are_kept() -> None:
    model = _model(ROUTERS["of the largest"], ROWS, TURNED, EVERY_OTHER, CLIPPED, LAST, SUM, is_turned=True)
    attributes = _attributes(fires(RULE, model, ["MoE"], opset=18, sizes={"T": 5}))
    assert attributes["swiglu_limit"] == pytest.approx(0.5)
    assert (attributes["activation_alpha"], attributes["activation_beta"]) == (pytest.approx(1.702), 1.0)


@pytest.mark.parametrize(("activation", "kind"), [("h = Relu(f)", "relu"), ("e = Sigmoid(f) h = Mul(f, e)", "silu")])
def test_layers_without_a_gate_keep_their_activation(activation: str, kind: str) -> None:
    model = _model(ROUTERS["normalized behind"], ROWS, BY_PLACE, activation, LAST, SUM, outputs=INNER)
    assert _attributes(fires(RULE, model, ["MoE"], opset=18, sizes={"T": 5}))["activation_type"] == kind


@pytest.mark.parametrize(
    ("old", "new", "because"),
    [
        ("p = Softmax", "p = LogSoftmax", "not known to be zero or more"),
        ("TopK(p, k)", "TopK <largest = 0> (p, k)", "not the k largest"),
        ("xe = Expand(xu, repeats)", "xt = Concat <axis = 1> (xu, xu) xe = Neg(xt)", "are not those of tokens"),
        ("Sigmoid(a)", "HardSigmoid(a)", "no such activation"),
        ("Clip(b, low, high)", "Clip(b, low, alpha)", "no such activation"),
        ("g2 = Gather <axis = 0> (w2, ids)", "turned = Neg(ids) g2 = Gather <axis = 0> (w2, turned)", "not the places"),
        ("(s3, one)", "(s3, zero)", "not over the experts"),
    ],
)  # fmt: skip
def test_what_is_no_such_mixture_stays_and_says_why(old: str, new: str, because: str) -> None:
    gate = CLIPPED if "Clip" in old else SILU
    body = _model(ROUTERS["normalized behind"], ROWS, COLUMNS, HALVES, gate, LAST, SUM)
    assert old in body
    stays(RULE, body.replace(old, new, 1), opset=18, because=because)


def test_gates_and_the_others_may_have_weights_of_their_own() -> None:
    two = f"{COLUMNS} g3 = Gather <axis = 0> (w1, ids) m3 = MatMul(g3, r1) b = Squeeze(m3, last)"
    model = _model(ROUTERS["of the largest"], ROWS, two, "e = Sigmoid(f) c = Mul(f, e) h = Mul(c, b)", LAST, SUM,
                   outputs=INNER)  # fmt: skip
    assert ops_of(fires(RULE, model, opset=18, sizes={"T": 3})) == ["MoE"]
