"""Decomposition: a node that no lowering takes is lowered as its operator's parts, by its function body.

    y = RotaryEmbedding(x, cos, sin)   ->   two halves of x, four products, a Concat

A node is taken in parts only where all of them are: whoever asks what is claimed and who compiles ask the same here.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping

from ort_core.plugin import Rejection
from ort_core.plugin.ir import Graph, Node, clone_graph, extract
from ort_core.plugin.kernels import EvaluationContext
from ort_core.plugin.rewrite import decompose
from ort_ep_cuda.lowering.custom.custom_operators import operators_of, refusal_of
from ort_ep_cuda.lowering.requirements import Whole

MAXIMUM_DEPTH = 8  # bodies within bodies: those of the specification are at most three deep
MAXIMUM_PARTS = 400  # of one node; the largest body, that of an attention with everything, has about a hundred

Refuse = Callable[[Graph], Rejection | None]


def refusal_whole(node: Node, context: EvaluationContext) -> str | None:
    """Return why a node is not lowered by itself, ``None`` where it is."""
    operators, opset = operators_of(node, context), context.opset_of(node)
    if not operators:
        return f"{node.op_type} has no lowering to CUDA"
    reasons = [refusal_of(node, operator, opset) for operator in operators]
    return None if None in reasons else "; ".join(reason for reason in reasons if reason is not None)


def has_parts(node: Node, context: EvaluationContext) -> bool:
    """Return whether an operator's specification gives its parts."""
    schema = context.schemas.find(node.domain, node.op_type, context.opset_of(node))
    return not isinstance(schema, Rejection) and schema.build_body is not None


def refusal_in_parts(node: Node, context: EvaluationContext, refuse: Refuse) -> str | None:
    """Return why a node is not lowered in parts either, ``None`` where it is.

    Args:
        node: has parts; of a frozen graph, it is not changed.
        context: schemas and imports.
        refuse: says of the graph of the parts which of them is left.
    """
    graph, _ = extract([node], node.op_type)
    refused = _expand(graph, context)
    refused = refuse(graph) if refused is None else refused
    if refused is None:
        return None
    part = "" if refused.node is None or refused.node.op_type == node.op_type else f"its part {refused.node.op_type}: "
    return f"{part}{refused.reason}"


def in_parts(graph: Graph, context: EvaluationContext) -> tuple[Graph, dict[Node, Whole]]:
    """Return a claim with every node replaced that is lowered in parts; the graph itself where there is none.

    With it come the nodes that were replaced, each by the first of its parts.

    Raises:
        ValueError: a node that was claimed has no parts.
    """
    if not any(_needs_parts(node, context) for node in graph):
        return graph, {}
    copy = clone_graph(graph)
    twins = dict(zip(copy, graph, strict=True))
    wholes = {twin: Whole(node, context.opset_of(node), twin.inputs) for twin, node in twins.items()}
    refused = _expand(copy, context, wholes)
    if refused is not None:
        raise ValueError(refused.reason)
    return copy, {first: whole for first, whole in wholes.items() if first not in twins}


def _needs_parts(node: Node, context: EvaluationContext) -> bool:
    return has_parts(node, context) and refusal_whole(node, context) is not None


def _expand(
    graph: Graph, context: EvaluationContext, wholes: MutableMapping[Node, Whole] | None = None
) -> Rejection | None:
    """Replace nodes by their parts until all that is left has a lowering, or no parts; return what stops it.

    Args:
        graph: is changed.
        context: schemas and imports.
        wholes: what nodes stand for; that of a node that is replaced goes to its first part.
    """
    waiting = [(node, 0) for node in graph if _needs_parts(node, context)]
    count = 0
    while waiting:
        node, depth = waiting.pop()
        parts = decompose(graph, node, context)
        if isinstance(parts, Rejection):
            return parts
        if wholes is not None and node in wholes and parts:
            wholes[parts[0]] = wholes.pop(node)
        count += len(parts)
        if depth >= MAXIMUM_DEPTH or count > MAXIMUM_PARTS * max(len(graph), 1):
            return Rejection(f"{node.op_type} has parts without an end")
        waiting += [(part, depth + 1) for part in parts if _needs_parts(part, context)]
    return None
