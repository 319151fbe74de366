"""Attributes of nodes: a name, a kind numbered as in ONNX, and a value (or a reference to a function's attribute)."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

import numpy as np

from ort_core.frozen import frozen
from ort_core.ir.constants import Constant
from ort_core.ir.types import DataType, ValueType
from ort_core.ir.values import Body

if TYPE_CHECKING:
    from ort_core.ir.graph import Graph


class AttributeKind(enum.IntEnum):
    """Kinds of attributes, numbered as in ``AttributeProto.AttributeType``."""

    UNDEFINED = 0
    FLOAT = 1
    INT = 2
    STRING = 3
    TENSOR = 4
    GRAPH = 5
    FLOATS = 6
    INTS = 7
    STRINGS = 8
    TENSORS = 9
    GRAPHS = 10
    SPARSE_TENSOR = 11
    SPARSE_TENSORS = 12
    TYPE_PROTO = 13
    TYPE_PROTOS = 14


GRAPH_KINDS = frozenset({AttributeKind.GRAPH, AttributeKind.GRAPHS})  # asked of every attribute of every node


@frozen
class SparseConstant:
    """Sparse tensor data: values [nnz], indices [nnz] or [nnz, rank], and the dense shape."""

    values: Constant
    indices: Constant
    shape: tuple[int, ...]

    @property
    def dtype(self) -> DataType:
        """The element type of the values."""
        return self.values.dtype


AttributeValue = object
"""A float, int, str, Constant, Graph, SparseConstant or ValueType, or a tuple of them, as ``Attribute.kind`` says."""


@frozen
class Attribute:
    """One attribute.

    ``value`` is by kind a float, int, str, Constant, Graph, SparseConstant or ValueType, or a tuple of these.
    Inside a function body ``reference`` may name an attribute of the function instead, and ``value`` is ``None``.
    """

    name: str
    kind: AttributeKind
    value: AttributeValue
    reference: str | None = None

    @classmethod
    def of(cls, name: str, value: object) -> Attribute:
        """Build an attribute from a Python value; the kind follows from its type.

        Raises:
            TypeError: the value fits no kind (an empty list does not say of what: build ``Attribute`` directly).
        """
        if isinstance(value, np.ndarray):
            value = Constant.of(value)
        if isinstance(value, (list, tuple)):
            if not value:
                raise TypeError(f"attribute {name!r}: the kind of an empty list is unknown; name it")
            kinds = {_kind_of(name, item) for item in value}
            kind = AttributeKind.FLOAT if kinds == {AttributeKind.INT, AttributeKind.FLOAT} else kinds.pop()
            return cls(name, _LISTS[kind], tuple(value))
        return cls(name, _kind_of(name, value), value)

    def graphs(self) -> tuple[Graph, ...]:
        """Return the nested graphs that this attribute holds."""
        if self.reference is not None or self.kind not in GRAPH_KINDS:
            return ()
        if self.kind is AttributeKind.GRAPH:
            return (self.value,)  # type: ignore[return-value]  # the kind says that it is a Graph
        return tuple(self.value)  # type: ignore[arg-type]  # the kind says that it is a tuple of Graphs


_LISTS = {
    AttributeKind.FLOAT: AttributeKind.FLOATS,
    AttributeKind.INT: AttributeKind.INTS,
    AttributeKind.STRING: AttributeKind.STRINGS,
    AttributeKind.TENSOR: AttributeKind.TENSORS,
    AttributeKind.GRAPH: AttributeKind.GRAPHS,
    AttributeKind.SPARSE_TENSOR: AttributeKind.SPARSE_TENSORS,
    AttributeKind.TYPE_PROTO: AttributeKind.TYPE_PROTOS,
}


def _kind_of(name: str, value: object) -> AttributeKind:
    if isinstance(value, (bool, int, np.integer)):
        return AttributeKind.INT
    if isinstance(value, (float, np.floating)):
        return AttributeKind.FLOAT
    if isinstance(value, str):
        return AttributeKind.STRING
    if isinstance(value, Constant):
        return AttributeKind.TENSOR
    if isinstance(value, SparseConstant):
        return AttributeKind.SPARSE_TENSOR
    if isinstance(value, Body):
        return AttributeKind.GRAPH
    if isinstance(value, ValueType):
        return AttributeKind.TYPE_PROTO
    raise TypeError(f"attribute {name!r}: a {type(value).__name__} is not an attribute value")
