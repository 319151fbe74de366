"""Capability: which nodes the provider takes, and the reason for each that it leaves."""

from __future__ import annotations

from ort_core.plugin import Capability, Claim, GraphView, Rejection, convex_groups
from ort_core.plugin.ir import DataType, Node, TensorType
from ort_ep_template.lowering import LOWERINGS
from ort_ep_template.options import TemplateOptions

OLDEST_OPSET = 7  # before it, operators broadcast by an attribute


def find_capability(view: GraphView, options: TemplateOptions) -> Capability:
    """Claim convex groups of nodes that lower; refuse every other node with its reason."""
    reasons = {node: reason for node in view.nodes if (reason := _refusal(view, node)) is not None}
    offered = set(view.nodes)
    answers: Capability = []
    for group in convex_groups(view.graph.nodes, lambda node: node in offered and node not in reasons):
        if 0 < options.max_partition_nodes < len(group):
            text = f"a partition of {len(group)} nodes is larger than max_partition_nodes"
            reasons.update(dict.fromkeys(group, text))
        else:
            answers.append(Claim(group))
    return [*answers, *(Rejection(reason, node) for node, reason in reasons.items())]


def _refusal(view: GraphView, node: Node) -> str | None:
    if node.domain or node.op_type not in LOWERINGS:
        return f"{node.op_type} is not built in"
    if view.opset(node) < OLDEST_OPSET:
        return f"opset {view.opset(node)} is older than {OLDEST_OPSET}"
    for value in (*node.present_inputs(), *node.present_outputs()):
        if not isinstance(value.type, TensorType) or value.type.dtype is not DataType.FLOAT:
            return f"{value.name} is {value.type or 'of unknown type'}; only float32 tensors are computed"
    return None
