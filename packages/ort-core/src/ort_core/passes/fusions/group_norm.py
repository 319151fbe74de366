"""GroupNormFusion: what exporters write for a group normalization, an instance normalization of reshaped groups.

    g = Reshape(x, [0, groups, -1])
    y = Reshape(InstanceNormalization(g, ones, zeros), Shape(x))     ->  y = GroupNormalization(x, ones, zeros)
    z = Add(Mul(y, scale), bias)                                     ->  z = GroupNormalization(x, scale, bias)

The result may count its pixels by other axes than x, as where attention over them follows; then it is reshaped.
Reshaped groups are rows of memory that images with the channels last do not have, so that the images would be moved.
com.microsoft GroupNorm, which onnxruntime's optimizer writes for GPUs, has the channels last, and SiLU behind the norm.
It is for images; rows of pixels, as attentions take them, are images of one row there.
"""

from __future__ import annotations

from collections.abc import Mapping

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

_TO_LAST, _FROM_LAST = {3: (0, 2, 1), 4: (0, 2, 3, 1)}, {3: (0, 2, 1), 4: (0, 3, 1, 2)}  # by the number of axes
SINCE = 21  # before, GroupNormalization had one scale a group
_AXES_AS_INPUT = 13  # of Squeeze and Unsqueeze, since this opset
_GPU_FLOATS = frozenset({DataType.FLOAT, DataType.FLOAT16})


@frozen
class Groups:
    """How many groups there are, and the scale and bias of each channel."""

    count: int
    scale: np.ndarray
    bias: np.ndarray


class GroupNormFusion(RewriteRule[Groups]):
    """Fuse to GroupNormalization of opset 21, whatever opset the model has.

    Args:
        is_standard: ``False`` writes com.microsoft GroupNorm, with the channels last between Transposes.
        is_channels_last: ``False`` leaves the channels of com.microsoft GroupNorm where they are.
    """

    name = "GroupNormFusion"

    def __init__(self, *, is_standard: bool = True, is_channels_last: bool = True) -> None:
        super().__init__()
        self._is_standard = is_standard
        self._is_channels_last = is_channels_last
        self.emits = (("", "GroupNormalization") if is_standard else (ONNXRUNTIME, "GroupNorm"),)  # type: ignore[misc]  # one class, two operators

    def build_pattern(self) -> Pattern:
        """Return the forms with a scale and bias of each channel, a scale alone, and neither."""
        grouped = op("Reshape", var("x"), var(), name="group")
        normal = op("InstanceNormalization", grouped, constant("gain"), constant("offset"), name="norm")
        plain = op("Reshape", normal, var("shape"), name="restore")
        scaled = op("Mul", plain, constant("scale"))
        forms = (op("Add", scaled, constant("bias")), scaled, plain)
        if self._is_standard:
            return one_of(*forms)
        numbers = constant("channel_scale"), constant("channel_bias")
        return one_of(*forms, op("GroupNormalization", var("x"), *numbers, since=SINCE, name="norm"))

    def check(self, match: Match) -> Groups | Rejection:
        """The groups must be whole channels, the result as large as the input; scale and bias must be of channels."""
        if "channel_scale" in match:
            return self._standard(match)
        x, root = match["x"], match.root
        grouped, restored = match.node("group").output, match.node("restore").output
        refusal = self._refuse_type(match)
        if refusal is not None:
            return refusal
        shape, groups, result = x.shape, grouped.shape, restored.shape
        if shape is None or len(shape) < 3 or not isinstance(shape[1], int) or groups is None or len(groups) != 3:
            return Rejection(f"the channels of {x.name!r} or the groups are not known", root)
        if not isinstance(groups[1], int) or groups[1] < 1 or shape[1] % groups[1] or groups[0] != shape[0]:
            return Rejection(f"{grouped.name!r} is not a row for each group of channels", root)
        if not _is_shape_of(match["shape"], x) and (result is None or len(result) < 3 or result[:2] != shape[:2]):
            return Rejection(f"{restored.name!r} is not known to have the images and channels of {x.name!r}", root)
        if None in shape[:1] or restored.rank is None:
            return Rejection(f"how many images {x.name!r} has is not known", root)
        if not self._is_standard and not _is_of_images(x, restored):
            return Rejection("GroupNorm is for images, the channels of which stay as they are", root)
        if "scale" not in match and _is_scaled(restored, shape[1]):
            return Rejection("the scale behind belongs to it and is fused with it", root)
        if "scale" in match and "bias" not in match and _is_scaled(match.output, shape[1]):
            return Rejection("the bias behind belongs to it and is fused with it", root)
        return self._bound(match, shape[1], groups[1], restored.rank)

    def _refuse_type(self, match: Match) -> Rejection | None:
        kind, allowed = match["x"].type, frozenset({DataType.FLOAT}) if self._is_standard else _GPU_FLOATS
        if isinstance(kind, TensorType) and kind.dtype in allowed:
            return None
        reason = "only float32 is fused" if self._is_standard else "GroupNorm is for float32 and float16"
        return Rejection(reason, match.root)

    def _standard(self, match: Match) -> Groups | Rejection:
        """Return what a GroupNormalization has, where it is one of images."""
        x, refusal = match["x"], self._refuse_type(match)
        if refusal is not None:
            return refusal
        if x.rank not in _TO_LAST:
            return Rejection("GroupNorm is for images", match.root)
        scale, bias = (_array(match[name]).astype(np.float32) for name in ("channel_scale", "channel_bias"))
        return Groups(match.root.int_attribute("num_groups", 1), scale, bias)

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
        if not self._is_standard:
            attributes: dict[str, object] = {"epsilon": epsilon, "groups": bindings.count}
            return _for_gpus(patch, match, numbers, attributes, is_last=self._is_channels_last)
        x, restored = match["x"], match.node("restore").output
        attributes = {"epsilon": epsilon, "num_groups": bindings.count}
        opset = None if match.opset() >= SINCE else SINCE
        y = patch.op("GroupNormalization", [x, *numbers], attributes, type=x.type, opset=opset)
        if not _is_shape_of(match["shape"], x) and (x.shape is None or restored.shape != x.shape or None in x.shape):
            y = patch.op("Reshape", [y, match["shape"]], type=restored.type)
        patch.replace(match.output, y)
        patch.remove(*match.nodes)
        return patch


