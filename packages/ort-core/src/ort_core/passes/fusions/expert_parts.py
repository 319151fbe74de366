"""The parts of a mixture of experts in pieces: layers of gathered weights, the activation between, the router's shares.

Exports gather the weights of each chosen expert, so that every slot (a token and one of its k experts) has a matrix of
its own: ``Squeeze(MatMul(Gather(weights, ids), Unsqueeze(rows, -1)))``, or with rows on the left of weights that are
stored the other way. Every walk goes over pure operators; changes of axes between slots and (token, k) keep the order
of elements, so that it is enough to know where they begin.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ort_core.frozen import frozen
from ort_core.ir.nodes import Node
from ort_core.ir.rejection import Rejection
from ort_core.ir.values import Value
from ort_core.passes.fusions.attention_heads import peel_scale, producer_of
from ort_core.passes.fusions.operands import dim, fixed_dim, integers_of, number_of
from ort_core.rewrite.matcher import constant_of

_SAME_ORDER = ("Reshape", "Squeeze", "Unsqueeze", "Flatten")
_NEGLIGIBLE = 1e-9  # added to a sum of the k largest of a softmax, which is at least k / experts


@frozen
class ExpertLayer:
    """A layer of all experts: weights (experts, out, in), or (experts, in, out) where ``is_turned``, and biases."""

    weights: Value
    bias: Value | None
    is_turned: bool
    rows: Value
    ids: Value

    def weight_array(self) -> np.ndarray:
        """Return the weights as (experts, out, in)."""
        found = constant_of(self.weights)
        assert found is not None
        return found.array().transpose(0, 2, 1) if self.is_turned else found.array()

    def bias_array(self) -> np.ndarray | None:
        """Return the biases as (experts, out)."""
        found = constant_of(self.bias)
        return None if found is None else found.array()


@frozen
class ExpertActivation:
    """What is between the layers: MoE's name of it, and the halves of which a gated one is made.

    ``parts`` are the layers, and which outputs of each are the gate's, and the gated ones; one layer with all of its
    outputs where nothing is gated.
    """

    kind: str
    parts: tuple[tuple[ExpertLayer, slice], ...]
    alpha: float = 1.0
    beta: float = 0.0
    limit: float | None = None


@frozen
class Routing:
    """Logits (tokens, experts) of which the k largest choose; their shares add up to 1 or not, times ``factor``.

    Where shares are made in another way there are no such logits, but the ``shares`` and the ``ids`` (tokens, k).
    """

    logits: Value | None
    count: int
    is_normalized: bool
    factor: float
    shares: Value | None = None
    ids: Value | None = None


def same_order(value: Value) -> Iterator[Value]:
    """Yield a value, and those that it is another shape of."""
    yield value
    node = producer_of(value, *_SAME_ORDER)
    while node is not None and node.inputs[0] is not None:
        yield node.inputs[0]
        node = producer_of(node.inputs[0], *_SAME_ORDER)


def find_layer(value: Value) -> ExpertLayer | None:
    """Return the layer whose results for each slot a value has, with its biases."""
    added = producer_of(value, "Add")
    pairs = [(value, None)] if added is None else [added.inputs[:2], added.inputs[1::-1]]
    for result, addend in pairs:
        bias = None if addend is None else _gathered(addend, 2)
        if result is None or (addend is not None and bias is None):
            continue
        found = _product(result)
        if found is not None and (bias is None or bias[1] is found.ids):
            return ExpertLayer(found.weights, None if bias is None else bias[0], found.is_turned, found.rows, found.ids)
    return None


def _product(value: Value) -> ExpertLayer | None:
    squeeze = producer_of(value, "Squeeze", "Reshape")
    product = None if squeeze is None else producer_of(squeeze.inputs[0], "MatMul")
    if product is None or value.rank != 2 or product.output.rank != 3:
        return None
    left, right = product.inputs
    assert left is not None
    assert right is not None
    for table, column, is_turned in ((left, right, False), (right, left, True)):
        found = _gathered(table, 3)
        lifted = producer_of(column, "Unsqueeze", "Reshape")
        rows = None if lifted is None else lifted.inputs[0]
        if found is None or rows is None or rows.rank != 2 or dim(column, -2 if is_turned else -1) != 1:
            continue
        return ExpertLayer(found[0], None, is_turned, rows, found[1])
    return None


def _gathered(value: Value, rank: int) -> tuple[Value, Value] | None:
    """Return the constant of which each slot has the entry of its expert, and the vector of experts."""
    node = producer_of(value, "Gather", "GatherND")
    if node is None or node.int_attribute("axis", 0) != 0 or node.int_attribute("batch_dims", 0) != 0:
        return None
    table, ids = node.inputs[:2]
    found = constant_of(table)
    if table is None or ids is None or found is None or len(found.shape) != rank:
        return None
    if node.op_type == "GatherND":
        lifted = producer_of(ids, "Unsqueeze", "Reshape")
        if lifted is None or lifted.inputs[0] is None or ids.rank != 2 or dim(ids, 1) != 1:
            return None
        ids = lifted.inputs[0]
    return (table, ids) if ids.rank == 1 else None


def find_tokens(rows: Value, count: int) -> Value | None:
    """Return (tokens, hidden) of which each row was repeated ``count`` times in place."""
    node = producer_of(rows, "Reshape", "Flatten")
    repeated = None if node is None else producer_of(node.inputs[0], "Expand", "Tile")
    inner = None if repeated is None else repeated.inputs[0]
    if inner is None or repeated is None or inner.rank != 3 or dim(inner, 1) != 1 or rows.rank != 2:
        return None
    if integers_of(repeated.inputs[1]) != (1, count, 1):
        return None
    lifted = producer_of(inner, "Unsqueeze", "Reshape")
    tokens = None if lifted is None else lifted.inputs[0]
    if tokens is None or tokens.rank != 2 or fixed_dim(tokens, 1) != fixed_dim(inner, 2):
        return None
    return tokens


def find_activation(value: Value) -> ExpertActivation | None:
    """Return the activation, and the layers in front of it."""
    gated = producer_of(value, "Mul")
    if gated is not None:
        left, right = gated.inputs[:2]
        assert left is not None
        assert right is not None
        for gate, linear in ((left, right), (right, left)):
            found = _find_gated(gate, linear)
            if found is not None:
                return found
    rising, alpha = _silu_of(value)
    layer = None if rising is None or alpha != 1 else find_layer(rising)
    if layer is not None:
        return ExpertActivation("silu", ((layer, slice(None)),))
    node = value.producer
    kinds = {"Relu": "relu", "FastGelu": "gelu"}
    if node is None or node.input(0) is None or len(tuple(node.present_inputs())) != 1:
        return None
    is_tanh = node.op_type == "Gelu" and node.attribute("approximate") == "tanh"
    kind = "gelu" if is_tanh else kinds.get(node.op_type)
    layer = None if kind is None or node.inputs[0] is None else find_layer(node.inputs[0])
    return None if layer is None or kind is None else ExpertActivation(kind, ((layer, slice(None)),))


def _find_gated(gate: Value, linear: Value) -> ExpertActivation | None:
    rising, alpha = _silu_of(gate)
    if rising is None:
        return None
    inner, gate_limits = _clipped(rising)
    shifted, beta = _shifted(linear)
    linear, limits = _clipped(shifted)
    limit = limits[1]
    if gate_limits[1] != limit or gate_limits[0] is not None or (None if limit is None else -limit) != limits[0]:
        return None
    parts = (_part(inner), _part(linear))
    if parts[0] is None or parts[1] is None:
        return None
    return ExpertActivation("swiglu", (parts[0], parts[1]), alpha, beta, limit)


def _silu_of(value: Value) -> tuple[Value | None, float]:
    """Return x and alpha of ``x * Sigmoid(alpha * x)``."""
    node = value.producer
    if node is None:
        return None, 1.0
    if node.op_type in ("QuickGelu", "Swish"):
        found = node.attribute("alpha")
        return node.inputs[0], float(found) if isinstance(found, float) else {"QuickGelu": 1.702}.get(node.op_type, 1.0)
    if node.op_type != "Mul" or node.domain:
        return None, 1.0
    for x, gate in (node.inputs[:2], node.inputs[1::-1]):
        sigmoid = producer_of(gate, "Sigmoid")
        if sigmoid is None or sigmoid.inputs[0] is None or x is None:
            continue
        inner, alpha = (x, 1.0) if sigmoid.inputs[0] is x else peel_scale(sigmoid.inputs[0])
        if inner is x:
            return x, alpha
    return None, 1.0


def _shifted(value: Value) -> tuple[Value, float]:
    node = producer_of(value, "Add")
    if node is not None:
        for inner, number in ((node.inputs[0], number_of(node.inputs[1])), (node.inputs[1], number_of(node.inputs[0]))):
            if number is not None and inner is not None:
                return inner, number
    return value, 0.0


def _clipped(value: Value) -> tuple[Value, tuple[float | None, float | None]]:
    """Return what was clipped, and the lowest and the highest number."""
    node = producer_of(value, "Clip", "Min")
    inner = None if node is None else node.inputs[0]
    if node is None or inner is None:
        return value, (None, None)
    if node.op_type == "Min":
        number = number_of(node.input(1))
        return (value, (None, None)) if number is None or len(node.inputs) != 2 else (inner, (None, number))
    low, high = number_of(node.input(1)), number_of(node.input(2))
    if (node.input(1) is not None and low is None) or (node.input(2) is not None and high is None):
        return value, (None, None)
    return inner, (low, high)


def _part(value: Value) -> tuple[ExpertLayer, slice] | None:
    """Return the layer, and which of its outputs a value has: all, a half, or every other one."""
    node = producer_of(value, "Split", "Slice")
    source = None if node is None else node.inputs[0]
    layer = find_layer(value if source is None else source)
    width = None if layer is None or source is None else fixed_dim(source, -1)
    if layer is None or node is None or source is None:
        return None if layer is None else (layer, slice(None))
    if not width or width % 2:
        return None
    found = _half_of_split(node, value, width) if node.op_type == "Split" else _half_of_slice(node, width)
    return None if found is None else (layer, found)


def _half_of_split(node: Node, value: Value, width: int) -> slice | None:
    outputs = tuple(node.present_outputs())
    is_last = node.int_attribute("axis", 0) in (-1, 1)
    if not is_last or len(outputs) != 2 or any(fixed_dim(each, -1) != width // 2 for each in outputs):
        return None
    return slice(None, width // 2) if outputs[0] is value else slice(width // 2, None)


def _half_of_slice(node: Node, width: int) -> slice | None:
    numbers = [integers_of(each) for each in node.inputs[1:]]
    if len(numbers) < 3 or any(each is None or len(each) != 1 for each in numbers):
        return None
    start, stop, axis, step = (*(each[0] for each in numbers if each is not None), 1)[:4]
    if axis not in (-1, 1) or step not in (1, 2) or start < 0 or stop < 0:
        return None
    found = slice(start, min(stop, width), step)
    halves = {
        (0, width // 2, 1): slice(None, width // 2), (width // 2, width, 1): slice(width // 2, None),
        (0, width, 2): slice(0, None, 2), (1, width, 2): slice(1, None, 2),
    }  # fmt: skip
    return halves.get((found.start, found.stop, found.step))


def find_routing(shares: Value, ids: Value) -> Routing | Rejection:
    """Return how experts ``ids`` (slots) were chosen, and that ``shares`` are the softmax of the same choice."""
    chosen = next((each for each in same_order(ids) if producer_of(each, "TopK") is not None), None)
    top = None if chosen is None else chosen.producer
    if top is None or chosen is not top.outputs[1]:
        return Rejection("the experts are not the places of the k largest numbers", ids.producer)
    count = integers_of(top.inputs[1])
    largest = top.int_attribute("largest", 1) == 1 and top.int_attribute("axis", -1) in (-1, 1)
    if count is None or len(count) != 1 or not largest or top.output.rank != 2:
        return Rejection("the experts are not the k largest of a row, with a fixed k", top)
    value, factor = peel_scale(next(each for each in _behind(shares)))
    for weights in same_order(value):
        found = _softmax_of(weights, top)
        if found is not None:
            return Routing(found[0], count[0], found[1], factor)
    if is_never_negative(shares):
        return Routing(None, count[0], True, 1.0, shares, chosen)
    return Rejection("the shares of the experts are not known to be zero or more", top)


_NEVER_NEGATIVE = frozenset({"Sigmoid", "Softmax", "Exp", "Relu", "Softplus", "HardSigmoid"})
_KEEP_SIGN = frozenset(
    {
        *_SAME_ORDER, "Gather", "GatherElements", "GatherND", "Transpose", "Cast", "Slice", "Split", "TopK",
        "ReduceSum", "ReduceMax", "ReduceMean", "Identity", "Expand",
    }
)  # fmt: skip
_COMBINE = frozenset({"Add", "Mul", "Div", "Min"})
_SIGN_STEPS = 12  # between a router's shares and the function that made them, and some more


def is_never_negative(value: Value | None, steps: int = _SIGN_STEPS) -> bool:
    """Return whether no element of a value is known to be below zero, by the operators that made it."""
    found = constant_of(value)
    if found is not None:
        return found.dtype.is_float and bool((found.array() >= 0).all())
    node = None if value is None else value.producer
    if node is None or node.domain or not steps or (node.op_type == "TopK" and value is not node.outputs[0]):
        return False
    if node.op_type in _NEVER_NEGATIVE:
        return True
    if node.op_type in _KEEP_SIGN:
        return is_never_negative(node.inputs[0], steps - 1)
    if node.op_type == "Clip" and node.input(1) is not None:
        return all(is_never_negative(each, 1) for each in node.inputs[1:] if each is not None)
    return node.op_type in _COMBINE and all(is_never_negative(each, steps - 1) for each in node.inputs)


def _behind(shares: Value) -> Iterator[Value]:
    """Yield the first value of another shape that is no mere change of axes."""
    *_, last = same_order(shares)
    yield last


def _softmax_of(weights: Value, top: Node) -> tuple[Value, bool] | None:
    """Return the logits of the shares, and whether those of a token add up to 1."""
    node = producer_of(weights, "Softmax")
    if node is not None and node.inputs[0] is top.outputs[0] and _is_over_last(node):
        return (top.inputs[0], True) if top.inputs[0] is not None else None
    first = producer_of(top.inputs[0], "Softmax")
    if first is None or first.inputs[0] is None or not _is_over_last(first):
        return None
    if weights is top.outputs[0]:
        return first.inputs[0], False
    quotient = producer_of(weights, "Div")
    if quotient is None or quotient.inputs[0] is not top.outputs[0] or quotient.inputs[1] is None:
        return None
    total, addend = _shifted(quotient.inputs[1])
    added = producer_of(total, "ReduceSum")
    axes = None if added is None else integers_of(added.input(1)) or added.ints_attribute("axes")
    is_sum = added is not None and added.inputs[0] is top.outputs[0] and added.int_attribute("keepdims", 1) == 1
    return (first.inputs[0], True) if is_sum and axes in ((-1,), (1,)) and 0 <= addend <= _NEGLIGIBLE else None


def _is_over_last(node: Node) -> bool:
    return node.output.rank == 2 and node.int_attribute("axis", -1 if (node.opset or 13) >= 13 else 1) in (-1, 1)
