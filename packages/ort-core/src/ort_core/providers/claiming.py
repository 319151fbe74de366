"""From reasons against nodes to claims: the loop that every provider goes through, written once.

A provider says of single nodes why it leaves them. What is left over forms convex groups; of these it may refuse nodes
again, now that it sees what is together: then groups are formed anew, until none is refused. At the end it may leave
whole groups that are not worth the way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ort_core.ir.rejection import Rejection
from ort_core.providers.capability import Claim
from ort_core.providers.grouping import convex_groups

if TYPE_CHECKING:
    from ort_core.ir.nodes import Node
    from ort_core.providers.capability import Capability, GraphView

    Group = tuple[Node, ...]
    Asks = Callable[[Group], Mapping[Node, str]]


def form_groups(
    view: GraphView,
    reasons: dict[Node, str],
    ask: Asks | None = None,
    *,
    nodes: Sequence[Node] | None = None,
    is_fused: bool = True,
) -> list[Group]:
    """Return convex groups of the nodes on offer that nothing speaks against.

    Args:
        view: the graph.
        reasons: nodes that are left, with reasons; takes those that ``ask`` refuses.
        ask: returns the nodes of a group that are refused, with reasons; asked once of each group that comes up.
        nodes: those that count, in topological order: by default all of the graph, on offer or not.
        is_fused: whether a group may hold more than one node.
    """
    offered, checked = set(view.nodes), set[tuple["Node", ...]]()
    order = view.graph.nodes if nodes is None else nodes
    while True:
        groups = convex_groups(order, lambda node: node in offered and node not in reasons)
        if not is_fused:
            groups = [(node,) for group in groups for node in group]
        found: dict[Node, str] = {}
        for group in groups if ask is not None else ():
            if group not in checked:
                found |= ask(group)  # type: ignore[misc]  # it is not None
                checked.add(group)
        if not found:
            return groups
        reasons.update(found)


def claims_of(groups: Iterable[Group], reasons: Mapping[Node, str], leave: Asks | None = None) -> Capability:
    """Return groups as claims, and reasons as rejections.

    Args:
        groups: convex groups.
        reasons: all other nodes on offer, with the reasons why they are left.
        leave: returns a reason for every node of a group that is not worth a claim, nothing for every other group.
    """
    left, claims = dict(reasons), []
    for group in groups:
        idle = leave(group) if leave is not None else {}
        left.update(idle)
        if not idle:
            claims.append(Claim(group))
    return [*claims, *(Rejection(reason, node) for node, reason in left.items())]
