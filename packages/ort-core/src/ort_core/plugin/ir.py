"""The IR for plugin authors (provisional): types, values, nodes, graphs, models and walks over them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ort_core.lazy_names import lazy_names

if TYPE_CHECKING:
    from ort_core.ir.attributes import Attribute, AttributeKind
    from ort_core.ir.constants import Constant
    from ort_core.ir.dims import (
        Call,
        Dim,
        DimTooLarge,
        KnownDim,
        Symbol,
        SymbolicDim,
        broadcast,
        ceil_div,
        maximum,
        minimum,
    )
    from ort_core.ir.graph import Graph
    from ort_core.ir.model import Function, Model
    from ort_core.ir.nodes import Node
    from ort_core.ir.subgraph import Border, border_of, clone_graph, extract
    from ort_core.ir.traversal import captured_values, predecessors, topological_order, walk
    from ort_core.ir.type_data import dim_from_data, dim_to_data
    from ort_core.ir.types import (
        DataType,
        MapType,
        OptionalType,
        SequenceType,
        Shape,
        SparseTensorType,
        TensorType,
        ValueType,
    )
    from ort_core.ir.values import Value

__all__ = [
    "Attribute", "AttributeKind", "Border", "Call", "Constant", "DataType", "Dim", "DimTooLarge", "Function", "Graph",
    "KnownDim", "MapType", "Model", "Node", "OptionalType", "SequenceType", "Shape", "SparseTensorType", "Symbol",
    "SymbolicDim", "TensorType", "Value", "ValueType", "border_of", "broadcast", "captured_values", "ceil_div",
    "clone_graph", "dim_from_data", "dim_to_data", "extract", "maximum", "minimum", "predecessors", "topological_order",
    "walk",
]  # fmt: skip

__getattr__, __dir__ = lazy_names(  # no plugin pays for names that it does not use
    __name__,
    {
        "ort_core.ir.attributes": ("Attribute", "AttributeKind"),
        "ort_core.ir.constants": ("Constant",),
        "ort_core.ir.dims": (
            "Call", "Dim", "DimTooLarge", "KnownDim", "Symbol", "SymbolicDim", "broadcast", "ceil_div", "maximum",
            "minimum",
        ),
        "ort_core.ir.graph": ("Graph",),
        "ort_core.ir.model": ("Function", "Model"),
        "ort_core.ir.nodes": ("Node",),
        "ort_core.ir.subgraph": ("Border", "border_of", "clone_graph", "extract"),
        "ort_core.ir.traversal": ("captured_values", "predecessors", "topological_order", "walk"),
        "ort_core.ir.type_data": ("dim_from_data", "dim_to_data"),
        "ort_core.ir.types": (
            "DataType", "MapType", "OptionalType", "SequenceType", "Shape", "SparseTensorType", "TensorType",
            "ValueType",
        ),
        "ort_core.ir.values": ("Value",),
    },
)  # fmt: skip
