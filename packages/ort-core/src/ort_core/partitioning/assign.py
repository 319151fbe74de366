"""Assignment by priority, onnxruntime's rule: each provider in turn takes what it claims of what is left.

Claims are checked before they count: nodes on offer, disjoint, convex, and without a cycle among a provider's own. A
claim that breaks a rule is refused with the reason, which the report shows; the nodes go to the next provider. A claim
that forms a cycle with an earlier provider's is cut in pieces that do not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from types import MappingProxyType

from ort_core.frozen import frozen
from ort_core.ir.graph import Graph
from ort_core.ir.model import Model
from ort_core.ir.nodes import Node
from ort_core.ir.rejection import Rejection
from ort_core.ir.traversal import predecessors
from ort_core.kernels.evaluation_context import EvaluationContext
from ort_core.ops.value_range import ValueRanges
from ort_core.partitioning.asking import ask_for_claims
from ort_core.partitioning.report import Refusal
from ort_core.providers.capability import Claim, GraphView, Kinds
from ort_core.providers.compile_faults import CompileFaultsState
from ort_core.providers.grouping import is_convex
from ort_core.providers.provider import ExecutionProvider
from ort_core.providers.restored import RestoredPartition

Exclusions = Mapping[tuple[str, Node], str]
Restored = Mapping[Node, RestoredPartition]


@frozen
class AcceptedClaim:
    """Nodes of one graph that one provider will run."""

    nodes: tuple[Node, ...]
    provider: ExecutionProvider
    in_parts: Mapping[Node, Kinds] = field(default_factory=dict)


@frozen
class Assignment:
    """The accepted claims of one graph in an order in which they can run, and all refusals by node."""

    claims: tuple[AcceptedClaim, ...]
    refusals: Mapping[Node, tuple[Refusal, ...]]
    unassigned: tuple[Node, ...]


def assign_by_priority(
    model: Model,
    graph: Graph,
    providers: Sequence[ExecutionProvider],
    context: EvaluationContext,
    exclusions: Exclusions = MappingProxyType({}),
    restored: Restored = MappingProxyType({}),
    faults: CompileFaultsState | None = None,
) -> Assignment:
    """Assign the nodes of one graph (nested graphs excluded: a control-flow node is claimed whole or not).

    ``exclusions`` gives, by (provider name, node), reasons why a provider is not offered a node any more; ``restored``
    are nodes that stand for partitions of theirs, and are not offered to anybody; ``faults`` takes what providers
    raise when they are asked.

    Raises:
        EPFail: a provider raised, and ``ORT_STRICT_COMPILATION`` is set.
    """
    order = graph.nodes
    left = dict.fromkeys(node for node in order if node not in restored)
    accepted = [AcceptedClaim((node,), each.provider) for node, each in restored.items() if node.graph is graph]
    refusals: dict[Node, list[Refusal]] = {}
    ranges = ValueRanges()
    for provider in providers:
        if not left:
            break
        offered = [node for node in left if (provider.name, node) not in exclusions]
        for node in left:
            if (provider.name, node) in exclusions:
                refusals.setdefault(node, []).append(Refusal(provider.name, exclusions[provider.name, node]))
        view = GraphView(model, graph, tuple(offered), context, ranges.value_range)
        for claim in _checked_claims(provider, view, order, accepted, refusals, faults or CompileFaultsState()):
            accepted.append(claim)
            for node in claim.nodes:
                del left[node]
    ordered = order_claims(accepted, order)
    assert ordered is not None, "claims were checked one by one"
    return Assignment(tuple(ordered), {n: tuple(r) for n, r in refusals.items()}, tuple(left))


def _checked_claims(
    provider: ExecutionProvider,
    view: GraphView,
    order: Sequence[Node],
    earlier: Sequence[AcceptedClaim],
    refusals: dict[Node, list[Refusal]],
    faults: CompileFaultsState,
) -> list[AcceptedClaim]:
    def refuse(node: Node, reason: str, *, is_fault: bool = True) -> None:
        refusals.setdefault(node, []).append(Refusal(provider.name, reason, is_fault))

    def is_sound(claims: Sequence[Claim]) -> bool:
        if any(len(claim.nodes) > 1 and not is_convex(order, set(claim.nodes)) for claim in claims):
            return False
        return order_claims([AcceptedClaim(claim.nodes, provider) for claim in claims], order) is not None

    answers = ask_for_claims(provider, view, is_sound, faults)
    if isinstance(answers, Rejection):
        for node in view.nodes:
            refuse(node, answers.reason)
        return []
    position = {node: index for index, node in enumerate(order)}
    good: list[AcceptedClaim] = []
    broken: list[str] = []
    taken: set[Node] = set()
    offered = set(view.nodes)
    for answer in answers:
        if isinstance(answer, Rejection):
            if answer.node is not None and answer.node in offered:
                refuse(answer.node, str(answer.reason) or "left without a reason", is_fault=False)
            continue
        problem = _problem(answer, offered, taken, order)
        own = [*good, AcceptedClaim(answer.nodes, provider, answer.in_parts)] if problem is None else []
        if len(own) > 1 and len(answer.nodes) > 1 and order_claims(own, order) is None:
            problem = "the claim would form a cycle with another claim of the same provider"
        if problem is not None:
            broken.append(problem)
            asked = answer.nodes if isinstance(answer, Claim) else ()
            left = [node for node in asked if node not in taken] or asked  # a fault is told, if only of what it holds
            for node in left:
                if node in offered:
                    refuse(node, f"its claim was refused: {problem}")
            continue
        taken.update(answer.nodes)
        ordered = tuple(sorted(answer.nodes, key=position.__getitem__))
        good += _acyclic_pieces(AcceptedClaim(ordered, provider, answer.in_parts), [*earlier, *good], order)
    silent = [n for n in view.nodes if n not in taken and not _has_spoken(refusals.get(n, ()), provider.name)]
    why = "left without a reason"
    if broken:
        why += f"; another of its answers was refused: {broken[0]}"
    for node in silent:
        refuse(node, why, is_fault=bool(broken))
    return good


def _acyclic_pieces(claim: AcceptedClaim, others: list[AcceptedClaim], order: Sequence[Node]) -> list[AcceptedClaim]:
    """Halve a claim until it forms no cycle with partitions of providers that chose before: none knew of the other.

    Halves of a convex claim in topological order are convex, and a single node forms no cycle.
    """
    if len(claim.nodes) == 1 or order_claims([*others, claim], order) is not None:
        return [claim]
    middle = len(claim.nodes) // 2
    first = _acyclic_pieces(replace(claim, nodes=claim.nodes[:middle]), others, order)
    rest = replace(claim, nodes=claim.nodes[middle:])
    return [*first, *_acyclic_pieces(rest, [*others, *first], order)]


def _has_spoken(refusals: Sequence[Refusal], provider: str) -> bool:
    return any(refusal.provider == provider for refusal in refusals)


def _problem(claim: Claim, offered: set[Node], taken: set[Node], order: Sequence[Node]) -> str | None:
    if not isinstance(claim, Claim):
        return f"get_capability returned a {type(claim).__name__}, which is neither a Claim nor a Rejection"
    members = set(claim.nodes)
    if not members:
        return "it holds no nodes"
    if len(members) != len(claim.nodes):
        return "it holds a node twice"
    if not members <= offered:
        return "it holds nodes that were not on offer"
    if members & taken:
        return "it overlaps an earlier claim of the same provider"
    if len(members) > 1 and not is_convex(order, members):
        return "it is not convex: a path leaves it and comes back"
    return None


def order_claims(claims: Sequence[AcceptedClaim], others: Sequence[Node]) -> list[AcceptedClaim] | None:
    """Return the claims so that each stands behind those it reads from, or ``None`` when they form a cycle.

    ``others`` are nodes in no claim; dependences through them count.
    """
    if len(claims) == 1 and len(claims[0].nodes) == len(others) == len({*claims[0].nodes, *others}):
        return list(claims)
    groups: list[tuple[Node, ...]] = [claim.nodes for claim in claims]
    member: dict[Node, int] = {node: index for index, nodes in enumerate(groups) for node in nodes}
    for node in others:
        if node not in member:
            member[node] = len(groups)
            groups.append((node,))
    after: list[set[int]] = [set() for _ in groups]
    waiting = [0] * len(groups)
    for node, index in member.items():
        for before in predecessors(node):
            source = member.get(before)
            if source is not None and source != index and index not in after[source]:
                after[source].add(index)
                waiting[index] += 1
    ready = [index for index in range(len(groups) - 1, -1, -1) if waiting[index] == 0]
    ordered: list[int] = []
    while ready:
        index = ready.pop()
        ordered.append(index)
        for following in sorted(after[index], reverse=True):
            waiting[following] -= 1
            if waiting[following] == 0:
                ready.append(following)
    if len(ordered) != len(groups):
        return None
    return [claims[index] for index in ordered if index < len(claims)]
