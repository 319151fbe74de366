"""Capability: which nodes the provider takes, and the reason for each that it leaves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ort_core.plugin import Capability, GraphView, Rejection
from ort_core.plugin.claims import claims_of, form_groups
from ort_core.plugin.ir import DataType, Graph, Node, TensorType, Value
from ort_core.plugin.kernels import EvaluationContext
from ort_ep_cuda.lowering.custom.custom_operators import operators_of
from ort_ep_cuda.lowering.decomposition import has_parts, refusal_in_parts, refusal_whole
from ort_ep_cuda.lowering.lower_partition import host_values
from ort_ep_cuda.lowering.values.sizes import SIZE_OPERATORS

_OWN_DOMAINS = frozenset({"", "ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training", "com.microsoft"})
_ON_HOST = "computes a shape, which the host must know"
_NOTHING_TO_COMPUTE = "a constant: there is nothing to compute"
_HOST_TYPES = frozenset({DataType.INT64, DataType.INT32, DataType.BOOL, DataType.FLOAT})


def find_capability(view: GraphView, missing_library: Callable[[str], str | None]) -> Capability:
    """Claim convex groups of nodes that lower; refuse every other node with its reason.

    Args:
        view: the graph.
        missing_library: gives for a standard operator why the library that runs it is not there, else ``None``.
    """
    asked = _LoweringContext(view.context, missing_library)
    on_host = host_computations(view.graph)
    found = {node: asked.refusal(node, on_host) for node in view.nodes}
    reasons = {node: reason for node, reason in found.items() if reason is not None}

    def left_alone(group: tuple[Node, ...]) -> dict[Node, str]:
        return {node: _left_alone(node) for node in group} if on_host.issuperset(group) else {}

    return claims_of(form_groups(view, reasons), reasons, left_alone)


def _left_alone(node: Node) -> str:
    """Return why a node that the host evaluates is left where nothing around it runs on the device."""
    return _NOTHING_TO_COMPUTE if node.op_type == "Constant" else _ON_HOST


def host_computations(graph: Graph) -> frozenset[Node]:
    """Return the nodes that compute small vectors out of shapes and constants: the host needs them to plan."""
    found: set[Node] = set()
    for node in graph.nodes:
        if node.domain or (node.op_type not in SIZE_OPERATORS and node.op_type != "Constant"):
            continue
        inputs = list(node.present_inputs())
        is_origin = node.op_type in ("Shape", "Size", "Constant")
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


@dataclass(frozen=True, slots=True)
class _LoweringContext:
    """What decides about one node: the model's context, and which libraries are there."""

    context: EvaluationContext
    missing_library: Callable[[str], str | None]

    def refusal(self, node: Node, on_host: frozenset[Node]) -> str | None:
        """Return why a node is left, ``None`` where it is lowered: by the host, whole, or in parts."""
        if node in on_host and node.op_type != "Constant":
            return None
        whole = _refusal_by_domain(node, self.context) or refusal_whole(node, self.context)
        if whole is None:
            return self._refusal_around(node, on_host)
        if not has_parts(node, self.context):
            return whole
        in_parts = refusal_in_parts(node, self.context, self._first_refused)
        return None if in_parts is None else f"{whole}; in parts: {in_parts}"

    def _refusal_around(self, node: Node, on_host: frozenset[Node]) -> str | None:
        """Return what an operator that has a lowering lacks: sizes that the host knows, or its library."""
        for value in host_values(node):
            if value.producer is not None and value.producer not in on_host:
                return f"the content of {value.name!r} decides sizes, and is computed from data"
        return None if node.domain else self.missing_library(node.op_type)

    def _first_refused(self, graph: Graph) -> Rejection | None:
        """Return the first part that is not lowered, of a graph in which nothing has parts any more."""
        on_host = host_computations(graph)
        for node in graph:
            if node in on_host and node.op_type != "Constant":
                continue
            reason = refusal_whole(node, self.context) or self._refusal_around(node, on_host)
            if reason is not None:
                return Rejection(reason, node)
        return None


def _refusal_by_domain(node: Node, context: EvaluationContext) -> str | None:
    is_users = node.domain not in _OWN_DOMAINS and not operators_of(node, context)
    return f"{node.op_type} has neither a formula nor a CUDA kernel" if is_users else None
