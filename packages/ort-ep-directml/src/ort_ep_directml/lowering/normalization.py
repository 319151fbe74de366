"""Normalizations. What DirectML has no operator for is a few of them, in float32 where ONNX says so."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from ort_core.plugin.ir import DataType, Node
from ort_ep_directml.lowering.activations import times
from ort_ep_directml.lowering.attributes import axis_of
from ort_ep_directml.lowering.elementwise import binary, unary
from ort_ep_directml.lowering.emission import EmissionState
from ort_ep_directml.lowering.operand import Operand
from ort_ep_directml.lowering.plan import Sizes
from ort_ep_directml.lowering.reductions import reduced
from ort_ep_directml.lowering.refused import Refused
from ort_ep_directml.lowering.rule import Rule
from ort_ep_directml.lowering.windows import channel_shaped
from ort_ep_directml.schema.element_types import ElementType
from ort_ep_directml.schema.enumerators import ReduceFunction

_EPSILON = 1e-5


def _batch(to: EmissionState, node: Node) -> Operand:
    if node.int_attribute("training_mode", 0):
        raise Refused("BatchNormalization in training is left to others")
    x = to.operand(node.input(0))
    parts = [channel_shaped(to, to.operand(node.input(place)), max(x.rank, 2)) for place in range(1, 5)]
    dtype = ElementType.FLOAT32 if any(part.dtype is not x.dtype for part in parts) else x.dtype
    scale, bias, mean, variance = (to.cast(part, dtype) for part in parts)
    named = {"Mean": mean, "Variance": variance, "Scale": scale, "Bias": bias}
    numbers = {"Spatial": 1, "Epsilon": node.float_attribute("epsilon", _EPSILON)}
    wide = to.cast(x if x.rank > 1 else to.reshape(x, (*x.sizes, 1)), dtype)
    made = to.emit("BATCH_NORMALIZATION", (dtype, wide.sizes), Input=wide, **named, **numbers)
    return to.cast(to.reshape(made, x.sizes), x.dtype)


def normalized(
    to: EmissionState,
    x: Operand,
    axes: Sizes,
    epsilon: float,
    scale: Operand | None = None,
    bias: Operand | None = None,
) -> Operand:
    """Append ``(x - mean) / sqrt(variance + epsilon) * scale + bias`` over some axes."""
    if all(x.sizes[axis] == 1 for axis in axes):  # DirectML gives NaN now and then of one element that is its own mean
        found = binary(to, "ELEMENT_WISE_SUBTRACT", x, x)
        found = found if scale is None else times(to, found, scale)
        return found if bias is None else binary(to, "ELEMENT_WISE_ADD", found, bias)
    fields: dict[str, object] = {"Axes": axes, "NormalizeVariance": 1, "Epsilon": epsilon}
    return to.emit("MEAN_VARIANCE_NORMALIZATION1", (x.dtype, x.sizes), Input=x, Scale=scale, Bias=bias, **fields)


def _instance(to: EmissionState, node: Node) -> Operand:
    x = to.operand(node.input(0))
    scale, bias = (channel_shaped(to, to.operand(node.input(place)), x.rank) for place in (1, 2))
    return normalized(to, x, tuple(range(2, x.rank)), node.float_attribute("epsilon", _EPSILON), scale, bias)


def _group(to: EmissionState, node: Node) -> Operand:
    x, groups = to.operand(node.input(0)), node.int_attribute("num_groups", 1)
    is_wide = x.dtype is not ElementType.FLOAT32 and node.int_attribute("stash_type", 1) == DataType.FLOAT
    dtype = ElementType.FLOAT32 if is_wide else x.dtype
    batch, channels = x.sizes[:2]
    grouped = to.reshape(to.cast(x, dtype), (batch, groups, math.prod(x.sizes[1:]) // groups))
    made = to.reshape(normalized(to, grouped, (2,), node.float_attribute("epsilon", _EPSILON)), x.sizes)
    parts = [to.operand(node.input(place)) for place in (1, 2)]
    if to.context.opset(node) < 21:  # one number for each group
        spread = (batch, groups, channels // groups, *x.sizes[2:])
        scale, bias = (to.cast(to.reshape(part, (1, groups, *(1,) * (x.rank - 1))), dtype) for part in parts)
        found = binary(to, "ELEMENT_WISE_ADD", times(to, to.reshape(made, spread), scale), bias)
        return to.cast(to.reshape(found, x.sizes), x.dtype)
    scale, bias = (channel_shaped(to, to.cast(part, dtype), x.rank) for part in parts)
    return to.cast(binary(to, "ELEMENT_WISE_ADD", times(to, made, scale), bias), x.dtype)


def _layer(to: EmissionState, node: Node) -> list[Operand]:
    x = to.operand(node.input(0))
    axes = tuple(range(axis_of(node, x.rank, -1), x.rank))
    is_wide = x.dtype is not ElementType.FLOAT32 and node.int_attribute("stash_type", 1) == DataType.FLOAT
    wide = to.cast(x, ElementType.FLOAT32 if is_wide else x.dtype)
    scale, bias = (None if v is None else _aligned(to, to.operand(v), wide) for v in (node.input(1), node.input(2)))
    epsilon = node.float_attribute("epsilon", _EPSILON)
    found = to.cast(normalized(to, wide, axes, epsilon, scale, bias), x.dtype)
    if len(node.outputs) == 1 or not any(node.outputs[1:]):
        return [found]
    mean = reduced(to, wide, ReduceFunction.AVERAGE, axes)
    centered = binary(to, "ELEMENT_WISE_SUBTRACT", wide, mean)
    variance = reduced(to, times(to, centered, centered), ReduceFunction.AVERAGE, axes)
    deviation = unary(to, "ELEMENT_WISE_SQRT", variance, ScaleBias=(1.0, epsilon))
    return [found, mean, unary(to, "ELEMENT_WISE_RECIP", deviation)]


def _aligned(to: EmissionState, operand: Operand, like: Operand) -> Operand:
    """Return a factor with as many dimensions as what it is for, of its type."""
    return to.cast(to.reshape(operand, (1,) * (like.rank - operand.rank) + operand.sizes), like.dtype)


def _rms(to: EmissionState, node: Node) -> Operand:
    x = to.operand(node.input(0))
    axes = tuple(range(axis_of(node, x.rank, -1), x.rank))
    is_wide = x.dtype is not ElementType.FLOAT32 and node.int_attribute("stash_type", 1) == DataType.FLOAT
    wide = to.cast(x, ElementType.FLOAT32 if is_wide else x.dtype)
    mean = reduced(to, times(to, wide, wide), ReduceFunction.AVERAGE, axes)
    bias = (1.0, node.float_attribute("epsilon", _EPSILON))
    root = unary(to, "ELEMENT_WISE_SQRT", mean, ScaleBias=bias)
    found = to.cast(binary(to, "ELEMENT_WISE_DIVIDE", wide, root), x.dtype)
    scale = to.operand(node.input(1))
    return to.cast(times(to, to.cast(found, scale.dtype), scale), x.dtype)


def _mean_variance(to: EmissionState, node: Node) -> Operand:
    x = to.operand(node.input(0))
    axes = node.ints_attribute("axes") or (0, 2, 3)
    return normalized(to, x, tuple(sorted(axis % x.rank for axis in axes)), 1e-9)


def _lp(to: EmissionState, node: Node) -> Operand:
    """Lower to a quotient: DirectML's own operator makes NaN of zeros, where ONNX keeps them."""
    x = to.operand(node.input(0))
    function = ReduceFunction.L1 if node.int_attribute("p", 2) == 1 else ReduceFunction.L2
    norm = reduced(to, x, function, (axis_of(node, x.rank, -1),))
    least = to.scalar(x.dtype, float(np.finfo(x.dtype.numpy).tiny))
    return binary(to, "ELEMENT_WISE_DIVIDE", x, binary(to, "ELEMENT_WISE_MAX", norm, least))


def _local_response(to: EmissionState, node: Node) -> Operand:
    x = to.operand(node.input(0))
    flat = to.reshape(x, (*x.sizes[:2], 1, math.prod(x.sizes[2:])))
    numbers = {
        "Alpha": node.float_attribute("alpha", 1e-4),
        "Beta": node.float_attribute("beta", 0.75),
        "Bias": node.float_attribute("bias", 1.0),
    }
    local = node.int_attribute("size", 1)
    made = unary(to, "LOCAL_RESPONSE_NORMALIZATION", flat, CrossChannel=1, LocalSize=local, **numbers)
    return to.reshape(made, x.sizes)


NORMALIZATION: Mapping[str, Rule] = {
    "BatchNormalization": Rule(_batch, required=5, oldest=9),
    "GroupNormalization": Rule(_group, required=3),
    "InstanceNormalization": Rule(_instance, required=3, oldest=6),
    "LRN": Rule(_local_response),
    "LayerNormalization": Rule(_layer, required=2, outputs=3),
    "LpNormalization": Rule(_lp),
    "MeanVarianceNormalization": Rule(_mean_variance),
    "RMSNormalization": Rule(_rms, required=2),
}
"""Rules by operator."""
