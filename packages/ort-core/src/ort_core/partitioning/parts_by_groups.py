"""Composites asked about by groups: one of each kind alone, then each group of nodes that one claim might take.

    x -> [A B C] -> left -> [D E] -> y     two questions of three and two nodes, none about all

Where a provider takes each group whole, nothing is left to ask: no answer could make fewer partitions. Where it does
not, that says little, since a node is offered with less known of its inputs than in the whole graph.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Set

from ort_core.ir.nodes import Node
from ort_core.ir.traversal import predecessors, reads_of
from ort_core.ir.types import TensorType
from ort_core.partitioning.taken_apart import Chosen, TakenApart, claims_among
from ort_core.providers.capability import Capability, Claim, GraphView
from ort_core.providers.grouping import convex_groups

Ask = Callable[[GraphView], Capability | None]


def claims_by_groups(
    plain: Capability, ask: Ask, view: GraphView, chosen: Chosen, *, folds: bool
) -> list[Claim] | None:
    """Return one claim of each group of nodes, composites in their parts, or ``None`` where a group is not taken whole.

    Args:
        plain: what a provider claims of the graph as it is.
        ask: asks it about a copy with parts; ``None`` where it has no answer.
        view: what the provider is offered.
        chosen: the composites that are taken apart.
        folds: parts that compute of constants alone are constants to it.
    """
    claimed = {node for claim in claims_among(plain) for node in claim.nodes}
    groups = convex_groups(view.graph.nodes, lambda node: node in claimed or node in chosen)
    if len(groups) < 2 or _may_take_more(view, claimed, chosen):
        return None
    samples = {_kind(node): node for node in reversed(chosen)}
    if not all(_claim_of(ask, view, (node,), {node}, folds=folds) for node in samples.values()):
        return None
    claims = {frozenset(claim.nodes): claim for claim in claims_among(plain)}
    found: dict[int, Claim] = {}
    for place, group in sorted(enumerate(groups), key=lambda each: len(each[1])):
        known = claims.get(frozenset(group))
        claim = known or _claim_of(ask, view, group, {node for node in group if node in chosen}, folds=folds)
        if claim is None:
            return None
        found[place] = claim
    return [found[place] for place in range(len(groups))]


def _claim_of(
    ask: Ask, view: GraphView, group: tuple[Node, ...], composites: Set[Node], *, folds: bool
) -> Claim | None:
    """Return the one claim that takes all nodes of a group, ``None`` where there is none."""
    kinds = {node: frozenset[tuple[str, str]]() for node in composites}
    part = TakenApart.of(view, kinds, {}, group, folds=folds)
    answers = ask(part.view) if len(kinds) == len(composites) else None
    if answers is None or not part.holds(answers) or part.split(answers):
        return None
    claims = part.claims(answers)
    return claims[0] if len(claims) == 1 and set(claims[0].nodes) == set(group) else None


def _may_take_more(view: GraphView, claimed: Set[Node], chosen: Chosen) -> bool:
    """Return whether a node that is left might be taken beside parts: more may be known of numbers that it reads.

    Bounds are known of whole numbers only, and come by way of parts where a composite lies before.
    """
    behind: set[Node] = set()
    for node in view.graph.nodes:
        if node in chosen or not behind.isdisjoint(predecessors(node)):
            behind.add(node)
    offered = set(view.nodes)
    for node in offered & behind:
        if node in claimed or node in chosen:
            continue
        makers = (value.producer for value in reads_of(node) if _is_whole(value.type))
        if any(maker in behind for maker in makers):
            return True
    return False


def _is_whole(type_: object) -> bool:
    return not isinstance(type_, TensorType) or type_.dtype.is_integer


def _kind(node: Node) -> Hashable:
    """Return the operator of a node, and the types of its inputs without their sizes."""
    types = (value if value is None else value.type for value in node.inputs)
    return (node.domain, node.op_type, tuple(t.dtype if isinstance(t, TensorType) else t for t in types))
