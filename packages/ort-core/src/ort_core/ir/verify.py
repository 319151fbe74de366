"""verify(): the invariants that every pass must leave true; raises ``InvalidGraph`` at the first breach."""

from __future__ import annotations

from ort_core.errors import InvalidGraph
from ort_core.ir.graph import Graph
from ort_core.ir.model import Model
from ort_core.ir.nodes import Node
from ort_core.ir.traversal import graphs_of, walk
from ort_core.ir.values import Value


def verify(model: Model) -> None:
    """Check a model: names unique and in scope, producers before readers, uses and owners recorded truthfully.

    Raises:
        InvalidGraph: an invariant does not hold; the message names the graph, the node and the value.
    """
    for graph in (model.graph, *(function.graph for function in model.functions.values())):
        _verify_graph(graph, {})
        _verify_uses(graph)


def _verify_graph(graph: Graph, scope: dict[str, Value]) -> None:
    visible = dict(scope)
    for value in (*graph.inputs, *(v for v in graph.initializers if not v.is_graph_input)):
        _declare(graph, visible, scope, value, None)
    for node in graph:
        if node.graph is not graph:
            raise InvalidGraph(f"{node.describe()} is in graph {graph.name!r} but belongs to another one")
        for index, used in enumerate(node.inputs):
            _check_read(graph, visible, node, index, used)
        for nested in node.subgraphs():
            if nested.owner is not node:
                raise InvalidGraph(f"a body of {node.describe()} does not name it as its owner")
            _verify_graph(nested, visible)
        for index, made in enumerate(node.outputs):
            if made is None:
                continue
            if made.producer is not node or made.output_index != index:
                raise InvalidGraph(f"output {made.name!r} of {node.describe()} names another producer")
            _declare(graph, visible, scope, made, node)
    for value in graph.outputs:
        if visible.get(value.name) is not value:
            raise InvalidGraph(f"graph {graph.name!r} returns {value.name!r}, which nothing in it defines")


def _verify_uses(graph: Graph) -> None:
    """Check that each recorded use is one of a node that is still there: others keep dead values alive."""
    members = set(walk(graph))
    for each in graphs_of(graph):
        made = (value for node in each for value in node.present_outputs())
        for value in (*each.inputs, *each.initializers, *made):
            for reader, index in value._uses:
                if reader not in members or reader.input(index) is not value:
                    raise InvalidGraph(
                        f"{value.name!r} records a use by {reader.describe()}, which is gone or reads another"
                    )


def _declare(graph: Graph, visible: dict[str, Value], scope: dict[str, Value], value: Value, node: Node | None) -> None:
    where = node.describe() if node else f"graph {graph.name!r}"
    if not value.name:
        raise InvalidGraph(f"{where} defines a value without a name")
    other = visible.get(value.name)
    if other is not None and not (node is None and value.name in scope and scope[value.name] is other):
        raise InvalidGraph(f"{where} defines {value.name!r}, a name that is taken already")
    if value.graph is not graph:
        raise InvalidGraph(f"value {value.name!r} of {where} says it belongs to another graph")
    visible[value.name] = value


def _check_read(graph: Graph, visible: dict[str, Value], node: Node, index: int, value: Value | None) -> None:
    if value is None:
        return
    if visible.get(value.name) is not value:
        raise InvalidGraph(
            f"{node.describe()} in graph {graph.name!r} reads {value.name!r} (input {index}), "
            "which is not defined before it or hidden by another value of that name"
        )
    if (node, index) not in value._uses:
        raise InvalidGraph(f"{node.describe()} reads {value.name!r}, which does not record that use")
