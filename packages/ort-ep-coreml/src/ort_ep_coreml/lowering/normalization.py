"""Normalizations, of ONNX and of com.microsoft: MIL's own where it means the same, else their formula."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ort_core.plugin.claims import dtype_of
from ort_core.plugin.ir import DataType, Node
from ort_ep_coreml.lowering.conditions import only_attributes, only_outputs, ranks
from ort_ep_coreml.lowering.emission import EmissionState, axis_of, mil_type
from ort_ep_coreml.lowering.lowering_context import LoweringContext, rank_of, sizes_of
from ort_ep_coreml.lowering.rule import Rule
from ort_ep_coreml.lowering.terms import Term, first, term
from ort_ep_coreml.mil import Operand

_FLOAT = np.dtype(np.float32)


def _epsilon(node: Node, default: float = 1e-5) -> float:
    return node.float_attribute("epsilon", default)


def widened(x: Term) -> Term:
    """Return elements as float32, in which ONNX computes statistics of half precision."""
    return x if x.dtype == _FLOAT else x.cast(_FLOAT, "fp32")


def narrowed(x: Term, like: Term) -> Term:
    """Return elements in the type of another term."""
    return x if x.dtype == like.dtype else x.cast(like.dtype, "fp16")


def _centered(x: Term, axes: Sequence[int]) -> tuple[Term, Term, Term]:
    """Return (elements less their mean, the mean, the variance) along axes, in float32."""
    wide = widened(x)
    mean = wide.reduced("reduce_mean", *axes)
    moved = wide - mean
    return moved, mean, (moved * moved).reduced("reduce_mean", *axes)


def _standardized(x: Term, axes: Sequence[int], epsilon: float) -> Term:
    moved, _, variance = _centered(x, axes)
    return narrowed(moved / (variance + epsilon).do("sqrt"), x)


def _per_channel(to: EmissionState, node: Node, place: int) -> Term:
    """Return a vector that belongs to the channels of the first input, along its axis 1."""
    ones = rank_of(node.input(0)) - 2
    return term(to, node.input(place)).reshaped(-1, *[1] * ones) if ones > 0 else term(to, node.input(place))


def _batch_norm(to: EmissionState, node: Node) -> Operand:
    x, epsilon = first(to, node), _epsilon(node)
    values = node.inputs[1:5]
    is_own = 3 <= rank_of(node.input(0)) <= 5 and all(to.context.constant(value) is not None for value in values)
    if is_own:
        gamma, beta, mean, variance = (to.operand(value) for value in values)
        found = x.do("batch_norm", mean=mean, variance=variance, gamma=gamma, beta=beta, epsilon=x.number(epsilon))
        return found.operand
    scale, bias, mean_, variance_ = (_per_channel(to, node, place) for place in (1, 2, 3, 4))
    return ((x - mean_) / (variance_ + epsilon).do("sqrt") * scale + bias).operand


def _instance_norm(to: EmissionState, node: Node) -> Operand:
    x, rank = first(to, node), rank_of(node.input(0))
    if rank <= 4 and all(to.context.constant(node.input(place)) is not None for place in (1, 2)):
        gamma, beta = to.operand(node.input(1)), to.operand(node.input(2))
        return x.do("instance_norm", gamma=gamma, beta=beta, epsilon=x.number(_epsilon(node))).operand
    found = _standardized(x, range(2, rank), _epsilon(node))
    return (found * _per_channel(to, node, 1) + _per_channel(to, node, 2)).operand


def _layer_norm(to: EmissionState, node: Node) -> list[Operand]:
    x, value = first(to, node), node.input(0)
    axes = tuple(range(axis_of(node, value, -1), rank_of(value)))
    found = _scaled_layer(to, node, x, axes, (1, 2), _epsilon(node))
    results: list[Operand] = [found.operand]
    if len(node.outputs) > 1:
        _, mean, variance = _centered(x, axes)
        results += [mean.operand, (1.0 / (variance + _epsilon(node)).do("sqrt")).operand]
    return results


def _scaled_layer(
    to: EmissionState, node: Node, x: Term, axes: Sequence[int], places: tuple[int, int], epsilon: float
) -> Term:
    if x.dtype == _FLOAT:
        found = x.do("layer_norm", axes=np.array(axes, np.int32), epsilon=x.number(epsilon))
    else:
        found = _standardized(x, axes, epsilon)
    found = found * term(to, node.input(places[0]))
    return found if node.input(places[1]) is None else found + term(to, node.input(places[1]))


def root_mean_square(x: Term, axes: Sequence[int], epsilon: float) -> Term:
    """Return elements over the root of the mean of their squares, along axes."""
    wide = widened(x)
    mean = (wide * wide).reduced("reduce_mean", *axes)
    return narrowed(wide / (mean + epsilon).do("sqrt"), x)


def _rms_norm(to: EmissionState, node: Node) -> Operand:
    x, value = first(to, node), node.input(0)
    axes = range(axis_of(node, value, -1), rank_of(value))
    return (root_mean_square(x, axes, _epsilon(node)) * term(to, node.input(1))).operand


def _skip_norm(to: EmissionState, node: Node) -> list[Operand]:
    """Lower (Simplified)SkipLayerNormalization: inputs, a skip and a bias are added, then normalized."""
    is_simple = node.op_type == "SkipSimplifiedLayerNormalization"
    total, bias = first(to, node) + term(to, node.input(1)), node.input(3 if is_simple else 4)
    total = total if bias is None else total + term(to, bias)
    axes, epsilon = (rank_of(node.input(0)) - 1,), _epsilon(node, 1e-12)
    if is_simple:
        found = root_mean_square(total, axes, epsilon) * term(to, node.input(2))
    else:
        found = _scaled_layer(to, node, total, axes, (2, 3), epsilon)
    return [found.operand, found.operand, found.operand, total.operand]


def _group_norm(to: EmissionState, node: Node) -> Operand:
    x, groups = first(to, node), node.int_attribute("num_groups", 1)
    _, channels, *spatial = sizes_of(node.input(0))  # type: ignore[arg-type]  # required
    assert isinstance(channels, int), "_groups_are_known was asked"
    sizes = [size for size in spatial if isinstance(size, int)]
    grouped = x.reshaped(-1, groups, channels // groups * int(np.prod(sizes)))
    found = _standardized(grouped, (2,), _epsilon(node))
    if to.context.opset(node) < 21:  # one scale for each group
        scale, bias = (term(to, node.input(place)).reshaped(-1, 1) for place in (1, 2))
        return (found * scale + bias).reshaped(-1, channels, *sizes).operand
    found = found.reshaped(-1, channels, *sizes)
    return (found * _per_channel(to, node, 1) + _per_channel(to, node, 2)).operand


def _groups_are_known(context: LoweringContext, node: Node) -> str | None:
    sizes = sizes_of(node.input(0))  # type: ignore[arg-type]  # required
    return None if all(isinstance(size, int) for size in sizes[1:]) else "GroupNormalization of sizes that are open"


def _mean_variance(to: EmissionState, node: Node) -> Operand:
    x, rank = first(to, node), rank_of(node.input(0))
    axes = [axis % rank for axis in node.ints_attribute("axes") or (0, 2, 3)]
    moved, _, variance = _centered(x, axes)
    return narrowed(moved / (variance.do("sqrt") + 1e-9), x).operand


def _lp_norm(to: EmissionState, node: Node) -> Operand:
    x, axis = first(to, node), axis_of(node, node.input(0), -1)
    kind = "reduce_l1_norm" if node.int_attribute("p", 2) == 1 else "reduce_l2_norm"
    size = x.reduced(kind, axis)
    is_zero = size.with_("equal", 0)
    safe = Term(to, to.emit("select", cond=is_zero.operand, a=x.number(1), b=size.operand), x.dtype)
    return (x / safe).operand


def _local_response(to: EmissionState, node: Node) -> Operand:
    """Lower to a product of the squares with the matrix of neighbors along the channels."""
    x, count, rank = first(to, node), node.int_attribute("size", 1), rank_of(node.input(0))
    channels = sizes_of(node.input(0))[1]  # type: ignore[arg-type]  # required
    assert isinstance(channels, int), "_channels_are_known was asked"
    away = np.arange(channels)[:, None] - np.arange(channels)  # an output channel less an input channel
    near = (away <= (count - 1) // 2) & (-away <= count // 2)
    order = (0, *range(2, rank), 1)
    total = ((x * x).transposed(*order) @ near.T.astype(x.dtype)).transposed(0, rank - 1, *range(1, rank - 1))
    alpha, beta = node.float_attribute("alpha", 1e-4), node.float_attribute("beta", 0.75)
    divisor = (total * (alpha / count) + node.float_attribute("bias", 1.0)).with_("pow", beta)
    return (x / divisor).operand


def _channels_are_known(context: LoweringContext, node: Node) -> str | None:
    channels = sizes_of(node.input(0))[1]  # type: ignore[arg-type]  # required
    return None if isinstance(channels, int) else "LRN over channels whose number is open"


def _computes_in_float(context: LoweringContext, node: Node) -> str | None:
    is_half = dtype_of(node.input(0)) is DataType.FLOAT16 or mil_type(node.input(0)) != "fp32"
    return "statistics of half precision are not given" if is_half and node.outputs[1:] else None


_EVALUATES = only_attributes(training_mode=0)

NORMALIZATION: Mapping[str, Rule] = {
    "BatchNormalization": Rule(_batch_norm, conditions=(_EVALUATES, ranks(2, 5)), required=5, oldest=7),
    "InstanceNormalization": Rule(_instance_norm, conditions=(ranks(3, 5),), required=3, oldest=6),
    "LayerNormalization": Rule(_layer_norm, conditions=(_computes_in_float,), required=2, outputs=3),
    "RMSNormalization": Rule(_rms_norm, required=2),
    "SimplifiedLayerNormalization": Rule(_rms_norm, required=2),
    "GroupNormalization": Rule(_group_norm, conditions=(ranks(3, 5), _groups_are_known), required=3),
    "MeanVarianceNormalization": Rule(_mean_variance, oldest=9),
    "LpNormalization": Rule(_lp_norm),
    "LRN": Rule(_local_response, conditions=(ranks(3, 5), _channels_are_known)),
}
"""Rules by operator of ``ai.onnx``."""

CONTRIBUTED_NORMALIZATION: Mapping[str, Rule] = {
    "SkipLayerNormalization": Rule(_skip_norm, conditions=(only_outputs(0, 3),), required=3, outputs=4),
    "SkipSimplifiedLayerNormalization": Rule(_skip_norm, conditions=(only_outputs(0, 3),), required=3, outputs=4),
}
"""Rules by operator of ``com.microsoft``."""
