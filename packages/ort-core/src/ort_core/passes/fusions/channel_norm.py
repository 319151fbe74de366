"""Norms over channels that are not the last axis, as a norm over the last axis between two Transposes.

    mean = ReduceMean(x, axes=[1])   v = ReduceMean(Pow(x - mean, 2), axes=[1])   y = (x - mean) / Sqrt(v + e) * w + b
        ->  y = Transpose(LayerNormalization(Transpose(x, (0, 2, 3, 1)), w, b), (0, 3, 1, 2))

Networks of convolutions have them: ConvNeXt's LayerNorm2d, the norms of vocoders. Root mean squares become
SimplifiedLayerNormalization, from opset 23 on RMSNormalization. Weights are constants with all their elements along
that axis.
"""

from __future__ import annotations

import numpy as np

from ort_core.frozen import frozen
from ort_core.ir.nodes import Node
from ort_core.ir.rejection import Rejection
from ort_core.ir.types import DataType, TensorType
from ort_core.ir.values import Value
from ort_core.passes.fusions.layer_norm import MAX_EPSILON, LayerNormFusion
from ort_core.passes.fusions.operands import FUSED_FLOATS, dtype_of, fixed_dim, integers_of, number_of, only_reader
from ort_core.passes.fusions.rms_norm import STANDARD_OPSET, SimplifiedLayerNormFusion
from ort_core.rewrite.matcher import Match, constant_of
from ort_core.rewrite.patch import GraphPatch
from ort_core.rewrite.pattern import Pattern
from ort_core.rewrite.rule import RewriteRule


@frozen
class ChannelNorm:
    """The axis of the channels, how many there are, and epsilon."""

    axis: int
    size: int
    epsilon: float


class ChannelNormFusion(RewriteRule[ChannelNorm]):
    """Fuse a norm over one axis that is not the last.

    Args:
        is_centered: look for layer norms; else for norms of root mean squares.
    """

    def __init__(self, *, is_centered: bool) -> None:
        self.name = "ChannelNormFusion" if is_centered else "SimplifiedChannelNormFusion"  # type: ignore[misc]  # two rules, one class
        self._is_centered = is_centered

    def build_pattern(self) -> Pattern:
        """Return the forms of the norm over the last axis."""
        found = LayerNormFusion(is_standard=False) if self._is_centered else SimplifiedLayerNormFusion()
        return found.build_pattern()

    def check(self, match: Match) -> ChannelNorm | Rejection:
        """All means must be over the same axis, and the weights of that axis."""
        x, means = match["x"], ("mean", "variance") if self._is_centered else ("mean",)
        axes = {_only_axis(match.node(name), x.rank) for name in means}
        axis = axes.pop()
        if axes or axis is None or x.rank is None or axis == x.rank - 1:
            return Rejection("the means are not over one axis in front of others", match.root)
        size, dtype = fixed_dim(x, axis), dtype_of(x)
        epsilon = number_of(match["epsilon"]) if "epsilon" in match else 0.0
        if epsilon is None or not 0 <= epsilon <= MAX_EPSILON:
            return Rejection(f"{epsilon} is not an epsilon", match.root)
        if match.output.rank != x.rank:
            return Rejection("the result is not known to have the axes of the operand", match.root)
        stash = dtype_of(match.node("mean").output)
        if dtype not in FUSED_FLOATS or dtype_of(match.output) != dtype or stash not in (DataType.FLOAT, dtype):
            return Rejection(f"norms of {dtype.text} computed in {stash.text} are not fused", match.root)
        if not self._is_centered and dtype is DataType.FLOAT16 and not match.has_node("cast_in"):
            return Rejection("squares computed in float16 overflow where the fused operator does not", match.root)
        weights = [match.get(name) for name in ("scale", "bias")]
        if size is None or any(each is not None and not _is_along(each, axis, size, x) for each in weights):
            return Rejection("the weights do not have the elements of that axis", match.root)
        if _is_unfinished(match, axis, size):
            return Rejection("the scale or shift behind belongs to it and is fused with it", match.root)
        return ChannelNorm(axis, size, epsilon)

    def rewrite(self, match: Match, bindings: ChannelNorm) -> GraphPatch:
        """Put the norm between two Transposes."""
        patch = GraphPatch(match.model, match.root)
        x, axis = match["x"], bindings.axis
        assert x.rank is not None
        dtype = dtype_of(x)
        there = (*(each for each in range(x.rank) if each != axis), axis)
        back = tuple(there.index(each) for each in range(x.rank))
        made = TensorType(dtype, None if x.shape is None else tuple(x.shape[each] for each in there))
        turned = patch.op("Transpose", [x], {"perm": there}, type=made)
        scale, bias = (_vector(patch, match.get(name)) for name in ("scale", "bias"))
        if scale is None:
            scale = patch.constant(np.ones(bindings.size, dtype.numpy), "ones")
        attributes = {"axis": -1, "epsilon": bindings.epsilon, "stash_type": int(DataType.FLOAT)}
        simplified = "RMSNormalization" if match.opset() >= STANDARD_OPSET else "SimplifiedLayerNormalization"
        op_type = "LayerNormalization" if self._is_centered else simplified
        inputs = [turned, scale] if bias is None else [turned, scale, bias]
        normal = patch.node(op_type, inputs, attributes, outputs=(made,)).output
        patch.replace(match.output, patch.op("Transpose", [normal], {"perm": back}, type=match.output.type))
        patch.remove(*match.nodes)
        return patch


def _only_axis(node: Node, rank: int | None) -> int | None:
    """Return the one axis of a reduction, counted from the front."""
    axes = node.ints_attribute("axes")
    if axes is None and node.op_type == "ReduceMean":
        axes = integers_of(node.input(1))
    return axes[0] % rank if axes is not None and len(axes) == 1 and rank else None


def _is_along(weight: Value, axis: int, size: int, x: Value) -> bool:
    """Return whether a constant has as many elements as an axis, in the place that is added to this axis."""
    found = constant_of(weight)
    if found is None or x.rank is None or len(found.shape) > x.rank or dtype_of(weight) != dtype_of(x):
        return False
    padded = (*[1] * (x.rank - len(found.shape)), *found.shape)
    return padded[axis] == size and found.size == size


def _is_unfinished(match: Match, axis: int, size: int) -> bool:
    """Return whether a scale or shift along the axis reads the result, which a longer form of the pattern has."""
    reader = only_reader(match.output)
    wanted = {"Add"} if "scale" in match else {"Mul", "Add"}
    if "bias" in match or reader is None or reader.op_type not in wanted:
        return False
    other = next((each for each in reader.present_inputs() if each is not match.output), None)
    return other is not None and _is_along(other, axis, size, match.output)


def _vector(patch: GraphPatch, weight: Value | None) -> Value | None:
    found = constant_of(weight)
    return None if weight is None or found is None else patch.constant(found.array().reshape(-1), weight.name)
