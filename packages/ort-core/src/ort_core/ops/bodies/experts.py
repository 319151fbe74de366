"""Mixtures of experts as bodies: every expert computes every token, and a table of shares picks what counts.

    shares[t, e] = weight of expert e for token t, 0 where it is not among the k chosen
    y[t] = sum over e of shares[t, e] * fc2[e] @ activation(fc1[e] @ x[t], fc3[e] @ x[t])

A kernel computes the chosen experts alone. So there is a body only where computing all of them costs no more than
``MOST_WORK`` times that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ort_core.frozen import frozen
from ort_core.ir.types import DataType
from ort_core.ir.values import Value
from ort_core.ops.bodies.activations import Results, silu, tanh_gelu
from ort_core.ops.bodies.block_quantized import constant_codes, known_size
from ort_core.ops.bodies.writer import BodyWriter, NoBody
from ort_core.ops.expert_shapes import Sizes, find_declared_shapes

MOST_WORK = 8
FLOAT = DataType.FLOAT
_ACTIVATIONS: dict[str, Callable[[BodyWriter, Value], Value]] = {
    "relu": lambda w, x: w.op("Relu", x),
    "gelu": lambda w, x: tanh_gelu(w, x, FLOAT),
    "silu": silu,
    "identity": lambda w, x: x,
}


@frozen
class _Layer:
    """One layer of all experts: weights (experts, in, out), and a bias (experts, 1, out) where there is one."""

    weights: Value
    bias: Value | None

    def of(self, w: BodyWriter, x: Value) -> Value:
        return w.sum(w.op("MatMul", x, self.weights), self.bias)


def mixture_of_experts(w: BodyWriter) -> Results:
    """MoE: float experts."""
    _require_few(w, 2)
    declared = _declared(w)
    layers = [_float_layer(w, index, declared.get(index)) if w.has(index) else None for index in (2, 4, 6)]
    return _mixed(w, layers, None)


def quantized_mixture_of_experts(w: BodyWriter) -> Results:
    """QMoE: experts of 2, 4 or 8 bits, with one scale for a row or for a block of one."""
    if w.string_of("quant_type", "int") != "int":
        raise NoBody(f"experts of quant_type {w.string_of('quant_type')!r} have no body")
    if any(w.has(index) for index in range(15, 21)):
        raise NoBody("scales of all experts, or of activations, have no body")
    _require_few(w, 2)
    places = ((2, 3, 4, 11), (5, 6, 7, 12), (8, 9, 10, 13))
    layers = [
        _packed_layer(w, place, f"fc{number}") if w.has(place[0]) else None for number, place in enumerate(places, 1)
    ]
    return _mixed(w, layers, w.find_wide(14))


def _require_few(w: BodyWriter, index: int) -> None:
    experts, chosen = known_size(w.shape(index), 0), w.int_of("k", 1)
    if not 0 < chosen <= experts:
        raise NoBody(f"k is {chosen} of {experts} experts")
    if experts > MOST_WORK * chosen:
        raise NoBody(f"a body computes all {experts} experts for each token, a kernel {chosen}")
    if w.int_of("use_sparse_mixer"):
        raise NoBody("experts chosen by the sparse mixer have no body")


def _declared(w: BodyWriter) -> Mapping[int, Sizes]:
    """Return the schema's shapes of the weights whose file gives others for the same bytes, by input."""
    hidden = known_size(w.shape(0), w.rank(0) - 1)
    first, second = ([known_size(w.shape(index), axis) for axis in range(3)] for index in (2, 4))
    is_fused = w.string_of("activation_type", "relu") == "swiglu" and bool(w.int_of("swiglu_fusion"))
    found = find_declared_shapes(hidden, first, second, is_fused=is_fused)
    return {} if found is None else dict(zip((2, 4), found, strict=True))


def _float_layer(w: BodyWriter, index: int, declared: Sizes | None) -> _Layer:
    weights = w.wide(index)
    rows = weights if declared is None else w.reshape(weights, *declared)
    return _Layer(w.transpose(rows, 0, 2, 1), _bias(w, index + 1))


def _bias(w: BodyWriter, index: int) -> Value | None:
    bias = w.find_wide(index)
    return None if bias is None else w.unsqueeze(bias, 1)


