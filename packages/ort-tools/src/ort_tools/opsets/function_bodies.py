"""The function body that a schema has of an operator, as a graph of its own with the types of one node's inputs."""

from __future__ import annotations

from onnx import AttributeProto, FunctionProto, GraphProto, NodeProto, TensorProto, TypeProto

from ort_core.model_graphs import reads_of
from ort_tools.opsets.node_view import NodeView
from ort_tools.opsets.schema_facts import Schema, default_of, find_schema


def find_body(view: NodeView) -> tuple[GraphProto, int] | None:
    """Return the body of a node and the operator set that it is written in, ``None`` where the schema has none.

    Inputs and outputs have the node's names; inputs that are constants are initializers, too.
    """
    schema = find_schema(view.node.op_type, view.source)
    found = None if schema is None else _function(schema, view)
    if schema is None or found is None:
        return None
    function, opset = found
    names = {formal: view.input(place) for place, formal in enumerate(function.input)}
    for formal, result in zip(function.output, view.node.output, strict=False):
        names[formal] = result or view.fresh(f"{view.node.op_type}_{formal}")
    for node in function.node:
        for name in node.output:
            names.setdefault(name, view.fresh(f"{view.node.output[0] or view.node.op_type}_{name}") if name else "")
    graph = GraphProto(name=view.node.op_type)
    for name in dict.fromkeys(name for name in view.node.input if name):
        graph.input.add(name=name).type.CopyFrom(view.type_of(name) or TypeProto())
    for formal in function.output[: len(view.node.output)]:
        graph.output.add(name=names[formal])
    attributes = {each.name: each for each in view.node.attribute}
    defaults = {name: default for name in schema.attributes if (default := default_of(schema, name)) is not None}
    for node in function.node:
        _copy(node, graph.node.add(), names, defaults | attributes)
    _drop_unread(graph)
    return graph, opset


def _function(schema: Schema, view: NodeView) -> tuple[FunctionProto, int] | None:
    function = FunctionProto()
    versions = [each for each in schema.function_opset_versions if each <= view.source]
    if versions:
        content = schema.get_function_with_opset_version(max(versions))
        function.ParseFromString(content)
        return function, _opset_of(function, max(versions))
    versions = [each for each in schema.context_dependent_function_opset_versions if each <= view.source]
    if not versions:
        return None
    types = [(view.type_of(name) or TypeProto()) if name else TypeProto() for name in view.node.input]
    if any(name and not each.WhichOneof("value") for name, each in zip(view.node.input, types, strict=True)):
        raise view.refuse("its function body depends on types that are not known")
    content = schema.get_context_dependent_function_with_opset_version(
        max(versions), view.node.SerializeToString(), [each.SerializeToString() for each in types]
    )
    if not content:
        return None
    function.ParseFromString(content)
    return function, _opset_of(function, max(versions))


def _opset_of(function: FunctionProto, version: int) -> int:
    return next((int(each.version) for each in function.opset_import if each.domain in ("", "ai.onnx")), version)


def _copy(node: NodeProto, target: NodeProto, names: dict[str, str], attributes: dict[str, AttributeProto]) -> None:
    target.CopyFrom(node)
    target.name = ""
    target.input[:] = [names.get(name, name) for name in node.input]
    target.output[:] = [names.get(name, name) for name in node.output]
    del target.attribute[:]
    for attribute in node.attribute:
        if not attribute.ref_attr_name:
            copy = target.attribute.add()
            copy.CopyFrom(attribute)
            for graph in (copy.g, *copy.graphs):
                _rename(graph, names, attributes)
        elif attribute.ref_attr_name in attributes:
            copy = target.attribute.add()
            copy.CopyFrom(attributes[attribute.ref_attr_name])
            copy.name = attribute.name


def _rename(graph: GraphProto, names: dict[str, str], attributes: dict[str, AttributeProto]) -> None:
    """Let a graph inside a body read the values around it by their names."""
    inside = {each.name for each in graph.input} | {name for node in graph.node for name in node.output}
    outside = {name: new for name, new in names.items() if name not in inside}
    for node in graph.node:
        copy = NodeProto()
        _copy(node, copy, outside, attributes)
        node.CopyFrom(copy)
    for output in graph.output:
        output.name = outside.get(output.name, output.name)


def _drop_unread(graph: GraphProto) -> None:
    """Drop the nodes that no output needs: those of outputs that the node does not have."""
    needed = {each.name for each in graph.output}
    kept: list[NodeProto] = []
    for node in reversed(graph.node):
        if needed & set(node.output):
            kept.append(node)
            needed |= reads_of(node)
    del graph.node[:]
    graph.node.extend(reversed(kept))


def put_constants(graph: GraphProto, constants: dict[str, TensorProto]) -> None:
    """Let inputs that are constants be known as such: they are initializers instead."""
    kept = [each for each in graph.input if each.name not in constants]
    for each in graph.input:
        if each.name in constants:
            tensor = graph.initializer.add()
            tensor.CopyFrom(constants[each.name])
            tensor.name = each.name
    del graph.input[:]
    graph.input.extend(kept)
