"""normalize(): the form in which passes may rely on a model; meaning and public names stay.

Initializers of models before IR version 4 stop being inputs (they had to be, and could not be overridden then),
Constant nodes become initializers, nodes without a named output are gone, and a nested graph returns only values of
its own (an Identity node copies what it returned from outside). So a constant is always an initializer, and a value's
recorded uses and its own graph's outputs are all the readers that it has.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ort_core.ir.attributes import AttributeKind
from ort_core.ir.constants import Constant
from ort_core.ir.graph import Graph
from ort_core.ir.model import Model
from ort_core.ir.nodes import Node
from ort_core.ir.traversal import graphs_of
from ort_core.ir.values import Value

OVERRIDABLE_SINCE_IR = 4


def normalize(model: Model) -> int:
    """Bring a model into the form described above and return how many changes that took."""
    graphs = tuple(graphs_of(model.graph))
    count = _drop_unnamed(graphs) + sum(
        _drop_unnamed(tuple(graphs_of(each.graph))) for each in model.functions.values()
    )
    if model.ir_version < OVERRIDABLE_SINCE_IR:
        model.ir_version = OVERRIDABLE_SINCE_IR
        for graph in graphs:
            count += sum(value.constant is not None for value in graph.inputs)
            graph.set_inputs([value for value in graph.inputs if value.constant is None])
    count += sum(_own_outputs(graph) for graph in graphs if graph.owner is not None)
    for graph in graphs:
        for node in graph.nodes:
            if node.op_type == "Constant" and node.domain == "":
                count += _make_initializer(graph, node)
    return count


def drop_unnamed(model: Model) -> int:
    """Remove nodes of which no output has a name, in functions as well; return how many."""
    wholes = (model.graph, *(function.graph for function in model.functions.values()))
    return sum(_drop_unnamed(tuple(graphs_of(whole))) for whole in wholes)


def _drop_unnamed(graphs: Iterable[Graph]) -> int:
    count = 0
    for graph in graphs:
        unnamed = [node for node in graph.nodes if not any(node.outputs)]
        for node in unnamed:
            graph.remove(node)
        count += len(unnamed)
    return count


def constant_of_node(node: Node) -> Constant | None:
    """Return the data of a Constant node, or ``None`` when it is sparse or refers to a function's attribute."""
    for attribute in node.attributes.values():
        if attribute.reference is not None:
            return None
        value = attribute.value
        if attribute.kind is AttributeKind.TENSOR and isinstance(value, Constant):
            return value
        if attribute.kind in (AttributeKind.FLOAT, AttributeKind.FLOATS):
            return Constant.of(np.array(value, np.float32))
        if attribute.kind in (AttributeKind.INT, AttributeKind.INTS):
            return Constant.of(np.array(value, np.int64))
        if attribute.kind in (AttributeKind.STRING, AttributeKind.STRINGS):
            return Constant.of(np.array(value, object))
    return None


def _make_initializer(graph: Graph, node: Node) -> int:
    constant = constant_of_node(node)
    if constant is None:
        return 0
    value = node.output
    initializer = Value(value.name, constant=constant)
    initializer.doc, initializer.metadata = value.doc, dict(value.metadata)
    value.replace_uses(initializer, outputs=True)
    graph.remove(node)
    graph.add_initializer(initializer)
    return 1


def _own_outputs(graph: Graph) -> int:
    count = 0
    for index, value in enumerate(graph.outputs):
        if value.graph is not graph:
            copy = Value(graph.fresh_name(f"{value.name}_returned"), value.type)
            graph.append(Node("Identity", [value], [copy], name=graph.fresh_name(f"{value.name}_identity")))
            graph.set_output(index, copy)
            count += 1
    return count
