"""Convex groups: the largest sets of supported nodes that can each run as one step without a cycle between steps.

Give every node a level: along an edge between nodes of the same kind (supported or not) the level stays, along an edge
between different kinds it grows by one. All supported nodes of one level form a convex set: a path that leaves the set
through an unsupported node comes back at a higher level only. Unsupported nodes that depend on no supported one lie
below all of these: they run first, and split nothing. Nodes that read constants alone go up to the level of their first
reader. Linear in the size of the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from ort_core.ir.nodes import Node
from ort_core.ir.traversal import predecessors


def convex_groups(nodes: Sequence[Node], is_supported: Callable[[Node], bool]) -> list[tuple[Node, ...]]:
    """Group the supported nodes of one graph.

    Args:
        nodes: all nodes of the graph in topological order, those that are not on offer included.
        is_supported: whether a node may be in a group.

    Returns:
        Groups in the order in which they can run; each convex, together without a cycle. Nodes that read constants
        alone are in the group of their first reader, so that weights are not computed in one group for another.
    """
    if all(map(is_supported, nodes)):
        return [tuple(nodes)] if nodes else []
    level: dict[Node, int] = {}  # even for supported nodes, odd for others
    floating: dict[Node, list[Node]] = {}  # nodes that read constants alone, with their readers
    for node in nodes:
        before = [p for p in predecessors(node) if p in level]
        parity = 0 if is_supported(node) else 1
        level[node] = max((level[p] + (level[p] % 2 != parity) for p in before), default=-parity)
        for p in before:
            if p in floating:
                floating[p].append(node)
        if not parity and all(p in floating for p in before) and _reads_constants(node, floating):
            floating[node] = []
    for node, readers in reversed(floating.items()):
        level[node] = min((level[reader] - level[reader] % 2 for reader in readers), default=level[node])
    groups: dict[int, list[Node]] = {}
    for node, place in level.items():
        if place % 2 == 0:
            groups.setdefault(place, []).append(node)
    return [tuple(groups[key]) for key in sorted(groups)]


def _reads_constants(node: Node, floating: Collection[Node]) -> bool:
    """Return whether a node reads nothing but constants, and what others make of them; at least one."""
    values = list(node.present_inputs())
    are_known = all(v.producer in floating or (v.constant is not None and not v.is_graph_input) for v in values)
    return bool(values) and are_known


def is_convex(nodes: Sequence[Node], members: set[Node]) -> bool:
    """Return whether no path leaves ``members`` and comes back, given all nodes of the graph in topological order."""
    if len(members) == len(nodes) and members.issuperset(nodes):
        return True
    tainted: set[Node] = set()  # nodes outside that depend on a member
    for node in nodes:
        before = predecessors(node)
        if node in members:
            if any(p in tainted for p in before):
                return False
        elif any(p in members or p in tainted for p in before):
            tainted.add(node)
    return True
