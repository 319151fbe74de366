"""Recurrent networks and attention."""

from __future__ import annotations

from collections.abc import Mapping

from ort_core.plugin import GraphView
from ort_core.plugin.ir import Node
from ort_ep_openvino.lowering.conditions import without_attributes, without_inputs
from ort_ep_openvino.lowering.rule import BOOL, FLOATS, INDICES, Rule

PRODUCTS = 3  # the output of Attention that holds products of queries and keys


def _plain_attention(view: GraphView, node: Node) -> str | None:
    for name in ("left_window_size", "right_window_size", "window_size", "sliding_window"):
        if node.attribute(name, -1) not in (-1, None):
            return f"OpenVINO ignores {name}"
    if len(node.outputs) > PRODUCTS and node.outputs[PRODUCTS] is not None and node.int_attribute("is_causal", 0):
        return "OpenVINO leaves the causal mask out of the products that it gives beside the result"
    return None


_UNBATCHED = without_attributes(layout=0)

SEQUENCES: Mapping[str, Rule] = {
    "RNN": Rule(FLOATS, ports={4: INDICES}, conditions=(_UNBATCHED,), oldest=7),
    "GRU": Rule(FLOATS, ports={4: INDICES}, conditions=(_UNBATCHED,), oldest=7),
    "LSTM": Rule(FLOATS, ports={4: INDICES}, conditions=(_UNBATCHED, without_inputs(7)), oldest=7),
    "Attention": Rule(FLOATS, ports={3: FLOATS | BOOL, 6: INDICES}, conditions=(_plain_attention,)),
    "RotaryEmbedding": Rule(FLOATS, ports={3: INDICES}),
}
"""Rules by operator."""
