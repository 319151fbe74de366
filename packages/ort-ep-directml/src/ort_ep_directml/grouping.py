"""Grouping: convex groups of nodes of which a plan can be made whole. A node that a group's plan fails at is refused.

A node alone may have been lowered with what another node gives: the numbers of a Constant, or sizes that only another
node's inputs tell. Where such a node has come into another group, that group's plan says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ort_core.plugin.claims import form_groups
from ort_core.plugin.ir import Node, Value
from ort_ep_directml.lowering.emission import EmissionState
from ort_ep_directml.lowering.lowered import known_sizes
from ort_ep_directml.lowering.lowering_context import LoweringContext, element_type
from ort_ep_directml.lowering.operand import packed
from ort_ep_directml.lowering.plan import Source
from ort_ep_directml.lowering.refused import Refused
from ort_ep_directml.lowering.table import ask_device, lower_node, sampled

Group = tuple[Node, ...]


def planned_groups(context: LoweringContext, reasons: dict[Node, str], *, is_fused: bool) -> list[Group]:
    """Return groups of what is not refused; ``reasons`` takes the nodes that are refused while they are formed.

    Args:
        context: the graph, and the device's facts.
        reasons: nodes that are refused, with reasons.
        is_fused: whether a group may hold more than one node.
    """
    return form_groups(context.view, reasons, lambda group: _failing(context, group), is_fused=is_fused)


def _failing(known: LoweringContext, group: Group) -> dict[Node, str]:
    """Return the nodes that keep a group from being planned, with reasons; empty when it can be."""
    members = frozenset(group)
    context = replace(known, members=members, numbers={})
    read = dict.fromkeys(value for node in group for value in node.present_inputs())
    inputs = [value for value in read if value.producer not in members and known.view.constant(value) is None]
    shapes = [sampled(value) for value in inputs]
    sizes = known_sizes(group, inputs, shapes)
    unsized = {
        node: f"the sizes of {value.name!r} follow from values, and DirectML compiles for fixed sizes"
        for node in group
        for value in node.present_outputs()
        if value not in sizes and all(v in sizes for v in node.present_inputs())
    }
    return unsized or _failing_rule(context, group, inputs, sizes)


def _failing_rule(
    context: LoweringContext, group: Group, inputs: Sequence[Value], sizes: dict[Value, tuple[int, ...]]
) -> dict[Node, str]:
    is_sample = any(value.shape != sizes[value] for value in inputs)
    to = EmissionState(context, sizes, is_sample=is_sample, is_trial=True)
    for place, value in enumerate(inputs):
        dtype = element_type(value)
        if dtype is not None:
            to.bind(value, packed(Source("input", place), dtype, sizes[value]))
    for node in group:
        before = len(to.nodes)
        try:
            lower_node(to, node)
            ask_device(context, to.nodes[before:])
        except Refused as refused:
            return {node: refused.reason}
    return {}
