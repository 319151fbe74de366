"""ExpertFusion: gathered experts, their activation and the router's shares, as one MoE.

    shares, ids = TopK(Softmax(logits), k)    h = activation(w1[ids] @ x)    y = ReduceSum(shares * (w2[ids] @ h), k)
        ->  y = MoE(x, logits, w1, b1, w2, b2) {k, normalize_routing_weights, activation_type}

Shares that are made in another way, of a sigmoid or by groups, are brought to such logits: their logarithms in the
places of the chosen experts, a number that is never chosen in the others, and the result times the sum of a token's
shares. Exports gather the weights of every slot, a copy of an expert for each token: the operator reads them in
place. A gated activation becomes ``swiglu`` with its two halves interleaved, the one form that onnxruntime's CPU has:
the constant is written in that order. Where two logits are equal it is not said which of them is chosen, here or
there.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from ort_core.frozen import frozen
from ort_core.ir.rejection import Rejection
from ort_core.ir.types import DataType, TensorType
from ort_core.ir.values import Value
from ort_core.passes.fusions.dead_nodes import nodes_only_for
from ort_core.passes.fusions.expert_parts import (
    ExpertActivation,
    ExpertLayer,
    Routing,
    find_activation,
    find_layer,
    find_routing,
    find_tokens,
    same_order,
)
from ort_core.passes.fusions.operands import ONNXRUNTIME, dim, dtype_of, integers_of, refuse_dtype, same_dim
from ort_core.rewrite.matcher import Match
from ort_core.rewrite.patch import GraphPatch
from ort_core.rewrite.pattern import Pattern, one_of, op, var
from ort_core.rewrite.rule import RewriteRule

_FLOATS = frozenset({DataType.FLOAT})
NEVER_CHOSEN = -1e4  # the logarithm of the least float32 is -88, and exp of this beside any of them is 0
SCATTER_OPSET = 13  # since then ReduceSum takes its axes as an input, too


@frozen
class Experts:
    """A mixture of experts whose parts were found."""

    tokens: Value
    routing: Routing
    activation: ExpertActivation
    last: ExpertLayer


class ExpertFusion(RewriteRule[Experts]):
    """Fuse a mixture of experts to MoE."""

    name = "ExpertFusion"
    emits: ClassVar[tuple[tuple[str, str], ...]] = ((ONNXRUNTIME, "MoE"),)

    def build_pattern(self) -> Pattern:
        """Return the sum over the experts of a token; the rest is walked."""
        weighed = op("Mul", var("left"), var("right"), name="weighed")
        return op("ReduceSum", one_of(op("Reshape", weighed, var("slots")), weighed), var("axes"), name="sum")

    def check(self, match: Match) -> Experts | Rejection:
        """Find the layers, the activation and the router, and that they are of the same slots."""
        refusal = refuse_dtype(match.output, match.root, _FLOATS)
        if refusal is not None:
            return refusal
        summed = match.root.inputs[0]
        is_middle = integers_of(match["axes"]) in ((1,), (-2,)) and match.root.int_attribute("keepdims", 1) == 0
        if summed is None or summed.rank != 3 or not is_middle:
            return Rejection("the sum is not over the experts of (tokens, experts, size)", match.root)
        for result, shares in ((match["left"], match["right"]), (match["right"], match["left"])):
            last = next(filter(None, map(find_layer, same_order(result))), None)
            if last is not None and dim(shares, -1) == 1 and shares.rank == result.rank:
                return _find_experts(last, shares, summed, match)
        return Rejection("what is weighed is not a product with the gathered weights of experts", match.root)

    def rewrite(self, match: Match, bindings: Experts) -> GraphPatch:
        """Put one MoE there, with constants in its order."""
        patch = GraphPatch(match.model, match.root)
        routing, activation = bindings.routing, bindings.activation
        attributes: dict[str, object] = {
            "k": routing.count, "normalize_routing_weights": int(routing.is_normalized),
            "activation_type": activation.kind,
        }  # fmt: skip
        if activation.kind == "swiglu":
            attributes |= {"swiglu_fusion": 1, "activation_alpha": activation.alpha, "activation_beta": activation.beta}
            attributes |= {} if activation.limit is None else {"swiglu_limit": activation.limit}
        weights, bias = _first_layer(activation)
        logits = routing.logits or _drawn_logits(patch, routing, weights.shape[0])
        inputs = [
            bindings.tokens, logits, patch.constant(weights, "experts"), _constant(patch, bias),
            patch.constant(np.ascontiguousarray(bindings.last.weight_array()), "experts"),
            _constant(patch, bindings.last.bias_array()),
        ]  # fmt: skip
        while inputs[-1] is None:
            inputs.pop()
        result = patch.op("MoE", inputs, attributes, type=match.output.type, domain=ONNXRUNTIME)
        if routing.shares is not None:
            total = patch.op("ReduceSum", [_by_tokens(patch, routing.shares, routing.count), axis_of(patch)])
            result = patch.op("Mul", [result, total], type=match.output.type)
        if routing.factor != 1:
            factor = patch.constant(np.array(routing.factor, weights.dtype), "factor")
            result = patch.op("Mul", [result, factor], type=match.output.type)
        patch.replace(match.output, result)
        patch.remove(*nodes_only_for([match.root]))
        return patch


def _find_experts(last: ExpertLayer, shares: Value, summed: Value, match: Match) -> Experts | Rejection:
    activation = find_activation(last.rows)
    if activation is None:
        maker = last.rows.producer
        return Rejection("MoE has no such activation between layers of gathered weights", maker or match.root)
    routing = find_routing(shares, last.ids)
    if isinstance(routing, Rejection):
        return routing
    if routing.logits is None and match.opset() < SCATTER_OPSET:
        return Rejection(
            f"the shares are not a softmax of what chooses the experts, and opset {match.opset()} has only those",
            match.root,
        )
    layers = [layer for layer, _ in activation.parts]
    if any(each.ids is not last.ids or each.rows is not layers[0].rows for each in layers):
        return Rejection("the layers are not of the same slots", match.root)
    tokens = find_tokens(layers[0].rows, routing.count)
    if tokens is None:
        return Rejection(f"the rows are not those of tokens, repeated for {routing.count} experts", match.root)
    router = routing.logits or routing.ids
    assert router is not None
    if dim(summed, 1) != routing.count or not same_dim(dim(tokens, 0), dim(router, 0)):
        return Rejection("the numbers of tokens of the router and of the experts are not known to be equal", match.root)
    if any(dtype_of(each) is not dtype_of(match.output) for each in (tokens, routing.logits or shares, last.weights)):
        return Rejection("tokens, logits and weights are of several element types", match.root)
    return Experts(tokens, routing, activation, last)


def _by_tokens(patch: GraphPatch, value: Value, count: int) -> Value:
    """Return (tokens, k) of what has one element for each slot."""
    return patch.op("Reshape", [value, patch.constant(np.array([-1, count], np.int64), "tokens")])


def axis_of(patch: GraphPatch) -> Value:
    """Return the axis of the experts."""
    return patch.constant(np.array([1], np.int64), "experts_axis")


def _drawn_logits(patch: GraphPatch, routing: Routing, num_experts: int) -> Value:
    """Return logits (tokens, experts) of which the softmax over the chosen experts has the given proportions."""
    assert routing.shares is not None
    assert routing.ids is not None
    shares = _by_tokens(patch, routing.shares, routing.count)
    ids = _by_tokens(patch, routing.ids, routing.count)
    dtype = dtype_of(routing.shares)
    least = patch.constant(np.array(np.finfo(dtype.numpy).tiny, dtype.numpy), "least_share")
    logs = patch.op("Log", [patch.op("Max", [shares, least])])
    tokens = patch.op("Slice", [patch.op("Shape", [ids]), *(patch.constant(np.array([n], np.int64)) for n in (0, 1))])
    sizes = patch.op("Concat", [tokens, patch.constant(np.array([num_experts], np.int64), "experts")], {"axis": 0})
    others = patch.op("Expand", [patch.constant(np.array(NEVER_CHOSEN, dtype.numpy), "never_chosen"), sizes])
    return patch.op("ScatterElements", [others, ids, logs], {"axis": 1}, type=TensorType(dtype, (None, num_experts)))


def _first_layer(activation: ExpertActivation) -> tuple[np.ndarray, np.ndarray | None]:
    """Return weights (experts, out, in) and biases of the first layer; of a gated one with its halves interleaved."""
    weights = [layer.weight_array()[:, part] for layer, part in activation.parts]
    biases = [layer.bias_array() for layer, _ in activation.parts]
    chosen = [
        np.zeros(weight.shape[:2], weight.dtype) if bias is None else bias[:, part]
        for weight, bias, (_, part) in zip(weights, biases, activation.parts, strict=True)
    ]
    has_bias = any(each is not None for each in biases)
    return _interleaved(weights), _interleaved(chosen) if has_bias else None


def _interleaved(parts: list[np.ndarray]) -> np.ndarray:
    if len(parts) == 1:
        return np.ascontiguousarray(parts[0])
    return np.stack(parts, axis=2).reshape(parts[0].shape[0], -1, *parts[0].shape[2:])


def _constant(patch: GraphPatch, array: np.ndarray | None) -> Value | None:
    return None if array is None else patch.constant(np.ascontiguousarray(array), "expert_biases")
