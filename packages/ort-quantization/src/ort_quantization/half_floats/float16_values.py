"""The float values of a model, in all its graphs: who makes each, who reads it, and in which type it is kept.

A value that only operators which need float32 make and read stays float32; every other one becomes a half float.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto


@dataclass(slots=True, eq=False)
class ValueState:
    """One float value.

    Attributes:
        name: in the model as it was.
        is_made_float: whether what makes it gives float32.
        is_tensor: whether it is an initializer, of which a copy in either type can be stored.
        wants_half: whether an operator reads it as a half float.
        wants_float: whether one reads it as float32.
        is_fixed: whether the type that it is made in is what the caller sees: kept inputs and outputs.
        is_float: whether it is kept as float32; decided when all readers are known.
        inside: its name inside the graph; another than ``name`` where an output is cast at the end.
        float_name: its name in float32, where that is another.
        half_name: its name as a half float, where that is another.
    """

    name: str
    is_made_float: bool = False
    is_tensor: bool = False
    wants_half: bool = False
    wants_float: bool = False
    is_fixed: bool = False
    is_float: bool = False
    inside: str = ""
    float_name: str = ""
    half_name: str = ""

    def read(self, is_float: bool) -> str:
        """Return the name under which the value is read as float32 or as a half float."""
        return (self.float_name if is_float else self.half_name) or self.inside

    def settle(self, has_forced_tensors: bool) -> None:
        """Choose the type that the value is kept in."""
        self.inside = self.inside or self.name
        if self.is_fixed:
            self.is_float = True
        elif self.is_tensor:
            self.is_float = not self.wants_half and not has_forced_tensors
        else:
            self.is_float = self.is_made_float and self.wants_float and not self.wants_half


@dataclass(slots=True, eq=False)
class Scope:
    """A graph, the one around it, and the types of what it defines.

    Attributes:
        graph: of the model.
        outer: the graph around it.
        is_float: whether everything in it stays float32, as inside an operator that does.
        types: element types of values that the graph defines, where they are known.
        values: those of float32.
        nodes: of the graph; they are known by number (``id``) as long as they are held.
        inner: scopes of the graphs inside a node, by its number.
    """

    graph: GraphProto
    outer: Scope | None
    is_float: bool
    types: dict[str, int] = field(default_factory=dict)
    values: dict[str, ValueState] = field(default_factory=dict)
    nodes: list[NodeProto] = field(default_factory=list)
    inner: dict[int, list[Scope]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.nodes = list(self.graph.node)

    def find(self, name: str) -> ValueState | None:
        """Return the float value that a name stands for here, ``None`` for others."""
        if name in self.values:
            return self.values[name]
        if self.outer is None or name in self.types:
            return None
        return self.outer.find(name)

    def type_of(self, name: str) -> int:
        """Return the element type of a value, 0 where it is not known."""
        if name in self.types:
            return self.types[name]
        return self.outer.type_of(name) if self.outer is not None else 0


def element_type(value: ValueInfoProto) -> int:
    """Return the element type of a tensor, or of the tensors of a sequence or optional; 0 for others."""
    kind = value.type
    while True:
        if kind.HasField("sequence_type"):
            kind = kind.sequence_type.elem_type
        elif kind.HasField("optional_type"):
            kind = kind.optional_type.elem_type
        else:
            return kind.tensor_type.elem_type if kind.HasField("tensor_type") else 0


def set_element_type(value: ValueInfoProto, element: int) -> None:
    """Give a value another element type."""
    kind = value.type
    while kind.HasField("sequence_type") or kind.HasField("optional_type"):
        kind = kind.sequence_type.elem_type if kind.HasField("sequence_type") else kind.optional_type.elem_type
    kind.tensor_type.elem_type = element


def is_float_type(element: int) -> bool:
    """Return whether an element type is the one that is converted."""
    return element == TensorProto.FLOAT
