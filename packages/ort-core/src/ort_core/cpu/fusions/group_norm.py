"""GroupNormFusion: what exporters write for a group normalization, an instance normalization of reshaped groups.

    g = Reshape(x, [0, groups, -1])
    y = Reshape(InstanceNormalization(g, ones, zeros), Shape(x))     ->  y = GroupNormalization(x, ones, zeros)
    z = Add(Mul(y, scale), bias)                                     ->  z = GroupNormalization(x, scale, bias)

The result may count its pixels by other axes than x, as where attention over them follows; then it is reshaped.
Reshaped groups are rows of memory that images with the channels last do not have, so that the images would be moved.
"""

from __future__ import annotations

import numpy as np

from ort_core.plugin import Rejection, frozen
from ort_core.plugin.ir import DataType, Node, TensorType, Value
from ort_core.plugin.rewrite import GraphPatch, Match, Pattern, RewriteRule, constant, one_of, op, var

SINCE = 21  # before, GroupNormalization had one scale a group


@frozen
class Groups:
    """How many groups there are, and the scale and bias of each channel."""

    count: int
    scale: np.ndarray
    bias: np.ndarray


class GroupNormFusion(RewriteRule[Groups]):
    """Fuse to GroupNormalization of opset 21, whatever opset the model has."""

    name = "GroupNormFusion"

    def build_pattern(self) -> Pattern:
        """Return the forms with a scale and bias of each channel, a scale alone, and neither."""
        grouped = op("Reshape", var("x"), var(), name="group")
        normal = op("InstanceNormalization", grouped, constant("gain"), constant("offset"), name="norm")
        plain = op("Reshape", normal, var("shape"), name="restore")
        scaled = op("Mul", plain, constant("scale"))
        return one_of(op("Add", scaled, constant("bias")), scaled, plain)

    def check(self, match: Match) -> Groups | Rejection:
        """The groups must be whole channels, the result as large as the input; scale and bias must be of channels."""
        x, root = match["x"], match.root
        grouped, restored = match.node("group").output, match.node("restore").output
        if not isinstance(x.type, TensorType) or x.type.dtype is not DataType.FLOAT:
            return Rejection("only float32 is fused", root)
        shape, groups, result = x.shape, grouped.shape, restored.shape
        if shape is None or len(shape) < 3 or not isinstance(shape[1], int) or groups is None or len(groups) != 3:
            return Rejection(f"the channels of {x.name!r} or the groups are not known", root)
        if not isinstance(groups[1], int) or groups[1] < 1 or shape[1] % groups[1] or groups[0] != shape[0]:
            return Rejection(f"{grouped.name!r} is not a row for each group of channels", root)
        if not _is_shape_of(match["shape"], x) and (result is None or len(result) < 3 or result[:2] != shape[:2]):
            return Rejection(f"{restored.name!r} is not known to have the images and channels of {x.name!r}", root)
        if None in shape[:1] or restored.rank is None:
            return Rejection(f"how many images {x.name!r} has is not known", root)
        if "scale" not in match and _is_scaled(restored, shape[1]):
            return Rejection("the scale behind belongs to it and is fused with it", root)
        if "scale" in match and "bias" not in match and _is_scaled(match.output, shape[1]):
            return Rejection("the bias behind belongs to it and is fused with it", root)
        return self._bound(match, shape[1], groups[1], restored.rank)

    def _bound(self, match: Match, channels: int, groups: int, rank: int) -> Groups | Rejection:
        numbers = []
        for name in ("gain", "offset"):
            array = _array(match[name])
            if array.size != groups:
                return Rejection(f"{match[name].name!r} is not one number for each group", match.root)
            numbers.append(np.repeat(array.reshape(-1).astype(np.float64), channels // groups))
        for name, start in (("scale", 1.0), ("bias", 0.0)):
            found = _by_channel(_array(match[name]), channels, rank) if name in match else np.full(channels, start)
            if found is None:
                return Rejection(f"{match[name].name!r} is not one number for each channel", match.root)
            numbers.append(found)
        gain, offset, scale, bias = numbers
        return Groups(groups, (gain * scale).astype(np.float32), (offset * scale + bias).astype(np.float32))

    def rewrite(self, match: Match, bindings: Groups) -> GraphPatch:
        """Put one GroupNormalization there."""
        patch = GraphPatch(match.model, match.root)
        name = match.node("norm").name
        numbers = [
            patch.constant(array, f"{name}_{word}")
            for array, word in ((bindings.scale, "scale"), (bindings.bias, "bias"))
        ]
        attributes = {"epsilon": match.node("norm").float_attribute("epsilon", 1e-5), "num_groups": bindings.count}
        x, restored = match["x"], match.node("restore").output
        y = patch.op("GroupNormalization", [x, *numbers], attributes, type=x.type, opset=SINCE)
        if not _is_shape_of(match["shape"], x) and (x.shape is None or restored.shape != x.shape or None in x.shape):
            y = patch.op("Reshape", [y, match["shape"]], type=restored.type)
        patch.replace(match.output, y)
        patch.remove(*match.nodes)
        return patch


def _array(value: Value) -> np.ndarray:
    assert value.graph is not None
    found = value.graph.fixed_constant(value)
    assert found is not None, "the pattern asks for a constant"
    return found.array()


def _by_channel(array: np.ndarray, channels: int, rank: int) -> np.ndarray | None:
    """Return one number for each channel of what broadcasts to images of ``rank`` so, else ``None``."""
    if array.ndim > rank or array.size not in (1, channels):
        return None
    inner = (1,) * (rank - 2)
    if array.size > 1 and array.shape[-(rank - 1) :] != (channels, *inner):
        return None
    return np.broadcast_to(array.reshape(-1).astype(np.float64), (channels,))


def _is_shape_of(shape: Value, x: Value) -> bool:
    node = shape.producer
    return node is not None and node.op_type == "Shape" and node.input(0) is x and _is_whole(node)


def _is_whole(node: Node) -> bool:
    return node.int_attribute("start", 0) == 0 and node.attribute("end") is None


def _is_scaled(value: Value, channels: int) -> bool:
    """Return whether the only reader is a product or sum with as many constant numbers as there are channels."""
    readers = value.consumers()
    if len(readers) != 1 or value.is_graph_output or readers[0].op_type not in ("Mul", "Add"):
        return False
    other = next((each for each in readers[0].present_inputs() if each is not value), None)
    found = None if other is None or other.graph is None else other.graph.fixed_constant(other)
    return found is not None and found.size == channels
