"""Convex groups: the largest sets of supported nodes that can each run as one step without a cycle between steps.

Give every node a level: along an edge between nodes of the same kind (supported or not) the level stays, along an edge
between different kinds it grows by one. All supported nodes of one level form a convex set: a path that leaves the set
through an unsupported node comes back at a higher level only. Linear in the size of the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ort_core.ir.nodes import Node
from ort_core.ir.traversal import predecessors


def convex_groups(nodes: Sequence[Node], is_supported: Callable[[Node], bool]) -> list[tuple[Node, ...]]:
    """Group the supported nodes of one graph.

    Args:
        nodes: all nodes of the graph in topological order, those that are not on offer included.
        is_supported: whether a node may be in a group.

    Returns:
        Groups in the order in which they can run; each convex, together without a cycle.
    """
    level: dict[Node, int] = {}
    kind: dict[Node, bool] = {}
    groups: dict[int, list[Node]] = {}
    for node in nodes:
        supported = kind[node] = is_supported(node)
        before = [p for p in predecessors(node) if p in level]
        node_level = max((level[p] + (kind[p] != supported) for p in before), default=0 if supported else 1)
        level[node] = node_level
        if supported:
            groups.setdefault(node_level, []).append(node)
    return [tuple(groups[key]) for key in sorted(groups)]


def is_convex(nodes: Sequence[Node], members: set[Node]) -> bool:
    """Return whether no path leaves ``members`` and comes back, given all nodes of the graph in topological order."""
    tainted: set[Node] = set()  # nodes outside that depend on a member
    for node in nodes:
        before = predecessors(node)
        if node in members:
            if any(p in tainted for p in before):
                return False
        elif any(p in members or p in tainted for p in before):
            tainted.add(node)
    return True
