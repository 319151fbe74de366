"""InferenceContext: what an inference rule sees of its node, and how it says what it found.

Accessors check ranks and ranges and refuse with the node's name, so that rules stay free of index checks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from ort_core.ir.attributes import Attribute
from ort_core.ir.constants import Constant
from ort_core.ir.dims import Dim
from ort_core.ir.graph import Graph
from ort_core.ir.nodes import Node
from ort_core.ir.types import DataType, SequenceType, Shape, SparseTensorType, TensorType, ValueType
from ort_core.ops.schema import OpSchema
from ort_core.ops.symbolic_values import MAX_AXES, MAX_ELEMENTS, Element, SymbolicValue, make_value
from ort_core.ops.typed_attributes import TypedAttributes

if TYPE_CHECKING:
    from ort_core.ops.shape_inference import Inference, Scope


NotesMark = int


class InferenceRefusal(Exception):
    """A rule found the node's inputs or attributes to be impossible; ``kind`` as onnxruntime names it."""

    def __init__(self, reason: str, kind: str = "ShapeInferenceError") -> None:
        super().__init__(f"[{kind}] {reason}")


class InferenceContext(TypedAttributes):
    """One node as its rule sees it. Absent inputs have type ``None``, as have inputs of unknown type."""

    __slots__ = ("_engine", "_scope", "_types", "found", "found_constants", "found_values", "node", "opset", "schema")

    def __init__(
        self,
        engine: Inference,
        scope: Scope,
        node: Node,
        opset: int,
        schema: OpSchema | None,
        types: list[ValueType | None],
        found: list[ValueType | None],
    ) -> None:
        self._engine = engine
        self._scope = scope
        self._types = types
        self.node = node
        self.opset = opset
        self.schema = schema
        self.found = found
        self.found_values: dict[int, SymbolicValue] = {}
        self.found_constants: dict[int, Constant] = {}

    # ---- inputs

    @property
    def input_count(self) -> int:
        """Number of actual inputs, absent ones in between included."""
        return len(self._types)

    @property
    def output_count(self) -> int:
        """Number of actual outputs."""
        return len(self.found)

    def has_input(self, index: int) -> bool:
        """Return whether input ``index`` is there."""
        return self.node.input(index) is not None

    def has_output(self, index: int) -> bool:
        """Return whether output ``index`` is named."""
        return index < len(self.found) and self.node.outputs[index] is not None

    def type_of(self, index: int) -> ValueType | None:
        """Return the type of an input, ``None`` when it is absent or unknown."""
        return self._types[index] if index < len(self._types) else None

    def dtype(self, index: int) -> DataType | None:
        """Return the element type of a tensor input, ``None`` when it is absent, unknown or no tensor."""
        found = self.type_of(index)
        return found.dtype if isinstance(found, (TensorType, SparseTensorType)) else None

    def shape(self, index: int) -> Shape | None:
        """Return the shape of a tensor input, ``None`` when it is absent, unknown or no tensor."""
        found = self._types[index] if index < len(self._types) else None
        return found.shape if isinstance(found, (TensorType, SparseTensorType)) else None

    def shape_of_rank(self, index: int, *ranks: int) -> Shape | None:
        """Return the shape of an input that must have one of some ranks; refuses any other rank."""
        shape = self.shape(index)
        if shape is not None and len(shape) not in ranks:
            expected = " or ".join(map(str, ranks))
            self.refuse(f"Input {index} expected to have rank {expected} but has rank {len(shape)}")
        return shape

    def shape_min_rank(self, index: int, least: int) -> Shape | None:
        """Return the shape of an input that must have at least a rank; refuses a lower one."""
        shape = self.shape(index)
        if shape is not None and len(shape) < least:
            self.refuse(f"Input {index} must have at least {least} dimensions but has {len(shape)}")
        return shape

    def element_type(self, index: int) -> ValueType | None:
        """Return the element type of a sequence input."""
        found = self.type_of(index)
        return found.element if isinstance(found, SequenceType) else None

    def constant(self, index: int, limit: int = MAX_ELEMENTS * 8) -> np.ndarray | None:
        """Return the contents of an input that no caller can change, if it has at most ``limit`` elements."""
        found = self._engine.constant_of(self.node.input(index))
        return None if found is None or found.size > limit else self._engine.read(found, self.node)

    def value(self, index: int) -> SymbolicValue | None:
        """Return what is known of the elements of a small input, an object array of ``Element``."""
        return self._engine.value_of(self.node.input(index), self.node)

    def elements(self, index: int) -> tuple[Element, ...] | None:
        """Return the elements of a small input of rank 0 or 1, as a tuple."""
        found = self.value(index)
        return None if found is None or found.ndim > 1 else tuple(found.reshape(-1))

    def dims(self, index: int) -> Shape | None:
        """Return the elements of a small integer input of rank 0 or 1 as dimensions."""
        found = self.elements(index)
        return None if found is None else tuple(None if isinstance(d, float) else d for d in found)

    def integers(self, index: int) -> tuple[int, ...] | None:
        """Return the elements of a small integer input when all are plain numbers."""
        found = self.elements(index)
        if found is None or not all(isinstance(d, int) for d in found):
            return None
        return found  # type: ignore[return-value]  # checked just above

    def scalar(self, index: int) -> Element:
        """Return the one element of an input, ``None`` when unknown; refuses several elements."""
        found = self.elements(index)
        if found is None:
            return None
        if len(found) != 1:
            self.refuse(f"Input {index} must be a scalar but has {len(found)} elements")
        return found[0]

    # ---- attributes

    def attribute(self, name: str) -> object:
        """Return the value of an attribute, the schema's default, or ``None``."""
        found: Attribute | None = self.node.attributes.get(name)
        if found is not None and found.reference is not None:
            found = self._scope.attributes.get(found.reference)
        if found is not None:
            return found.value
        declared = None if self.schema is None else self.schema.attributes.get(name)
        return None if declared is None or declared.default is None else declared.default.value

    def graph_of(self, name: str) -> Graph:
        """Return a GRAPH attribute; refuses when it is missing."""
        found = self.attribute(name)
        if not isinstance(found, Graph):
            self.refuse(f"attribute '{name}' must hold a graph")
        return found

    def data_type_of(self, name: str, default: DataType | None = None) -> DataType | None:
        """Return an INT attribute as an element type; refuses unknown numbers."""
        found = self.attribute(name)
        if not isinstance(found, int) or found == 0:
            return default
        try:
            return DataType(found)
        except ValueError:
            where = f"{self.node.domain}. It is {found}, which is not an element type."
            raise InferenceRefusal(
                f"Attribute {name} does not specify a valid type in {where}", "TypeInferenceError"
            ) from None

    def axis(self, axis: int, rank: int) -> int:
        """Return a non-negative axis; refuses one outside ``[-rank, rank-1]``."""
        if not -rank <= axis < rank:
            self.refuse(
                f"axis must be in [-rank, rank-1]. input rank was {rank}; axis was {axis}. "
                f"Invalid value of attribute 'axis'. Rank={rank} Value={axis}"
            )
        return axis % rank

    def axes(self, axes: Sequence[int], rank: int) -> list[int]:
        """Return non-negative axes, each once; refuses those out of range or given twice."""
        found = [self.axis(axis, rank) for axis in axes]
        if len(set(found)) != len(found):
            self.refuse(f"axes {list(axes)} name an axis twice")
        return found

    # ---- results

    def set_shape(self, index: int, shape: Sequence[Dim] | None) -> None:
        """Say the shape of an output whose element type follows from the schema."""
        if index >= len(self.found) or shape is None:
            return
        current = self.found[index]
        if isinstance(current, (TensorType, SparseTensorType)):
            self.found[index] = type(current)(current.dtype, tuple(shape))

    def set_output(self, index: int, dtype: DataType | None, shape: Sequence[Dim] | None) -> None:
        """Say the element type and shape of an output."""
        if index < len(self.found) and dtype is not None:
            self.found[index] = TensorType(dtype, None if shape is None else tuple(shape))

    def set_type(self, index: int, value_type: ValueType | None) -> None:
        """Say the type of an output."""
        if index < len(self.found) and value_type is not None:
            self.found[index] = value_type

    def set_value(self, index: int, value: SymbolicValue | Sequence[Element] | None) -> None:
        """Say what is known of the elements of an output."""
        if value is None:
            return
        array = value if isinstance(value, np.ndarray) else make_value(tuple(value))
        if array.size <= MAX_ELEMENTS and array.ndim <= MAX_AXES:
            self.found_values[index] = array

    def set_constant(self, index: int, constant: Constant) -> None:
        """Say that an output is constant."""
        self.found_constants[index] = constant

    def copy(self, index: int, source: int = 0) -> None:
        """Say that an output has the type, the constant and the elements of an input."""
        self.set_type(index, self.type_of(source))
        constant = self._engine.constant_of(self.node.input(source))
        if constant is not None:
            self.found_constants[index] = constant
        else:
            self.set_value(index, self.value(source))

    # ---- nested graphs

    @property
    def depth(self) -> int:
        """How many bodies and function calls are around the node."""
        return self._scope.depth

    @property
    def is_expensive(self) -> bool:
        """Whether the model has taken so long that bodies should be inferred in one round."""
        return self._engine.is_expensive

    def infer_body(self, graph: Graph, types: Sequence[ValueType | None]) -> list[ValueType | None]:
        """Infer a nested graph for given types of its inputs; return the types of its outputs."""
        if len(types) != len(graph.inputs):
            self.refuse(f"graph '{graph.name}' has {len(graph.inputs)} inputs but is given {len(types)}")
        return self._engine.infer_nested(graph, types, self._scope)

    def body_values(self, graph: Graph) -> list[SymbolicValue | None]:
        """Return what is known of the elements of the outputs of a nested graph that was inferred just before."""
        return [self._engine.value_of(value, self.node) for value in graph.outputs]

    def notes_mark(self) -> NotesMark:
        """Return a mark of the notes made so far, for ``restore_notes`` before a body is inferred anew."""
        return self._engine.note_count()

    def restore_notes(self, mark: NotesMark) -> None:
        """Drop the notes made since the mark."""
        self._engine.drop_notes(mark)

    def refuse(self, reason: str) -> NoReturn:
        """Stop: the node is impossible, for the given reason."""
        raise InferenceRefusal(reason)
