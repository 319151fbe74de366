"""Capability: which nodes TensorRT gets. Our rules refuse first; then its parser reads each whole group.

A group that the parser takes is claimed. Of one that it does not take, the nodes that it names, and those that
``supports_model_v2`` names, are handed over in their parts; what it names then is refused in its words, and the groups
are formed anew without it. A control-flow node is asked about by itself first: the parser counts anew within bodies.
"""

from __future__ import annotations

from typing import Any

from ort_core.plugin import Capability, GraphView
from ort_core.plugin.claims import claims_of, form_groups
from ort_core.plugin.ir import Node, TensorType
from ort_ep_tensorrt._sdk import Sdk
from ort_ep_tensorrt.lowered import Group, Lowered, lower
from ort_ep_tensorrt.lowering.likely_sizes import element_count
from ort_ep_tensorrt.network import Network, dtype_of
from ort_ep_tensorrt.recording import SdkError
from ort_ep_tensorrt.rules import refusal
from ort_ep_tensorrt.settings import BuildSettings

_NOTHING_TO_COMPUTE = frozenset({"Constant", "Identity", "Shape", "Size"})


def find_capability(view: GraphView, sdk: Sdk, settings: BuildSettings) -> Capability:
    """Claim convex groups that the rules and the parser take; refuse every other node with its reason."""
    reasons = {node: why for node in view.nodes if (why := _ruled_out(view, node, sdk, settings))}
    groups = form_groups(view, reasons, lambda group: refusals(view, group, sdk, settings))
    return claims_of(groups, reasons)


def _ruled_out(view: GraphView, node: Node, sdk: Sdk, settings: BuildSettings) -> str | None:
    reason = refusal(view, node, settings, is_rtx=sdk.is_rtx)
    if reason is not None or not node.subgraphs():
        return reason
    try:
        found = lower(view, (node,), sdk, settings)
    except SdkError as error:
        return str(error)
    if isinstance(found, Lowered):
        return None
    return f"{next(iter(found.nodes.values()), found.text)}; its bodies are offered on their own"


def refusals(view: GraphView, group: Group, sdk: Sdk, settings: BuildSettings) -> dict[Node, str]:
    """Return the nodes of a group that are refused, with reasons; empty when all of it can be built."""
    if len(group) < settings.min_subgraph_size:
        smallest = f"option trt_min_subgraph_size: the group has {len(group)} nodes of {settings.min_subgraph_size}"
        return dict.fromkeys(group, smallest)
    if all(node.op_type in _NOTHING_TO_COMPUTE for node in group):
        return dict.fromkeys(group, "there is nothing to compute: constants, shapes, and values that are handed on")
    try:
        found = lower(view, group, sdk, settings)
    except SdkError as error:
        return dict.fromkeys(group, str(error))
    if isinstance(found, Lowered):
        return _unfit(found.network, group)
    return {group[place]: words for place, words in found.nodes.items()} or dict.fromkeys(group, found.text)


def _unfit(parsed: Network, group: Group) -> dict[Node, str]:
    """Return nodes whose border a run could not serve: values that decide shapes, and types that changed."""
    found: dict[Node, str] = {}
    for tensor in parsed.inputs():
        readers = [(n, v) for n in group for v in n.present_inputs() if v.name == tensor.name]
        if tensor.is_shape_tensor and any(element_count(value) is None for _, value in readers):
            reason = f"TensorRT needs the values of {tensor.name!r} for shapes, and how many they are is open"
            found |= {node: reason for node, _ in readers}
    for tensor in parsed.outputs():
        changed = ((node, _changed_type(tensor, node)) for node in group)
        found |= {node: words for node, words in changed if words is not None}
    return found


def _changed_type(tensor: Any, node: Node) -> str | None:
    value = next((v for v in node.present_outputs() if v.name == tensor.name), None)
    if value is None or not isinstance(value.type, TensorType):
        return None
    made, expected = dtype_of(tensor), value.type.dtype
    return (
        None if made is expected else f"TensorRT makes {tensor.dtype.name} of {value.name!r}, expected {expected.name}"
    )
