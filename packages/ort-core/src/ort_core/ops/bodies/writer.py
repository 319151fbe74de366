"""BodyWriter: writes the function body of one node, a value for each call, in the forms of the model's own opset.

    mean = w.reduce("ReduceMean", x, [-1])      # axes as an attribute before opset 18, as an input from then on
    centered = w.op("Sub", x, mean)

A body is written for one node: its attributes, its element types and which inputs are there are known.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ort_core.ir.constants import Constant
from ort_core.ir.dims import Dim
from ort_core.ir.graph import Graph
from ort_core.ir.nodes import Node
from ort_core.ir.types import DataType, TensorType, ValueType
from ort_core.ir.values import Value
from ort_core.ops.schema import OpSchema
from ort_core.ops.typed_attributes import TypedAttributes

OLDEST_OPSET = 13  # of ai.onnx: from here on Squeeze, ReduceSum and Split take their axes and sizes as inputs
_AXES_ARE_INPUTS = {"ReduceSum": 13}  # every other reduction from opset 18 on
_WIDE = frozenset({DataType.FLOAT, DataType.DOUBLE})


class NoBody(Exception):  # an answer on its way out of nested calls: it becomes a Rejection
    """A node has no body, and why."""


class BodyWriter(TypedAttributes):
    """Writes one body.

    Args:
        node: the node that the body is for.
        types: of its inputs, as far as they are known.
        schema: its operator.
        opset: the version of ai.onnx whose operators the body is made of.
    """

    def __init__(self, node: Node, types: Sequence[ValueType | None], schema: OpSchema, opset: int) -> None:
        self.node, self.opset = node, opset
        self.graph = Graph(node.op_type)
        self._schema = schema
        self._types = [*types, *[None] * (len(node.inputs) - len(types))]
        self._inputs: list[Value] = []
        self._constants: dict[tuple[bytes, tuple[int, ...], DataType], Value] = {}
        self._count = 0
        for index in range(len(node.inputs)):
            parameter = schema.input_parameter(index)
            formal = Value(f"{parameter.name if parameter is not None else 'input'}_{index}", self._types[index])
            self.graph.add_input(formal)
            self._inputs.append(formal)

    # What is known of the node.

    def has(self, index: int) -> bool:
        """Return whether an input is there."""
        return self.node.input(index) is not None

    def find(self, index: int) -> Value | None:
        """Return an input, ``None`` where it is absent."""
        return self._inputs[index] if self.has(index) else None

    def place(self, index: int | None) -> Value | None:
        """Return an input of floats in the type that is computed in, ``None`` where there is none."""
        return None if index is None else self.find_wide(index)

    def input(self, index: int) -> Value:
        """Return an input that must be there."""
        if not self.has(index):
            raise NoBody(f"{self.node.op_type} without input {index} has no body")
        return self._inputs[index]

    def wants(self, output: int) -> bool:
        """Return whether somebody takes an output."""
        return output < len(self.node.outputs) and self.node.outputs[output] is not None

    def dtype(self, index: int) -> DataType:
        """Return the element type of an input."""
        found = self._types[index]
        if not isinstance(found, TensorType):
            raise NoBody(f"the element type of input {index} is not known")
        return found.dtype

    def shape(self, index: int) -> tuple[Dim, ...] | None:
        """Return what is known of the shape of an input."""
        found = self._types[index] if index < len(self._types) else None
        return tuple(found.shape) if isinstance(found, TensorType) and found.shape is not None else None

    def rank(self, index: int) -> int:
        """Return the rank of an input, by which the form of the body goes."""
        shape = self.shape(index)
        if shape is None:
            raise NoBody(f"the rank of input {index} is not known")
        return len(shape)

    def shape_of_rank(self, index: int, *ranks: int) -> tuple[Dim, ...] | None:
        """Return the shape of an input if it is known and has one of some ranks."""
        shape = self.shape(index) if self.has(index) else None
        return shape if shape is not None and len(shape) in ranks else None

    def constant_input(self, index: int) -> Constant | None:
        """Return the constant that an input is, ``None`` of one that a run hands in."""
        value = self.node.input(index)
        return None if value is None or value.graph is None else value.graph.fixed_constant(value)

    def attribute(self, name: str) -> object:
        """Return an attribute, or the operator's default, or ``None``."""
        given = self.node.attributes.get(name)
        if given is None and name in self._schema.attributes:
            given = self._schema.attributes[name].default
        return None if given is None else given.value

    # What the body is made of.

    def op(self, op_type: str, *inputs: Value | None, **attributes: object) -> Value:
        """Append a node with one output."""
        return self.ops(op_type, *inputs, outputs=1, **attributes)[0]

    def ops(self, op_type: str, *inputs: Value | None, outputs: int, **attributes: object) -> list[Value]:
        """Append a node with several outputs; attributes that are ``None`` are left out."""
        given = {name: value for name, value in attributes.items() if value is not None}
        made = [self._value(op_type) for _ in range(outputs)]
        self.graph.append(Node(op_type, inputs, made, given))
        return made

    def _value(self, hint: str) -> Value:
        self._count += 1
        return Value(f"{hint}_{self._count}")

    def constant(self, numbers: object, dtype: DataType) -> Value:
        """Return a constant; equal ones are one value."""
        array = np.asarray(numbers, dtype.numpy)
        key = (array.tobytes(), array.shape, dtype)
        if key not in self._constants:
            self._constants[key] = self.op("Constant", value=Constant.of(array, dtype))
        return self._constants[key]

    def ints(self, *numbers: int) -> Value:
        """Return a constant list of int64."""
        return self.constant(np.array(numbers, np.int64), DataType.INT64)

    def cast(self, x: Value, dtype: DataType) -> Value:
        """Return a value in another element type."""
        return self.op("Cast", x, to=int(dtype))

    def computing(self, index: int = 0) -> DataType:
        """Return the type in which numbers of an input's type are computed: float32 for narrower ones."""
        own = self.dtype(index)
        return own if own in _WIDE or not own.is_float else DataType.FLOAT

    def wide(self, index: int) -> Value:
        """Return an input in the type in which it is computed."""
        x, own, target = self.input(index), self.dtype(index), self.computing(index)
        return x if own is target else self.cast(x, target)

    def find_wide(self, index: int) -> Value | None:
        """Return ``wide`` of an input, ``None`` where it is absent."""
        return self.wide(index) if self.has(index) else None

    def narrow(self, x: Value, index: int = 0) -> Value:
        """Return a computed value in the type of an input."""
        return x if self.computing(index) is self.dtype(index) else self.cast(x, self.dtype(index))

    def sum(self, *terms: Value | None) -> Value:
        """Return the sum of the terms that are there."""
        present = [term for term in terms if term is not None]
        total = present[0]
        for term in present[1:]:
            total = self.op("Add", total, term)
        return total

    # Shapes.

    def size(self, x: Value, axis: int) -> Value:
        """Return the size of an axis as a list of one int64; a constant where it is known of an input."""
        shape = x.shape if x in self._inputs else None
        known = None if shape is None or axis >= len(shape) else shape[axis]
        if isinstance(known, int):
            return self.ints(known)
        return self.op("Gather", self.op("Shape", x), self.ints(axis), axis=0)

    def reshape(self, x: Value, *sizes: int | Value) -> Value:
        """Reshape to sizes: numbers (0 keeps, -1 follows) and lists of int64."""
        if all(isinstance(each, int) for each in sizes):
            return self.op("Reshape", x, self.ints(*[each for each in sizes if isinstance(each, int)]))
        return self.op("Reshape", x, self.joined(*[self.ints(s) if isinstance(s, int) else s for s in sizes], axis=0))

    def joined(self, *parts: Value, axis: int) -> Value:
        """Concatenate."""
        return parts[0] if len(parts) == 1 else self.op("Concat", *parts, axis=axis)

    def transpose(self, x: Value, *axes: int) -> Value:
        """Return the axes in another order."""
        return x if list(axes) == sorted(axes) else self.op("Transpose", x, perm=list(axes))

    def slice(self, x: Value, axis: int, start: int | Value, end: int | Value | None = None, step: int = 1) -> Value:
        """Return a part of an axis; without an end all behind the start."""
        last = self.ints(np.iinfo(np.int64).max) if end is None else self._list(end)
        steps = () if step == 1 else (self.ints(step),)
        return self.op("Slice", x, self._list(start), last, self.ints(axis), *steps)

    def _list(self, number: int | Value) -> Value:
        return self.ints(number) if isinstance(number, int) else number

    def unsqueeze(self, x: Value, *axes: int) -> Value:
        """Insert axes of length 1."""
        return self.op("Unsqueeze", x, self.ints(*axes))

    def squeeze(self, x: Value, *axes: int) -> Value:
        """Remove axes of length 1."""
        return self.op("Squeeze", x, self.ints(*axes))

    def scalar(self, x: Value, index: int) -> Value:
        """Return an input of one element without its axes."""
        return x if self.shape(index) == () else self.op("Reshape", x, self.constant(np.zeros(0), DataType.INT64))

    def range(self, stop: Value, start: Value | None = None) -> Value:
        """Return int64 from 0 or ``start`` up to ``stop``, both lists of one element."""
        first = self.constant(0, DataType.INT64) if start is None else self.squeeze(start, 0)
        return self.op("Range", first, self.squeeze(stop, 0), self.constant(1, DataType.INT64))

    def reduce(self, op_type: str, x: Value, axes: Sequence[int], *, keepdims: int = 1) -> Value:
        """Reduce over some axes."""
        if self.opset >= _AXES_ARE_INPUTS.get(op_type, 18):
            return self.op(op_type, x, self.ints(*axes), keepdims=keepdims)
        return self.op(op_type, x, axes=list(axes), keepdims=keepdims)
