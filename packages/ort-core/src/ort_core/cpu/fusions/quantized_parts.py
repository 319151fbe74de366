"""Softmax, Where and ReduceMean of quantized tensors, as the reals that they compute on between two conversions.

y = QLinearSoftmax(x)     ->  Saturate(Floor(Softmax(Dequantize(x)) * steps + 0.5) + zero)
y = QLinearWhere(c, x, y) ->  Quantize(Where(c, Dequantize(x), Dequantize(y)))
y = QLinearReduceMean(x)  ->  Quantize(ReduceMean(Dequantize(x)))

The compiler has rules for the parts and for how they fuse with what lies around them. It needs what the types of the
model's operator set do not matter for: the parts are of opset 13.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ort_core.plugin import Rejection
from ort_core.plugin.ir import DataType, Node, TensorType, Value
from ort_core.plugin.rewrite import GraphPatch, Match, Pattern, RewriteRule, op, var

MICROSOFT = "com.microsoft"
SINCE = 13  # of the parts: Softmax along one axis, ReduceMean with axes as an attribute
_LIMITS = {DataType.UINT8: (0, 255), DataType.INT8: (-128, 127)}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a quantized tensor stands among a node's inputs: its scale and zero point follow it, or stand alone.

    Attributes:
        scale: number of the input that is its scale; that of its zero point is one more.
        tensor: number of the tensor's input, -1 for the result.
    """

    scale: int
    tensor: int = -1


_PLACES = {
    "QLinearSoftmax": (Place(1, 0), Place(3)),
    "QLinearReduceMean": (Place(1, 0), Place(3)),
    "QLinearWhere": (Place(2, 1), Place(5, 4), Place(7)),
}


@dataclass(frozen=True, slots=True)
class Grids:
    """Scales and zero points of the tensors that a node reads, then of its result."""

    numbers: tuple[tuple[np.ndarray, np.ndarray], ...]


class QuantizedInParts(RewriteRule[Grids]):
    """Write one of the operators, which subclasses name, as its parts."""

    _op_type: ClassVar[str]

    def build_pattern(self) -> Pattern:
        """Return the operator."""
        return op(self._op_type, var("first"), domain=MICROSOFT, shared=True, more_inputs=True)

    def check(self, match: Match) -> Grids | Rejection:
        """Scales and zero points must be constants of one number, ranks known, and axes single ones."""
        root, places = match.root, _PLACES[self._op_type]
        tensor = root.input(places[0].tensor)
        if tensor is None or not isinstance(tensor.type, TensorType) or tensor.type.dtype not in _LIMITS:
            return Rejection("only uint8 and int8 are taken apart", root)
        if tensor.type.shape is None or root.output.shape is None:
            return Rejection("the sizes are not known", root)
        found = []
        for place in places:
            grid = _grid(root, place, tensor.type.dtype)
            if grid is None:
                return Rejection("a scale or zero point is not one constant", root)
            found.append(grid)
        rank = len(tensor.type.shape)
        if any(not -rank <= axis < rank for axis in _axes(root)):
            return Rejection("an axis is none of the tensor: the operator itself refuses it", root)
        if self._op_type == "QLinearSoftmax" and not _has_one_axis(root, rank):
            return Rejection("before opset 13 it sums over several axes", root)
        return Grids(tuple(found))

    def rewrite(self, match: Match, bindings: Grids) -> GraphPatch:
        """Make the parts."""
        patch, root = GraphPatch(match.model, match.root), match.root
        places = _PLACES[self._op_type]
        reals = [
            _dequantized(patch, _given(root, place.tensor), grid)
            for place, grid in zip(places[:-1], bindings.numbers[:-1], strict=True)
        ]
        out, shape = bindings.numbers[-1], root.output.shape
        real = TensorType(DataType.FLOAT, shape)
        if self._op_type == "QLinearSoftmax":
            axis = root.int_attribute("axis", -1)
            chances = patch.op("Softmax", reals, {"axis": axis}, type=real, opset=SINCE)
            result = _counted(patch, chances, out, root.output)
        else:
            if self._op_type == "QLinearWhere":
                value = patch.op("Where", [_given(root, 0), *reals], {}, type=real, opset=SINCE)
            else:
                axes = _axes(root) or tuple(range(len(_given(root, 0).shape or ())))
                attributes = {"axes": axes, "keepdims": root.int_attribute("keepdims", 1)}
                value = patch.op("ReduceMean", reals, attributes, type=real, opset=SINCE)
            inputs = [value, patch.constant(out[0]), patch.constant(out[1])]
            result = patch.op("QuantizeLinear", inputs, {}, type=root.output.type, opset=SINCE)
        patch.replace(root.output, result)
        patch.remove(root)
        return patch


