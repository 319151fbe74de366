"""DeadCodeElimination: what nobody reads is not computed, and not stored.

Removes nodes and initializers without a reader. Graph inputs stay: they are the model's signature. No ONNX operator
has an effect beyond its outputs, so nothing else needs to be kept.
"""

from __future__ import annotations

from ort_core.ir.graph import Graph
from ort_core.ir.nodes import Node
from ort_core.passes.base import Pass, PassContext, PassRecordState


class DeadCodeElimination(Pass):
    """Remove what no output depends on."""

    name = "DeadCodeElimination"

    def apply(self, context: PassContext, record: PassRecordState) -> None:
        """Sweep each graph backwards, inner graphs after the outer nodes around them."""
        record.changed("unread nodes", _remove_nodes(context.model.graph))
        for graph in context.graphs():
            record.tidied("unread initializers", _remove_initializers(graph))


def _remove_nodes(graph: Graph) -> int:
    count = 0
    returned = {id(value) for value in graph.outputs}
    for node in reversed(graph):
        if _is_read(node, returned):
            for nested in node.subgraphs():
                count += _remove_nodes(nested)
        else:
            graph.remove(node)
            count += 1
    return count


def _is_read(node: Node, returned: set[int]) -> bool:
    for value in node.present_outputs():  # noqa: SIM110 - asked of each node: a generator takes twice as long
        if value.use_count or id(value) in returned:
            return True
    return False


def _remove_initializers(graph: Graph) -> int:
    kept = {id(value) for value in (*graph.outputs, *graph.inputs)}
    unread = [v for v in graph.initializers if not v.use_count and id(v) not in kept]
    for value in unread:
        graph.remove_initializer(value)
    return len(unread)
