"""Capability: which nodes OpenVINO gets. The table refuses first; then OpenVINO is asked about each whole group."""

from __future__ import annotations

from collections.abc import Sequence

from ort_core.plugin import Capability, Claim, GraphView, Rejection, convex_groups
from ort_core.plugin.ir import Node, TensorType, Value
from ort_ep_openvino import _sdk
from ort_ep_openvino.lowering.program import program_of
from ort_ep_openvino.lowering.table import refusal
from ort_ep_openvino.options import OpenVinoOptions

Groups = list[tuple[Node, ...]]
_VIRTUAL = ("AUTO", "HETERO", "MULTI", "BATCH")


def find_capability(view: GraphView, options: OpenVinoOptions) -> Capability:
    """Claim convex groups that the table trusts and the device runs; refuse every other node with its reason."""
    absent = _absence(options.device)
    if absent is not None:
        return [Rejection(absent, node) for node in view.nodes]
    reasons: dict[Node, str] = {}
    for node in view.nodes:
        reason = refusal(view, node) or (_dynamic(node) if options.disable_dynamic_shapes else None)
        if reason is not None:
            reasons[node] = reason
    asked: set[tuple[Node, ...]] = set()
    while True:
        groups = _groups(view, reasons)
        found = {n: r for group in groups if group not in asked for n, r in _refused(view, group, options).items()}
        asked.update(groups)
        if not found:
            break
        reasons.update(found)
    return [*(Claim(group) for group in groups), *(Rejection(reason, node) for node, reason in reasons.items())]


def _absence(device: str) -> str | None:
    known = _sdk.available_devices()
    is_seen = any(device == each or each.startswith(f"{device}.") for each in known)
    if is_seen or ":" in device or device in _VIRTUAL or device.removesuffix(".0") in known:
        return None
    return f"OpenVINO sees no device {device}; it sees {', '.join(known)}"


def _groups(view: GraphView, reasons: dict[Node, str]) -> Groups:
    offered = set(view.nodes)
    return convex_groups(view.graph.nodes, lambda node: node in offered and node not in reasons)


def _refused(view: GraphView, group: Sequence[Node], options: OpenVinoOptions) -> dict[Node, str]:
    """Return the nodes of a group that OpenVINO does not take, with its words; empty when it takes the group."""
    passing = {node: reason for node in group if (reason := _passes_on(node, set(group))) is not None}
    if passing:
        return passing
    reason = _group_refusal(view, group, options.device)
    if reason is None:
        return {}
    single = {n: r for n in group if (r := _group_refusal(view, (n,), options.device)) is not None}
    return single or dict.fromkeys(group, reason)  # all of them alone, but not together: the group stays elsewhere


def _group_refusal(view: GraphView, group: Sequence[Node], device: str) -> str | None:
    program = program_of(view, group)
    try:
        model = _sdk.read_model(program.content, program.weights)
        merged = _sdk.passed_on(model)
        missing = _sdk.unsupported(model, device)
    except _sdk.SdkError as error:
        return f"OpenVINO's ONNX frontend: {error}"
    if merged:
        return "it passes an input on unchanged; OpenVINO merges such an input with its output"
    if missing:
        return f"OpenVINO's device {device} does not run {', '.join(missing)}"
    return None


def _passes_on(node: Node, group: set[Node]) -> str | None:
    """Refuse a node that hands on what comes from outside: OpenVINO merges such an input with the output."""
    source = node.input(0)
    if source is None or (source.producer is not None and source.producer in group):
        return None
    if node.op_type == "Identity" or (node.op_type == "Cast" and source.type == node.output.type):
        return "it passes an input on unchanged; OpenVINO merges such an input with its output"
    return None


def _dynamic(node: Node) -> str | None:
    open_values = [v.name for v in (*node.present_inputs(), *node.present_outputs()) if not _is_static(v)]
    return f"option disable_dynamic_shapes: the sizes of {open_values[0]!r} are not fixed" if open_values else None


def _is_static(value: Value) -> bool:
    shape = value.type.shape if isinstance(value.type, TensorType) else None
    return shape is not None and all(isinstance(dim, int) for dim in shape)
