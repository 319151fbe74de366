"""Softmax, Where and ReduceMean of quantized tensors, as the reals that they compute on between two conversions.

y = QLinearSoftmax(x)     ->  Saturate(Floor(Softmax(Dequantize(x)) * steps + 0.5) + zero)
y = QLinearWhere(c, x, y) ->  Quantize(Where(c, Dequantize(x), Dequantize(y)))
y = QLinearReduceMean(x)  ->  Quantize(ReduceMean(Dequantize(x)))

The compiler has rules for the parts and for how they fuse with what lies around them. The parts are of the model's
opset, in older models of opset 13; a model before opset 10 has no form of them, and keeps its operator.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from ort_core.plugin import Rejection, frozen
from ort_core.plugin.ir import DataType, Node, TensorType, Value, ValueType
from ort_core.plugin.rewrite import GraphPatch, Match, Pattern, RewriteRule, op, var

MICROSOFT = "com.microsoft"
SINCE = 13  # of the parts: Softmax along one axis
_OLDEST = 10  # where DequantizeLinear begins: a saved model has the parts in its own opset
_AXES_ARE_INPUTS = 18  # of ReduceMean
_LIMITS = {DataType.UINT8: (0, 255), DataType.INT8: (-128, 127)}


@frozen
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


@frozen
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
        if match.model.opset_imports.get("", SINCE) < _OLDEST:
            return Rejection("the model's opset has no DequantizeLinear", root)
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
        patch, root = _Parts(match), match.root
        places = _PLACES[self._op_type]
        reals = [
            patch.dequantized(_given(root, place.tensor), grid)
            for place, grid in zip(places[:-1], bindings.numbers[:-1], strict=True)
        ]
        out, shape = bindings.numbers[-1], root.output.shape
        real = TensorType(DataType.FLOAT, shape)
        if self._op_type == "QLinearSoftmax":
            axis = root.int_attribute("axis", -1)
            result = patch.counted(patch.part("Softmax", reals, real, axis=axis), out, root.output)
        else:
            if self._op_type == "QLinearWhere":
                value = patch.part("Where", [_given(root, 0), *reals], real)
            else:
                axes = _axes(root) or tuple(range(len(_given(root, 0).shape or ())))
                value = patch.mean(reals[0], axes, root.int_attribute("keepdims", 1), real)
            inputs = [value, patch.constant(out[0]), patch.constant(out[1])]
            result = patch.part("QuantizeLinear", inputs, root.output.type)
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


class _Parts(GraphPatch):
    """A patch that makes the parts in the opset of the model, or, where that is older, in ``SINCE``."""

    def __init__(self, match: Match) -> None:
        super().__init__(match.model, match.root)
        self._version = match.model.opset_imports.get("", 0)

    def part(
        self, op_type: str, inputs: Sequence[Value], made: ValueType | None, **attributes: int | Sequence[int] | None
    ) -> Value:
        """Make a node and return its output."""
        opset = None if self._version >= SINCE else SINCE
        return self.op(op_type, inputs, attributes, type=made, opset=opset)

    def dequantized(self, value: Value, grid: tuple[np.ndarray, np.ndarray]) -> Value:
        """Return the reals of a quantized tensor."""
        inputs = [value, self.constant(grid[0]), self.constant(grid[1])]
        return self.part("DequantizeLinear", inputs, TensorType(DataType.FLOAT, value.shape))

    def mean(self, value: Value, axes: Sequence[int], keeps: int, made: TensorType) -> Value:
        """Return the mean over some axes."""
        if self._version < _AXES_ARE_INPUTS:
            return self.part("ReduceMean", [value], made, axes=axes or None, keepdims=keeps)
        return self.part("ReduceMean", [value, self.constant(np.asarray(axes, np.int64))], made, keepdims=keeps)

    def counted(self, chances: Value, out: tuple[np.ndarray, np.ndarray], like: Value) -> Value:
        """Count chances in whole steps of the scale, a half rounded up, as onnxruntime does."""
        assert isinstance(like.type, TensorType)
        real = TensorType(DataType.FLOAT, like.shape)
        steps = np.asarray(np.floor(np.float32(1) / out[0]), np.float32)
        low, high = (self.constant(np.asarray(end, np.float32)) for end in _LIMITS[like.type.dtype])
        value = self.part("Mul", [chances, self.constant(steps)], real)
        value = self.part("Add", [value, self.constant(np.asarray(0.5, np.float32))], real)
        value = self.part("Floor", [value], real)
        value = self.part("Add", [value, self.constant(np.asarray(out[1], np.float32))], real)
        value = self.part("Clip", [value, low, high], real)
        return self.part("Cast", [value], like.type, to=int(like.type.dtype))
