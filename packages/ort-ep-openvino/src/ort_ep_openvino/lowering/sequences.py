"""Recurrent networks and attention."""

from __future__ import annotations

from collections.abc import Mapping

from ort_core.plugin import GraphView
from ort_core.plugin.claims import is_static
from ort_core.plugin.ir import Node
from ort_core.plugin.ops import AttentionRecord, node_attention
from ort_ep_openvino.lowering.conditions import without_attributes, without_inputs
from ort_ep_openvino.lowering.rule import BOOL, FLOATS, INDICES, Rule

LENGTHS = 4  # the input of a recurrent operator that says how many steps each sequence has


def _plain_attention(view: GraphView, node: Node) -> str | None:
    record = node_attention(node)
    if record.left is not None or record.right is not None:
        return "OpenVINO ignores windows"
    if record.is_causal and record.has_past and not _has_as_many_queries_as_keys(record):
        return "OpenVINO lets queries behind a past see other keys where they are not as many as the new keys"
    if not _mask_has_all_keys(node, record):
        return "OpenVINO repeats a mask that is shorter than the keys, and nothing says that this one is not"
    if record.scores is not None and record.is_causal:
        return "OpenVINO leaves the causal mask out of the products that it gives beside the result"
    return None


def _mask_has_all_keys(node: Node, record: AttentionRecord) -> bool:
    """Return whether a mask is known not to be one of one key that stands for several."""
    if record.mask is None:
        return True
    value = node.input(record.mask)
    last = value.shape[-1] if value is not None and value.shape else None
    if isinstance(last, int) and last > 1:
        return record.key.length is not None  # a shorter one is padded, and none but one of one key is repeated
    return last is not None and last == record.total


def _has_as_many_queries_as_keys(record: AttentionRecord) -> bool:
    return record.query.length is not None and record.query.length == record.key.length


def _lengths_of_known_steps(view: GraphView, node: Node) -> str | None:
    x = node.input(0)
    if node.input(LENGTHS) is None or (x is not None and is_static(x)):
        return None
    return f"OpenVINO gives other states of a {node.op_type} with lengths of sequences where a size is open"


def _same_activations(view: GraphView, node: Node) -> str | None:
    """Refuse two directions of different activations: OpenVINO computes both with those of the first."""
    if node.string_attribute("direction", "forward") != "bidirectional":
        return None
    for name in ("activations", "activation_alpha", "activation_beta"):
        found = node.attribute(name)
        given = tuple(str(each).lower() for each in found) if isinstance(found, tuple) else ()
        if given[: len(given) // 2] != given[len(given) // 2 :]:
            return f"the directions of a {node.op_type} have different activations; OpenVINO takes those of the first"
    return None


_FOUR_GATES = without_attributes(input_forget=0)

SEQUENCES: Mapping[str, Rule] = {
    "RNN": Rule(FLOATS, ports={4: INDICES}, conditions=(_lengths_of_known_steps, _same_activations), oldest=7),
    "GRU": Rule(FLOATS, ports={4: INDICES}, conditions=(_lengths_of_known_steps, _same_activations), oldest=7),
    "LSTM": Rule(
        FLOATS,
        ports={4: INDICES},
        conditions=(_FOUR_GATES, without_inputs(7), _lengths_of_known_steps, _same_activations),
        oldest=7,
    ),
    "Attention": Rule(FLOATS, ports={3: FLOATS | BOOL, 6: INDICES}, conditions=(_plain_attention,)),
    "RotaryEmbedding": Rule(FLOATS, ports={3: INDICES}),
}
"""Rules by operator."""
