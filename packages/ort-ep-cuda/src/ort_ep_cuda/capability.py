"""Capability: which nodes the provider takes, and the reason for each that it leaves."""

from __future__ import annotations

from collections.abc import Callable

from ort_core.plugin import Capability, Claim, GraphView, Rejection, convex_groups
from ort_core.plugin.ir import DataType, Node, TensorType, Value
from ort_ep_cuda.lowering.lower_partition import host_values
from ort_ep_cuda.lowering.operators import OPERATORS

_HOST_TYPES = frozenset({DataType.INT64, DataType.INT32, DataType.BOOL, DataType.FLOAT})


def find_capability(view: GraphView, missing_library: Callable[[str], str | None]) -> Capability:
    """Claim convex groups of nodes that lower; refuse every other node with its reason.

    Args:
        view: the graph.
        missing_library: gives for a standard operator why the library that runs it is not there, else ``None``.
    """
    on_host = host_computations(view)
    reasons: dict[Node, str] = {}
    for node in view.nodes:
        reason = "computes a shape, which the host must know" if node in on_host else _refusal(view, node, on_host)
        if reason is None and not node.domain:
            reason = missing_library(node.op_type)
        if reason is not None:
            reasons[node] = reason
    offered = set(view.nodes)
    groups = convex_groups(view.graph.nodes, lambda node: node in offered and node not in reasons)
    return [*(Claim(group) for group in groups), *(Rejection(reason, node) for node, reason in reasons.items())]


def host_computations(view: GraphView) -> frozenset[Node]:
    """Return the nodes that compute small vectors out of shapes and constants: the host needs them to plan."""
    found: set[Node] = set()
    for node in view.graph.nodes:
        inputs = list(node.present_inputs())
        is_origin = not node.domain and node.op_type in ("Shape", "Size")
        is_continued = any(value.producer in found for value in inputs) and all(
            value.producer in found or value.constant is not None for value in inputs
        )
        if is_origin or (is_continued and all(_is_small(value) for value in node.present_outputs())):
            found.add(node)
    return frozenset(found)


def _is_small(value: Value) -> bool:
    kind = value.type
    return (
        isinstance(kind, TensorType) and kind.dtype in _HOST_TYPES and kind.shape is not None and len(kind.shape) <= 1
    )


def _refusal(view: GraphView, node: Node, on_host: frozenset[Node]) -> str | None:
    operator = OPERATORS.get((node.domain, node.op_type))
    if operator is None:
        return f"{node.op_type} has no lowering to CUDA"
    if view.opset(node) < operator.oldest_opset:
        return f"opset {view.opset(node)} is older than {operator.oldest_opset}, the first that is lowered"
    for value in (*node.present_inputs(), *node.present_outputs()):
        if not isinstance(value.type, TensorType):
            return f"{value.name!r} is {value.type or 'of unknown type'}, expected a tensor"
        if value.type.dtype not in operator.dtypes:
            return f"elements of type {value.type.dtype.text} ({value.name!r}) are not computed"
    for value in host_values(node):
        if value.producer is not None and value.producer not in on_host:
            return f"the content of {value.name!r} decides sizes, and is computed from data"
    return operator.refuse(node)
