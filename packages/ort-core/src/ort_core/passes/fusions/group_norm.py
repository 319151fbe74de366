"""GroupNormFusion: what exporters write for a group normalization, an instance normalization of reshaped groups.

    g = Reshape(x, [0, groups, -1])
    y = Reshape(InstanceNormalization(g, ones, zeros), Shape(x))     ->  y = GroupNormalization(x, ones, zeros)
    z = Add(Mul(y, scale), bias)                                     ->  z = GroupNormalization(x, scale, bias)

The result may count its pixels by other axes than x, as where attention over them follows; then it is reshaped.
Reshaped groups are rows of memory that images with the channels last do not have, so that the images would be moved.
com.microsoft GroupNorm, which onnxruntime's optimizer writes for GPUs, has the channels last, and SiLU behind the norm.
"""

from __future__ import annotations

import numpy as np

from ort_core.frozen import frozen
from ort_core.ir.nodes import Node
from ort_core.ir.rejection import Rejection
from ort_core.ir.types import DataType, TensorType
from ort_core.ir.values import Value
from ort_core.passes.fusions.operands import ONNXRUNTIME, only_reader
from ort_core.rewrite.matcher import Match
from ort_core.rewrite.patch import GraphPatch
from ort_core.rewrite.pattern import Pattern, constant, one_of, op, var
from ort_core.rewrite.rule import RewriteRule

_IMAGE_AXES, _TO_LAST, _FROM_LAST = 4, (0, 2, 3, 1), (0, 3, 1, 2)
SINCE = 21  # before, GroupNormalization had one scale a group


@frozen
class Groups:
    """How many groups there are, and the scale and bias of each channel."""

    count: int
    scale: np.ndarray
    bias: np.ndarray


class GroupNormFusion(RewriteRule[Groups]):
    """Fuse to GroupNormalization of opset 21, whatever opset the model has.

    Args:
        is_standard: ``False`` writes com.microsoft GroupNorm between Transposes, for images of four axes.
    """

    name = "GroupNormFusion"

    def __init__(self, *, is_standard: bool = True) -> None:
        super().__init__()
        self._is_standard = is_standard
        self.emits = (("", "GroupNormalization") if is_standard else (ONNXRUNTIME, "GroupNorm"),)  # type: ignore[misc]  # one class, two operators

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
        if not self._is_standard and (len(shape) != _IMAGE_AXES or restored.shape != shape):
            return Rejection("GroupNorm is for images, the channels and pixels of which stay as they are", root)
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
        epsilon = match.node("norm").float_attribute("epsilon", 1e-5)
        x, restored = match["x"], match.node("restore").output
        if not self._is_standard:
            return _with_channels_last(patch, match, numbers, {"epsilon": epsilon, "groups": bindings.count})
        attributes = {"epsilon": epsilon, "num_groups": bindings.count}
        opset = None if match.opset() >= SINCE else SINCE
        y = patch.op("GroupNormalization", [x, *numbers], attributes, type=x.type, opset=opset)
        if not _is_shape_of(match["shape"], x) and (x.shape is None or restored.shape != x.shape or None in x.shape):
            y = patch.op("Reshape", [y, match["shape"]], type=restored.type)
        patch.replace(match.output, y)
        patch.remove(*match.nodes)
        return patch


def _with_channels_last(
    patch: GraphPatch, match: Match, numbers: list[Value], attributes: dict[str, object]
) -> GraphPatch:
    """Put com.microsoft GroupNorm between two Transposes there, with SiLU in it where that follows."""
    x, made, nodes = match["x"], match.output, list(match.nodes)
    silu = _silu_of(made)
    if silu is not None:
        made, nodes = silu[0], [*nodes, *silu[1]]
    attributes |= {"activation": int(silu is not None), "channels_last": 1}
    last = None
    if isinstance(x.type, TensorType) and x.shape is not None:
        last = TensorType(x.type.dtype, tuple(x.shape[axis] for axis in _TO_LAST))
    turned = patch.op("Transpose", [x], {"perm": _TO_LAST}, type=last)
    y = patch.op("GroupNorm", [turned, *numbers], attributes, type=last, domain=ONNXRUNTIME)
    patch.replace(made, patch.op("Transpose", [y], {"perm": _FROM_LAST}, type=x.type))
    patch.remove(*nodes)
    return patch


def _silu_of(value: Value) -> tuple[Value, list[Node]] | None:
    """Return the product of a value with its own sigmoid, and the nodes of it, where nothing else reads the value."""
    readers = value.consumers()
    if value.is_graph_output:
        return None
    if len(readers) == 1 and readers[0].op_type == "Swish" and readers[0].float_attribute("alpha", 1.0) == 1.0:
        return readers[0].output, [readers[0]]
    sigmoid = next((each for each in readers if each.op_type == "Sigmoid" and each.domain == ""), None)
    product = None if sigmoid is None else only_reader(sigmoid.output)
    if sigmoid is None or product is None or product.op_type != "Mul" or set(readers) != {sigmoid, product}:
        return None
    is_own = set(product.present_inputs()) == {value, sigmoid.output}
    return (product.output, [sigmoid, product]) if is_own else None


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
