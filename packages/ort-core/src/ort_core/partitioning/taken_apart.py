"""Composites taken apart: a copy of what a provider is offered, in which some nodes are the operators they are made of.

    y = SkipLayerNormalization(x, skip, gamma)   ->   total = Add(x, skip)   y = LayerNormalization(total, gamma)

What a provider answers to the copy is read here as claims on the nodes of the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ort_core.frozen import frozen
from ort_core.ir.graph import Graph
from ort_core.ir.nodes import Node
from ort_core.ir.rejection import Rejection
from ort_core.ir.subgraph import extract
from ort_core.kernels.evaluation_context import EvaluationContext
from ort_core.ops.constant_node import constant_of_node
from ort_core.ops.value_range import ValueRanges
from ort_core.partitioning.folded_parts import drop_unread, fold_parts
from ort_core.providers.capability import Capability, Claim, GraphView, Kinds
from ort_core.rewrite.decompose import decompose

MAX_PARTS = 600  # of one node; the body of a grouped attention with everything has about a hundred

Chosen = dict[Node, Kinds]
"""Nodes that are taken apart, and which operators among their parts are, too."""


def take_apart(
    graph: Graph, node: Node, kinds: Kinds, context: EvaluationContext, *, folds: bool = False
) -> list[Node] | Rejection:
    """Replace a node of an editable graph by its parts, and return these, or say why it has none.

    Constants among the parts become constants of the graph.

    Args:
        graph: of the node.
        node: what is replaced.
        kinds: operators that are taken apart, too, where they are among the parts.
        context: of the model.
        folds: parts that compute of constants alone become constants, too.
    """
    given = list(node.present_inputs())
    first = decompose(graph, node, context)
    if isinstance(first, Rejection):
        return first
    waiting, parts = list(reversed(first)), list[Node]()
    while waiting:
        part = waiting.pop()
        constant = constant_of_node(part)
        if constant is not None:
            part.output.replace_uses(graph.new_constant(constant, part.output.name), outputs=True)
            graph.remove(part)
            continue
        made = decompose(graph, part, context) if _kind(part) in kinds and len(parts) < MAX_PARTS else None
        if made:
            waiting.extend(reversed(made))  # type: ignore[arg-type]  # a Rejection is falsy
        else:
            parts.append(part)
    parts = fold_parts(graph, parts, context) if folds else parts
    drop_unread(graph, dict.fromkeys(given))  # weights of which a body takes a copy in another form
    for place, part in enumerate(parts):
        part.name = f"{node.name or node.op_type}/{part.op_type}_{place}"
    return parts


def _kind(node: Node) -> tuple[str, str]:
    return (node.domain, node.op_type)


def has_body(node: Node, context: EvaluationContext) -> bool:
    """Return whether an operator is a composite: it has a body of other operators, and the model states none."""
    if (node.domain, node.op_type, node.overload) in context.functions or node.body is not None:
        return False
    schema = context.schemas.find(node.domain, node.op_type, context.opset_of(node))
    return not isinstance(schema, Rejection) and schema.build_body is not None


@frozen
class TakenApart:
    """A copy of a view in which some nodes are their parts.

    Attributes:
        view: the copy.
        original: the node of the original view that each node of the copy stands for.
        parts: the parts of each node that was taken apart.
        kinds: which operators among these were taken apart, too.
        constant: the parts that compute with constants only.
        folds: whether such parts became constants, as far as their sizes are known.
    """

    view: GraphView
    original: Mapping[Node, Node]
    parts: Mapping[Node, Sequence[Node]]
    kinds: Mapping[Node, Kinds]
    constant: frozenset[Node]
    folds: bool

    @classmethod
    def of(
        cls,
        view: GraphView,
        chosen: Chosen,
        reasons: dict[Node, str],
        nodes: Sequence[Node] | None = None,
        *,
        folds: bool = False,
    ) -> TakenApart:
        """Copy a view; nodes that have no parts are taken out of ``chosen``, with the reason in ``reasons``.

        ``nodes`` are those that the copy has, in order, by default all.
        """
        copied = view.graph.nodes if nodes is None else nodes
        graph, _ = extract(copied, view.graph.name)
        original = dict(zip(graph.nodes, copied, strict=True))
        parts: dict[Node, Sequence[Node]] = {}
        for twin, node in list(original.items()):
            if node not in chosen:
                continue
            made = take_apart(graph, twin, chosen[node], view.context, folds=folds)
            if isinstance(made, Rejection):
                reasons[node] = made.reason
                del chosen[node]
                continue
            parts[node] = made
            del original[twin]
            original.update(dict.fromkeys(made, node))
        offered = set(view.nodes)
        on_offer = tuple(node for node in graph if original[node] in offered)
        graph.freeze()
        copy = replace(view, graph=graph, nodes=on_offer, ranges=ValueRanges().value_range)
        return cls(copy, original, parts, dict(chosen), _constant_parts(copy, parts), folds)

    def holds(self, answers: Capability) -> bool:
        """Return whether claims are made of nodes on offer, and of each once."""
        claimed = [node for claim in claims_among(answers) for node in claim.nodes]
        return len(set(claimed)) == len(claimed) and set(claimed) <= set(self.view.nodes)

    def revise(self, answers: Capability, chosen: Chosen, reasons: dict[Node, str]) -> bool:
        """Take deeper apart, or put back, what is not claimed in all of its parts; return whether anything changed."""
        claim_of = {part: place for place, claim in enumerate(claims_among(answers)) for part in claim.nodes}
        why = {each.node: each.reason for each in answers if isinstance(each, Rejection)}
        is_changed = False
        for node, parts in self.parts.items():
            left = [part for part in parts if part not in claim_of]
            deeper = {_kind(part) for part in left if has_body(part, self.view.context)} - chosen[node]
            if left and deeper:
                chosen[node] |= deeper
            elif left:
                reasons[node] = f"its part {left[0].op_type}: {why.get(left[0], 'it is left without a reason')}"
                del chosen[node]
            else:
                continue
            is_changed = True
        return is_changed

    def split(self, answers: Capability) -> set[Node]:
        """Return the nodes whose parts are not all in one claim."""
        claim_of = {part: place for place, claim in enumerate(claims_among(answers)) for part in claim.nodes}
        return {
            node for node, parts in self.parts.items()
            if any(part not in claim_of for part in parts) or self._home(node, claim_of) is None
        }  # fmt: skip

    def taken(self, answers: Capability) -> set[Node]:
        """Return the nodes of the original that are claimed, those in parts where all of these are."""
        claimed = {node for claim in claims_among(answers) for node in claim.nodes}
        left = {self.original[node] for node in self.original if node not in claimed}
        return {self.original[node] for node in claimed} - left

    def _home(self, node: Node, claim_of: Mapping[Node, int]) -> int | None:
        """Return which claim takes all parts of a node, ``None`` where there is none.

        Parts that compute with constants only go where the others are: they wait for nothing.
        """
        places = {claim_of[part] for part in self.parts[node] if part not in self.constant}
        if not places:
            places = {claim_of[part] for part in self.parts[node]}
        return places.pop() if len(places) == 1 else None

    def claims(self, answers: Capability) -> list[Claim]:
        """Return claims on the copy as claims on the original."""
        claims = claims_among(answers)
        claim_of = {part: place for place, claim in enumerate(claims) for part in claim.nodes}
        home = {node: self._home(node, claim_of) for node in self.parts}
        found = []
        for place, claim in enumerate(claims):
            whole = dict.fromkeys(self.original[node] for node in claim.nodes)
            nodes = tuple(node for node in whole if home.get(node, place) == place)
            kinds = {node: self.kinds[node] for node in nodes if node in self.parts}
            if nodes:
                found.append(replace(claim, nodes=nodes, in_parts=kinds))
        return found

    def rejections(self, answers: Capability) -> list[Rejection]:
        """Return rejections of the copy as those of the original."""
        return [
            Rejection(each.reason, None if each.node is None else self.original.get(each.node, each.node))
            for each in answers
            if isinstance(each, Rejection)
        ]


def _constant_parts(view: GraphView, parts: Mapping[Node, Sequence[Node]]) -> frozenset[Node]:
    found: set[Node] = set()
    for part in (part for each in parts.values() for part in each):
        inputs = list(part.present_inputs())
        if inputs and all(view.constant(value) is not None or value.producer in found for value in inputs):
            found.add(part)
    return frozenset(found)


def claims_among(answers: Capability) -> list[Claim]:
    """Return the claims among a provider's answers."""
    return [answer for answer in answers if isinstance(answer, Claim)]
