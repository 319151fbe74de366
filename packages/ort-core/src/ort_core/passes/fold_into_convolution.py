"""Constants applied per channel behind a convolution go into its weights and bias.

    y = BatchNormalization(Conv(x, W, b), s, B, m, v)  ->  y = Conv(x, W * f, (b - m) * f + B),  f = s / sqrt(v + e)
    y = Mul(Conv(x, W, b), c)                          ->  y = Conv(x, W * c, b * c)
    y = Add(Conv(x, W, b), c)                          ->  y = Conv(x, W, b + c)

ConvTranspose likewise. The arithmetic is done in float64 and rounded once.
"""

from __future__ import annotations

import numpy as np

from ort_core.frozen import frozen
from ort_core.ir.constants import Constant
from ort_core.ir.nodes import Node
from ort_core.ir.rejection import Rejection
from ort_core.rewrite.matcher import Match
from ort_core.rewrite.patch import GraphPatch
from ort_core.rewrite.pattern import OpPattern, Pattern, constant, op, optional, var
from ort_core.rewrite.rule import RewriteRule

CHANNEL_AXIS = 1  # of the activations, in every layout that ONNX knows


@frozen
class Affine:
    """What happens behind the convolution: ``y * scale + shift`` per output channel, in float64."""

    scale: np.ndarray
    shift: np.ndarray


class _FoldAffine(RewriteRule[Affine]):
    """Shared by the three rules: the convolution takes over the affine map that ``check`` found."""

    def rewrite(self, match: Match, bindings: Affine) -> GraphPatch:
        """Make the convolution with folded constants; it keeps its name and attributes."""
        conv = match.node("conv")
        patch = GraphPatch(match.model, match.root)
        weight = match.constant("w")
        bias = match.array("b").astype(np.float64) if "b" in match else np.zeros(1)
        scaled = _scale_weight(conv, weight, bindings.scale)
        shifted = bias * bindings.scale + bindings.shift
        inputs = [
            conv.inputs[0],
            match["w"] if scaled is None else patch.constant(scaled, f"{match['w'].name}_scaled", weight.dtype),
            patch.constant(shifted.astype(weight.dtype.numpy), f"{conv.output.name}_bias", weight.dtype),
        ]
        attributes = conv.attributes.values()
        new = patch.op(conv.op_type, inputs, attributes, type=match.output.type, name=conv.name, opset=conv.opset)
        patch.replace(match.output, new)
        patch.remove(match.root, conv)
        return patch


def convolution() -> OpPattern:
    """Return the pattern of a convolution with constant weights and bias."""
    where = constant("w", where=lambda found: found.dtype.is_float and len(found.shape) >= 3)
    return op(("Conv", "ConvTranspose"), var("x"), where, optional(constant("b")), name="conv")


def num_channels(conv: Node, weight: Constant) -> int:
    """Return the number of output channels of a convolution."""
    if conv.op_type == "Conv":
        return weight.shape[0]
    return weight.shape[1] * conv.int_attribute("group", 1)


def _check_shapes(match: Match) -> Rejection | None:
    """Return why the convolution is not valid, so that folding would fail where running it fails."""
    conv, weight = match.node("conv"), match.constant("w")
    groups = conv.int_attribute("group", 1)
    if groups < 1 or weight.shape[0] % groups:
        return Rejection("the groups do not divide the channels", conv)
    if "b" in match and match.constant("b").shape != (num_channels(conv, weight),):
        return Rejection("the bias does not have one element per channel", conv)
    return None


def _scale_weight(conv: Node, weight: Constant, scale: np.ndarray) -> np.ndarray | None:
    if (scale == 1).all():
        return None
    array = weight.array().astype(np.float64)
    if conv.op_type == "Conv":
        scaled = array * scale.reshape(-1, *[1] * (array.ndim - 1))
    else:
        groups = conv.int_attribute("group", 1)
        grouped = array.reshape(groups, array.shape[0] // groups, *array.shape[1:])
        scaled = (grouped * scale.reshape(groups, 1, -1, *[1] * (array.ndim - 2))).reshape(array.shape)
    return scaled.astype(weight.dtype.numpy)


class ConvBNFusion(_FoldAffine):
    """Fold a BatchNormalization in inference mode."""

    name = "ConvBNFusion"

    def build_pattern(self) -> Pattern:
        """Return ``BatchNormalization(conv, constants...)``."""
        parameters = [constant(name) for name in ("scale", "shift", "mean", "variance")]
        return op("BatchNormalization", convolution(), *parameters, since=7)

    def check(self, match: Match) -> Affine | Rejection:
        """Return the affine map of the statistics."""
        objection = _check_shapes(match)
        if objection is not None:
            return objection
        return batch_normalization_affine(match, num_channels(match.node("conv"), match.constant("w")))


def batch_normalization_affine(match: Match, channels: int) -> Affine | Rejection:
    """Return what a matched BatchNormalization (root; scale, shift, mean, variance) does to each channel."""
    node = match.root
    if node.int_attribute("training_mode", 0) or not node.int_attribute("spatial", 1):
        return Rejection("the node is in training mode or normalizes each element by itself", node)
    names = ("scale", "shift", "mean", "variance")
    if any(match.constant(name).shape != (channels,) for name in names):
        return Rejection("a statistic does not have one element per channel", node)
    scale, shift, mean, variance = (match.array(name).astype(np.float64) for name in names)
    factor = scale / np.sqrt(variance + node.float_attribute("epsilon", 1e-5))
    return Affine(factor, shift - mean * factor)


class ConvMulFusion(_FoldAffine):
    """Fold a multiplication by one constant a channel."""

    name = "ConvMulFusion"

    def build_pattern(self) -> Pattern:
        """Return ``Mul(conv, c)``."""
        return op("Mul", convolution(), constant("c"), since=7)

    def check(self, match: Match) -> Affine | Rejection:
        """Return the scaling."""
        scale = channel_constant(match, "c")
        return scale if isinstance(scale, Rejection) else Affine(scale, np.zeros_like(scale))


class ConvAddFusion(_FoldAffine):
    """Fold the addition of one constant a channel."""

    name = "ConvAddFusion"

    def build_pattern(self) -> Pattern:
        """Return ``Add(conv, c)``."""
        return op("Add", convolution(), constant("c"), since=7)

    def check(self, match: Match) -> Affine | Rejection:
        """Return the shift."""
        shift = channel_constant(match, "c")
        return shift if isinstance(shift, Rejection) else Affine(np.ones_like(shift), shift)


def channel_constant(match: Match, name: str) -> np.ndarray | Rejection:
    """Return a constant with one element per output channel, broadcast from one if need be, in float64."""
    objection = _check_shapes(match)
    if objection is not None:
        return objection
    found = match.constant(name)
    weight = match.constant("w")
    rank, channels = len(weight.shape), num_channels(match.node("conv"), weight)
    shape = (1,) * (rank - len(found.shape)) + found.shape
    if len(shape) > rank:
        return Rejection("the constant adds dimensions", match.root)
    if any(size != 1 for axis, size in enumerate(shape) if axis != CHANNEL_AXIS) or shape[1] not in (1, channels):
        return Rejection("the constant does not have one element per channel", match.root)
    if found.dtype != weight.dtype:
        return Rejection("the constant has another element type than the weights", match.root)
    return np.broadcast_to(found.array().reshape(-1).astype(np.float64), (channels,)).copy()