def _packed_layer(w: BodyWriter, place: tuple[int, int, int, int], name: str) -> _Layer:
    codes, scales, bias, zeros = place
    bits = w.int_of(f"{name}_expert_weight_bits") or w.int_of("expert_weight_bits", 4)
    experts, rows, packed = (known_size(w.shape(codes), axis) for axis in range(3))
    width = packed * 8 // bits
    blocks = known_size(w.shape(scales), 2) if w.rank(scales) == 3 else 1
    block = (w.int_of("block_size") or width // blocks) if blocks > 1 else width
    if block * blocks != width:
        raise NoBody(f"rows of {width} are no {blocks} whole blocks of {block}")
    whole = w.reshape(constant_codes(w, codes, bits, experts * rows, width), experts, rows, blocks, block)
    middle = _middle(w, zeros, bits, (experts, rows, blocks), is_blocked=w.rank(scales) == 3)
    factors = w.reshape(w.wide(scales), experts, rows, blocks, 1)
    weights = w.reshape(w.op("Mul", w.op("Sub", whole, middle), factors), experts, rows, width)
    return _Layer(w.transpose(weights, 0, 2, 1), _bias(w, bias))


def _middle(w: BodyWriter, index: int, bits: int, sizes: tuple[int, int, int], *, is_blocked: bool) -> Value:
    """Return zero points that broadcast to (experts, rows, blocks, block); the middle code where there are none."""
    if not w.has(index):
        return w.constant(float(1 << (bits - 1)), FLOAT)
    experts, rows, blocks = sizes
    if is_blocked and w.rank(index) == 3:
        return w.reshape(constant_codes(w, index, bits, experts * rows, blocks), experts, rows, blocks, 1)
    return w.reshape(constant_codes(w, index, bits, experts, rows), experts, rows, 1, 1)


def _mixed(w: BodyWriter, layers: list[_Layer | None], mixing: Value | None) -> Results:
    first, second, third = layers
    if first is None or second is None:
        raise NoBody("experts without their first or second layer have no body")
    width = known_size(w.shape(0), w.rank(0) - 1)
    tokens = w.reshape(w.wide(0), 1, -1, width)
    hidden = _activated(w, first.of(w, tokens), None if third is None else third.of(w, tokens))
    shares, is_chosen = _shares(w, mixing)
    weighted = w.op("Mul", second.of(w, hidden), shares)
    kept = w.op("Where", is_chosen, weighted, w.constant(0, FLOAT))  # no number of an expert that is not asked counts
    total = w.reduce("ReduceSum", kept, [0], keepdims=0)
    return [w.narrow(w.op("Reshape", total, w.op("Shape", w.input(0))))]


def _shares(w: BodyWriter, mixing: Value | None) -> tuple[Value, Value]:
    """Return shares and whether they count, both (experts, tokens, 1)."""
    logits = w.wide(1)
    _, chosen = w.ops("TopK", logits, w.ints(w.int_of("k", 1)), outputs=2, axis=1)
    table = w.op("Softmax", logits, axis=1) if mixing is None else mixing
    weights = w.op("GatherElements", table, chosen, axis=1)
    one, none = w.constant(1, FLOAT), w.constant(0, FLOAT)
    if w.int_of("normalize_routing_weights"):
        total = w.reduce("ReduceSum", weights, [1])
        weights = w.op("Div", weights, w.op("Where", w.op("Equal", total, none), one, total))
    empty = w.op("Expand", none, w.op("Shape", logits))
    ones = w.op("Expand", one, w.op("Shape", chosen))
    marks = w.op("Greater", w.op("ScatterElements", empty, chosen, ones, axis=1), none)
    placed = w.op("ScatterElements", empty, chosen, weights, axis=1)
    return w.unsqueeze(w.transpose(placed, 1, 0), 2), w.unsqueeze(w.transpose(marks, 1, 0), 2)


def _activated(w: BodyWriter, first: Value, third: Value | None) -> Value:
    kind = w.string_of("activation_type", "relu")
    if kind == "swiglu":
        return _swiglu(w, *_gate_and_linear(w, first, third))
    if kind not in _ACTIVATIONS:
        raise NoBody(f"the activation {kind!r} has no body")
    active = _ACTIVATIONS[kind](w, first)
    return active if third is None else w.op("Mul", active, third)


def _gate_and_linear(w: BodyWriter, first: Value, third: Value | None) -> tuple[Value, Value]:
    fusion = w.int_of("swiglu_fusion")
    if fusion == 1:
        return w.slice(first, 2, 0, step=2), w.slice(first, 2, 1, step=2)
    if fusion == 2:
        half = known_size(w.shape(2), 1) // 2
        return w.slice(first, 2, 0, half), w.slice(first, 2, half)
    if third is None:
        raise NoBody("swiglu needs fc3 where swiglu_fusion is 0")
    return first, third


def _swiglu(w: BodyWriter, gate: Value, linear: Value) -> Value:
    """Return gate * sigmoid(alpha * gate) * (linear + beta), with the limits that attributes set."""
    limit, is_late = w.optional_float_of("swiglu_limit"), w.int_of("swiglu_limit_after_activation") == 1
    alpha, beta = w.constant(w.float_of("activation_alpha"), FLOAT), w.constant(w.float_of("activation_beta"), FLOAT)
    if limit is not None and not is_late:
        gate = w.op("Min", gate, w.constant(limit, FLOAT))
    active = w.op("Mul", gate, w.op("Sigmoid", w.op("Mul", gate, alpha)))
    if limit is not None:
        active = w.op("Min", active, w.constant(limit, FLOAT)) if is_late else active
        linear = w.op("Clip", linear, w.constant(-limit, FLOAT), w.constant(limit, FLOAT))
    return w.op("Mul", active, w.op("Add", linear, beta))
