"""Capability: which nodes DirectML gets. Rules and the feature level decide; no device is needed to ask."""

from __future__ import annotations

from collections.abc import Set

from ort_core.plugin import Capability, Claim, GraphView, Rejection, convex_groups
from ort_core.plugin.ir import Node
from ort_ep_directml.lowering.asked import element_type
from ort_ep_directml.lowering.table import refusal

_NOTHING_TO_COMPUTE = frozenset(
    {"Identity", "Dropout", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Transpose", "Expand"}
)
"""Views, mostly: alone they are not worth the way to a device and back."""


def find_capability(
    view: GraphView, level: int, lacking: Set[str] = frozenset(), *, is_fused: bool = True
) -> Capability:
    """Claim convex groups of nodes whose rules hold at a feature level; refuse every other node with its reason.

    Args:
        view: the graph.
        level: the feature level of the device.
        lacking: element types that the device has no tensors of, by numpy's names.
        is_fused: whether a claim may hold more than one node.
    """
    reasons = {
        node: why for node in view.nodes if (why := _lacking(node, lacking) or refusal(view, node, level)) is not None
    }
    offered = set(view.nodes)
    groups = convex_groups(view.graph.nodes, lambda node: node in offered and node not in reasons)
    claims = [group for group in groups if not _is_idle(group)]
    for group in groups:
        if _is_idle(group):
            reasons.update(dict.fromkeys(group, "there is nothing to compute: values that are handed on or moved"))
    if not is_fused:
        claims = [(node,) for group in claims for node in group]
    return [*(Claim(group) for group in claims), *(Rejection(reason, node) for node, reason in reasons.items())]


def _is_idle(group: tuple[Node, ...]) -> bool:
    return all(node.op_type in _NOTHING_TO_COMPUTE for node in group)


def _lacking(node: Node, lacking: Set[str]) -> str | None:
    """Return why the device cannot hold what a node reads or gives, or ``None``."""
    for value in (*node.present_inputs(), *node.present_outputs()) if lacking else ():
        kind = element_type(value)
        if kind is not None and kind.text in lacking:
            return f"{value.name!r} is of type {kind.text}, which this device has no tensors of"
    return None