def _for_gpus(
    patch: GraphPatch, match: Match, numbers: list[Value], attributes: dict[str, object], *, is_last: bool
) -> GraphPatch:
    """Put com.microsoft GroupNorm there, with SiLU in it where that follows; between Transposes with channels last."""
    x, made, nodes = match["x"], match.output, list(match.nodes)
    silu = _silu_of(made)
    if silu is not None:
        made, nodes = silu[0], [*nodes, *silu[1]]
    attributes |= {"activation": int(silu is not None), "channels_last": int(is_last)}
    y = _turned(patch, x, _TO_LAST) if is_last else x
    place = -2 if is_last else -1  # of the axis that makes an image of rows of pixels
    if x.rank == 3:
        y = _with_axis(patch, "Unsqueeze", y, place, match.opset())
    y = patch.op("GroupNorm", [y, *numbers], attributes, type=y.type, domain=ONNXRUNTIME)
    if x.rank == 3:
        y = _with_axis(patch, "Squeeze", y, place, match.opset())
    elif made.rank == 3:
        y = _in_one_row(patch, y, made, is_last=is_last)
    patch.replace(made, _turned(patch, y, _FROM_LAST) if is_last else y)
    patch.remove(*nodes)
    return patch


def _in_one_row(patch: GraphPatch, images: Value, rows: Value, *, is_last: bool) -> Value:
    """Return the pixels of images as one axis, as a value that stands for the same has them."""
    assert isinstance(rows.type, TensorType)
    assert rows.shape is not None
    batch, channels, pixels = rows.shape
    sizes = [0, -1, channels] if is_last else [0, channels, -1]
    kind = TensorType(rows.type.dtype, (batch, pixels, channels) if is_last else (batch, channels, pixels))
    return patch.op("Reshape", [images, patch.constant(np.array(sizes, np.int64), "rows")], type=kind)


def _turned(patch: GraphPatch, value: Value, orders: Mapping[int, tuple[int, ...]]) -> Value:
    """Return images with their channels brought to another place."""
    assert isinstance(value.type, TensorType)
    assert value.shape is not None
    order = orders[len(value.shape)]
    kind = TensorType(value.type.dtype, tuple(value.shape[axis] for axis in order))
    return patch.op("Transpose", [value], {"perm": order}, type=kind)


def _with_axis(patch: GraphPatch, op_type: str, value: Value, place: int, opset: int) -> Value:
    """Return a value with an axis of one more or fewer, counted from behind in the longer of both."""
    assert isinstance(value.type, TensorType)
    assert value.shape is not None
    sizes = list(value.shape)
    axis = len(sizes) + (op_type == "Unsqueeze") + place
    sizes[axis : axis + (op_type == "Squeeze")] = [1] if op_type == "Unsqueeze" else []
    kind = TensorType(value.type.dtype, tuple(sizes))
    if opset < _AXES_AS_INPUT:
        return patch.op(op_type, [value], {"axes": [axis]}, type=kind)
    return patch.op(op_type, [value, patch.constant(np.array([axis], np.int64), "axis")], type=kind)


def _is_of_images(x: Value, restored: Value) -> bool:
    """Return whether the result has the sizes of images or rows of pixels, or is rows of the pixels of images."""
    if x.rank not in _TO_LAST or x.shape is None or restored.shape is None:
        return False
    return restored.shape == x.shape or (restored.rank == 3 and restored.shape[:2] == x.shape[:2])


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
