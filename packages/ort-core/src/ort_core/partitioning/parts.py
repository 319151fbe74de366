"""Parts: a provider that leaves an operator is asked about the operators that it is made of.

    y = SkipLayerNormalization(x, skip, gamma)   ->   total = Add(x, skip)   y = LayerNormalization(total, gamma)

The nodes of a claim stay those of the model: reports, fallbacks and other providers know no parts. A node that is
claimed in its parts is replaced by them in the graph that the provider compiles. It is claimed so where one claim takes
all of its parts, and where that makes no more partitions.

A question about a graph may cost as much as compiling it. So the cheap ones come first: one composite of each kind
alone, then each group by itself (``parts_by_groups``). The whole graph is asked about where these leave a doubt, at
most ``MAX_ROUNDS`` times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from ort_core.ir.nodes import Node
from ort_core.ir.rejection import Rejection
from ort_core.partitioning.parts_by_groups import Ask, claims_by_groups
from ort_core.partitioning.taken_apart import Chosen, TakenApart, claims_among, has_body
from ort_core.providers.capability import Capability, Claim, GraphView
from ort_core.providers.grouping import convex_groups

MAX_ROUNDS = 8  # of questions: one for each depth of bodies within bodies, and one for what is put back each time

IsSound = Callable[[Sequence[Claim]], bool]


def claims_with_parts(
    plain: Capability, ask: Ask, view: GraphView, is_sound: IsSound, *, folds: bool = False
) -> Capability:
    """Return what a provider claims of a graph, composites that it does not know in their parts.

    Args:
        plain: what it claims of the graph as it is.
        ask: asks it about a copy with parts; ``None`` where it has no answer.
        view: what the provider is offered.
        is_sound: whether claims on the nodes of the view keep the rules.
        folds: parts that compute of constants alone are constants to it.
    """
    left = {answer.node for answer in plain if isinstance(answer, Rejection) and answer.node is not None}
    chosen: Chosen = {node: frozenset() for node in view.nodes if node in left and has_body(node, view.context)}
    reasons: dict[Node, str] = {}
    by_groups = claims_by_groups(plain, ask, view, chosen, folds=folds)
    if by_groups is not None:
        claims = _worthwhile(by_groups, view)
        if _count(claims, view) <= _count(claims_among(plain), view) and is_sound(claims):
            return [*claims, *_left(claims, plain, (), reasons)]
    for _ in range(MAX_ROUNDS):
        if not chosen:
            break
        taken = TakenApart.of(view, chosen, reasons, folds=folds)
        answers = ask(taken.view)
        if answers is None or not taken.holds(answers):
            break
        if taken.revise(answers, chosen, reasons):
            continue
        found = taken.claims(answers)
        if taken.split(answers):
            by_group = _claims_by_group(view, taken, answers, ask, reasons)
            if by_group is None:
                break
            found, split = by_group
            if split:
                chosen = {node: kinds for node, kinds in chosen.items() if node not in split}
                continue
        claims = _worthwhile(found, view)
        if _count(claims, view) > _count(claims_among(plain), view) or not is_sound(claims):
            break
        return [*claims, *_left(claims, plain, taken.rejections(answers), reasons)]
    return [_with_reason(answer, reasons) for answer in plain]


def _claims_by_group(
    view: GraphView, whole: TakenApart, answers: Capability, ask: Ask, reasons: dict[Node, str]
) -> tuple[list[Claim], set[Node]] | None:
    """Return what a provider claims of each group of nodes that it takes, and nodes whose parts it takes apart still.

    Among all nodes some parts of a composite may come before a node that is left, and others behind it: the parts are
    in two groups then. Asked about the group of the composite alone, nothing lies between them.

    Returns:
        Claims and composites, whose reasons are noted; ``None`` where the provider has no answer.
    """
    supported = whole.taken(answers)
    claims, split = list[Claim](), set[Node]()
    for group in convex_groups(view.graph.nodes, lambda node: node in supported):
        chosen = {node: whole.kinds[node] for node in group if node in whole.kinds}
        part = TakenApart.of(view, chosen, reasons, group, folds=whole.folds)
        found = ask(part.view)
        if found is None or not part.holds(found):
            return None
        again = part.split(found)
        reasons.update(dict.fromkeys(again, "its parts are not taken together"))
        split |= again
        claims += part.claims(found)
    return claims, split


def _worthwhile(claims: list[Claim], view: GraphView) -> list[Claim]:
    """Leave out claims on nothing but composites in their parts, where others' partitions are fewer without them."""
    kept = list(claims)
    for claim in claims:
        if len(claim.in_parts) == len(claim.nodes):
            without = [each for each in kept if each is not claim]
            kept = without if _count(without, view) < _count(kept, view) else kept
    return kept


def _count(claims: Iterable[Claim], view: GraphView) -> int:
    """Return how many partitions there are, what nobody has claimed in the largest groups of it."""
    chosen = list(claims)
    taken = {node for claim in chosen for node in claim.nodes}
    return len(chosen) + len(convex_groups(view.graph.nodes, lambda node: node not in taken))


def _left(
    claims: Iterable[Claim], plain: Capability, rejections: Iterable[Rejection], reasons: Mapping[Node, str]
) -> list[Rejection]:
    """Return a rejection of each node that is not claimed; a composite's tells of itself, and of its parts."""
    taken = {node for claim in claims for node in claim.nodes}
    found = {each.node: each for each in rejections if each.node not in taken}
    found.update({each.node: each for each in plain if isinstance(each, Rejection) and each.node not in taken})
    return [_with_reason(each, reasons) for each in found.values()]  # type: ignore[misc]  # a Rejection stays one


def _with_reason(answer: Claim | Rejection, reasons: Mapping[Node, str]) -> Claim | Rejection:
    if not isinstance(answer, Rejection) or answer.node is None or answer.node not in reasons:
        return answer
    if reasons[answer.node].endswith(f": {answer.reason}"):  # it has one word for all
        return answer
    return Rejection(f"{answer.reason}; in its parts: {reasons[answer.node]}", answer.node)
