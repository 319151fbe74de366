"""ConstantSharing: equal small constants become one, so that patterns and common subexpressions see that they are.

a = Add(x, one);  b = Add(x, uno)   with one = uno = 1.0     ->  a = Add(x, one);  b = Add(x, one)
"""

from __future__ import annotations

from ort_core.ir.graph import Graph
from ort_core.ir.traversal import graphs_of
from ort_core.ir.values import Value
from ort_core.passes.base import Pass, PassContext, PassRecordState
from ort_core.rewrite.matcher import constant_of

MAX_NBYTES = 64  # shapes, axes and scalars; hashing weights would cost more than sharing them saves

ConstantKey = tuple[int, tuple[int, ...], bytes]


class ConstantSharing(Pass):
    """Share equal initializers within a graph, and with the graphs around it."""

    name = "ConstantSharing"

    def apply(self, context: PassContext, record: PassRecordState) -> None:
        """Walk the graphs from outside in; an inner graph may read what an outer one holds."""
        known: dict[int, dict[ConstantKey, Value]] = {}
        for graph in graphs_of(context.model.graph):
            outer = graph.owner.graph if graph.owner is not None else None
            visible = dict(known[id(outer)]) if outer is not None else {}
            known[id(graph)] = visible
            record.changed("shared constant", _share(graph, visible))


def _share(graph: Graph, visible: dict[ConstantKey, Value]) -> int:
    count = 0
    for value in graph.initializers:
        constant = constant_of(value)
        if constant is None or constant.nbytes > MAX_NBYTES:
            continue
        key = (int(constant.dtype), constant.shape, constant.digest())
        first = visible.setdefault(key, value)
        if first is not value and value.use_count:
            value.replace_uses(first)
            count += 1
            if not value.is_graph_output:
                graph.remove_initializer(value)
    return count
