"""Capability: which nodes DirectML gets. Rules and the feature level decide; no device is needed to ask.

Nodes that follow from shapes alone cost nothing inside of a claim: a plan is made for each signature of shapes. They
are claimed where only the claim needs them, and left to the processor where somebody else reads what they give.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import replace

from ort_core.plugin import Capability, GraphView
from ort_core.plugin.claims import SHAPE_READERS, claims_of
from ort_core.plugin.ir import Node
from ort_ep_directml.grouping import planned_groups
from ort_ep_directml.index_limits import computed_before, unproven
from ort_ep_directml.lowering.lowering_context import LoweringContext, element_type
from ort_ep_directml.lowering.plan import PlanNode
from ort_ep_directml.lowering.table import refusal

_LOOKED_AT = "it computes lengths, which are looked at before what reads them runs on DirectML"
_VIEWS = frozenset({"Identity", "Dropout", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Transpose", "Expand"})
"""Alone they are not worth the way to a device and back."""


def find_capability(
    view: GraphView,
    level: int,
    lacking: Set[str] = frozenset(),
    *,
    is_fused: bool = True,
    device_refusal: Callable[[PlanNode], str | None] | None = None,
) -> Capability:
    """Claim convex groups of nodes whose rules hold at a feature level; refuse every other node with its reason.

    Args:
        view: the graph.
        level: the feature level of the device.
        lacking: element types that the device has no tensors of, by numpy's names.
        is_fused: whether a claim may hold more than one node.
        device_refusal: returns why the device does not take an operator, or ``None``; asked of levels that the tables
            do not speak for.
    """
    reasons: dict[Node, str] = {}
    context = LoweringContext(view, level, device_refusal=device_refusal)
    for node in view.nodes:
        why = _lacking(node, lacking) or refusal(replace(context, numbers={}), node)
        if why is not None:
            reasons[node] = why
    trusted = set(view.nodes) - reasons.keys()
    for node in view.nodes:
        if node not in trusted or (why := unproven(view, node, trusted)) is None:
            continue
        before = computed_before(view, node, trusted)
        for each in before or [node]:
            reasons[each] = _LOOKED_AT if before else why
            trusted.discard(each)
    derived, offered = _derived(view), set(view.nodes)
    for node in reversed(view.nodes):
        if node in derived and node not in reasons and not _is_read_by_claims_alone(offered, node, reasons):
            reasons[node] = "it follows from shapes alone, and others than DirectML read it"

    def idle(group: tuple[Node, ...]) -> dict[Node, str]:
        if any(node not in derived and node.op_type not in _VIEWS for node in group):
            return {}
        return dict.fromkeys(group, "there is nothing to compute: values that are handed on or moved")

    return claims_of(planned_groups(context, reasons, is_fused=is_fused), reasons, idle)


def _derived(view: GraphView) -> set[Node]:
    """Return the nodes whose results follow from shapes and constants."""
    found: set[Node] = set()
    for node in view.graph:
        inputs = [value for value in node.present_inputs() if view.constant(value) is None]
        if node.op_type in SHAPE_READERS or all(v.producer is not None and v.producer in found for v in inputs):
            found.add(node)
    return found


def _is_read_by_claims_alone(offered: set[Node], node: Node, reasons: dict[Node, str]) -> bool:
    for value in node.present_outputs():
        if value.is_graph_output or any(n not in offered or n in reasons for n in value.consumers()):
            return False
    return True


def _lacking(node: Node, lacking: Set[str]) -> str | None:
    """Return why the device cannot hold what a node reads or gives, or ``None``."""
    for value in (*node.present_inputs(), *node.present_outputs()) if lacking else ():
        kind = element_type(value)
        if kind is not None and kind.text in lacking:
            return f"{value.name!r} is of type {kind.text}, which this device has no tensors of"
    return None
