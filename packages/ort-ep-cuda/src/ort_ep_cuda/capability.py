"""Capability: which nodes the provider takes, and the reason for each that it leaves."""

from __future__ import annotations

from collections.abc import Callable

from ort_core.plugin import Capability, Claim, GraphView, Rejection, convex_groups
from ort_core.plugin.ir import DataType, Node, TensorType, Value
from ort_ep_cuda.lowering.custom_operators import operators_of, refusal_of
from ort_ep_cuda.lowering.lower_partition import host_values
from ort_ep_cuda.lowering.sizes import SIZE_OPERATORS

_OWN_DOMAINS = frozenset({"", "ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training", "com.microsoft"})
_ON_HOST = "computes a shape, which the host must know"
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
        reason = _refuse_on_host(node) if node in on_host else _refusal(view, node, on_host)
        if reason is None and not node.domain:
            reason = missing_library(node.op_type)
        if reason is not None:
            reasons[node] = reason
    offered = set(view.nodes)
    groups = convex_groups(view.graph.nodes, lambda node: node in offered and node not in reasons)
    alone = [group for group in groups if on_host.issuperset(group)]
    reasons.update({node: _ON_HOST for group in alone for node in group})
    return [
        *(Claim(group) for group in groups if group not in alone),
        *(Rejection(reason, node) for node, reason in reasons.items()),
    ]


def _refuse_on_host(node: Node) -> str | None:
    """Return why a node that computes sizes is not evaluated while a program is built, ``None`` where it is."""
    return None if not node.domain and node.op_type in SIZE_OPERATORS else _ON_HOST


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
    operators, opset = operators_of(node, view.context), view.opset(node)
    if not operators:
        is_users = node.domain not in _OWN_DOMAINS
        return f"{node.op_type} has {'neither a formula nor a CUDA kernel' if is_users else 'no lowering to CUDA'}"
    for value in host_values(node):
        if value.producer is not None and value.producer not in on_host:
            return f"the content of {value.name!r} decides sizes, and is computed from data"
    reasons = [refusal_of(node, operator, opset) for operator in operators]
    return None if None in reasons else "; ".join(reason for reason in reasons if reason is not None)
