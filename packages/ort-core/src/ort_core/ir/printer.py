"""Text of models and graphs for people: one line a node, types beside names, nested graphs indented."""

from __future__ import annotations

from collections.abc import Iterator

from ort_core.ir.attributes import Attribute
from ort_core.ir.constants import Constant
from ort_core.ir.graph import Graph
from ort_core.ir.model import Model
from ort_core.ir.nodes import Node
from ort_core.ir.types import SparseTensorType, TensorType, ValueType
from ort_core.ir.values import Value

_MAX_LISTED = 8


def format_model(model: Model) -> str:
    """Return a readable listing of a model."""
    imports = ", ".join(f"{domain or 'ai.onnx'}:{version}" for domain, version in model.opset_imports.items())
    lines = [f"model ir={model.ir_version} opsets=[{imports}] producer={model.producer_name!r}"]
    lines.extend(_graph_lines(model.graph, ""))
    for function in model.functions.values():
        lines.append(f"function {function.domain}::{function.name}")
        lines.extend(_graph_lines(function.graph, ""))
    return "\n".join(lines)


def format_type(value_type: ValueType | None) -> str:
    """Return a type with its shape, such as ``float[N, 3]``."""
    if value_type is None:
        return "?"
    if isinstance(value_type, (TensorType, SparseTensorType)):
        prefix = "sparse " if isinstance(value_type, SparseTensorType) else ""
        if value_type.shape is None:
            return f"{prefix}{value_type.dtype.text}[...]"
        return f"{prefix}{value_type.dtype.text}[{', '.join('?' if d is None else str(d) for d in value_type.shape)}]"
    return str(value_type)


def _graph_lines(graph: Graph, indent: str) -> Iterator[str]:
    yield f"{indent}graph {graph.name} ({', '.join(map(_typed, graph.inputs))})"
    for value in graph.initializers:
        constant = value.constant
        content = "" if constant is None or not 0 < constant.size <= _MAX_LISTED else f" = {_elements(constant)}"
        yield f"{indent}  const {_typed(value)}{content}"
    for node in graph:
        yield from _node_lines(node, indent + "  ")
    yield f"{indent}  return {', '.join(map(_typed, graph.outputs))}"


def _node_lines(node: Node, indent: str) -> Iterator[str]:
    outputs = ", ".join("-" if v is None else _typed(v) for v in node.outputs)
    inputs = ", ".join("-" if v is None else v.name for v in node.inputs)
    attributes = ", ".join(f"{a.name}={_attribute(a)}" for a in node.attributes.values())
    yield f"{indent}{outputs} = {node.qualified_name}({inputs})" + (f" {{{attributes}}}" if attributes else "")
    for nested in node.subgraphs():
        yield from _graph_lines(nested, indent + "  ")


def _typed(value: Value) -> str:
    return f"{value.name}: {format_type(value.type)}"


def _elements(constant: Constant) -> str:
    return str(constant.array().tolist())


def _attribute(attribute: Attribute) -> str:
    if attribute.reference is not None:
        return f"@{attribute.reference}"
    if attribute.graphs():
        return "<graph>"
    value = attribute.value
    if isinstance(value, Constant) and 0 < value.size <= _MAX_LISTED:
        return _elements(value)
    if isinstance(value, tuple) and len(value) > _MAX_LISTED:
        return f"({', '.join(map(repr, value[:_MAX_LISTED]))}, ... {len(value)} in all)"
    return repr(value)
