"""Capability: which nodes DirectML gets. Rules and the feature level decide; no device is needed to ask."""

from __future__ import annotations

from ort_core.plugin import Capability, Claim, GraphView, Rejection, convex_groups
from ort_core.plugin.ir import Node
from ort_ep_directml.lowering.table import refusal

_NOTHING_TO_COMPUTE = frozenset(
    {"Identity", "Dropout", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Transpose", "Expand"}
)
"""Views, mostly: alone they are not worth the way to a device and back."""


def find_capability(view: GraphView, level: int) -> Capability:
    """Claim convex groups of nodes whose rules hold at a feature level; refuse every other node with its reason."""
    reasons = {node: why for node in view.nodes if (why := refusal(view, node, level)) is not None}
    offered = set(view.nodes)
    groups = convex_groups(view.graph.nodes, lambda node: node in offered and node not in reasons)
    claims = [group for group in groups if not _is_idle(group)]
    for group in groups:
        if _is_idle(group):
            reasons.update(dict.fromkeys(group, "there is nothing to compute: values that are handed on or moved"))
    return [*(Claim(group) for group in claims), *(Rejection(reason, node) for node, reason in reasons.items())]


def _is_idle(group: tuple[Node, ...]) -> bool:
    return all(node.op_type in _NOTHING_TO_COMPUTE for node in group)