class SoftmaxInParts(QuantizedInParts):
    """QLinearSoftmax."""

    name = "SoftmaxInParts"
    _op_type = "QLinearSoftmax"


class MeanInParts(QuantizedInParts):
    """QLinearReduceMean."""

    name = "MeanInParts"
    _op_type = "QLinearReduceMean"


class WhereInParts(QuantizedInParts):
    """QLinearWhere."""

    name = "WhereInParts"
    _op_type = "QLinearWhere"


def _given(node: Node, place: int) -> Value:
    value = node.input(place)
    assert value is not None, "the schema asks for it"
    return value


def _axes(node: Node) -> tuple[int, ...]:
    if node.op_type == "QLinearSoftmax":
        return (node.int_attribute("axis", -1),)
    named = node.attributes.get("axes")
    return () if named is None else tuple(named.value)  # type: ignore[arg-type]  # integers, by the schema


def _has_one_axis(node: Node, rank: int) -> bool:
    return node.int_attribute("opset", 0) >= SINCE or node.int_attribute("axis", -1) in (-1, rank - 1)


def _grid(node: Node, place: Place, dtype: DataType) -> tuple[np.ndarray, np.ndarray] | None:
    scale, zero = (_number(node.input(each)) for each in (place.scale, place.scale + 1))
    if scale is None or scale.dtype != np.float32:
        return None
    if zero is None and node.input(place.scale + 1) is not None:
        return None
    return scale, np.zeros((), dtype.numpy) if zero is None else zero


def _number(value: Value | None) -> np.ndarray | None:
    if value is None or value.graph is None:
        return None
    found = value.graph.fixed_constant(value)
    array = None if found is None else found.array()
    return array.reshape(()) if array is not None and array.size == 1 else None


def _dequantized(patch: GraphPatch, value: Value, grid: tuple[np.ndarray, np.ndarray]) -> Value:
    inputs = [value, patch.constant(grid[0]), patch.constant(grid[1])]
    return patch.op("DequantizeLinear", inputs, {}, type=TensorType(DataType.FLOAT, value.shape), opset=SINCE)


def _counted(patch: GraphPatch, chances: Value, out: tuple[np.ndarray, np.ndarray], like: Value) -> Value:
    """Count chances in whole steps of the scale, a half rounded up, as onnxruntime does."""
    assert isinstance(like.type, TensorType)
    real = TensorType(DataType.FLOAT, like.shape)
    steps = np.asarray(np.floor(np.float32(1) / out[0]), np.float32)
    low, high = (patch.constant(np.asarray(end, np.float32)) for end in _LIMITS[like.type.dtype])
    value = patch.op("Mul", [chances, patch.constant(steps)], {}, type=real, opset=SINCE)
    value = patch.op("Add", [value, patch.constant(np.asarray(0.5, np.float32))], {}, type=real, opset=SINCE)
    value = patch.op("Floor", [value], {}, type=real, opset=SINCE)
    value = patch.op("Add", [value, patch.constant(np.asarray(out[1], np.float32))], {}, type=real, opset=SINCE)
    value = patch.op("Clip", [value, low, high], {}, type=real, opset=SINCE)
    return patch.op("Cast", [value], {"to": int(like.type.dtype)}, type=like.type, opset=SINCE)
