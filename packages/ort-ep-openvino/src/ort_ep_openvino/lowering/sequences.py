"""Recurrent networks and attention."""

from __future__ import annotations

from collections.abc import Mapping

from ort_core.plugin import GraphView
from ort_core.plugin.claims import is_static
from ort_core.plugin.ir import Node
from ort_ep_openvino.lowering.conditions import without_attributes, without_inputs
from ort_ep_openvino.lowering.rule import BOOL, FLOATS, INDICES, Rule

PRODUCTS = 3  # the output of Attention that holds products of queries and keys
LENGTHS = 4  # the input of a recurrent operator that says how many steps each sequence has
MASK = 3  # the input that says which keys count
PAST = 4  # the input that holds keys of before


def _plain_attention(view: GraphView, node: Node) -> str | None:
    for name in ("left_window_size", "right_window_size", "window_size", "sliding_window"):
        if node.attribute(name, -1) not in (-1, None):
            return f"OpenVINO ignores {name}"
    if node.int_attribute("is_causal", 0) and node.input(PAST) is not None and not _has_as_many_queries_as_keys(node):
        return "OpenVINO lets queries behind a past see other keys where they are not as many as the new keys"
    if not _mask_has_all_keys(node):
        return "OpenVINO repeats a mask that is shorter than the keys, and nothing says that this one is not"
    if len(node.outputs) > PRODUCTS and node.outputs[PRODUCTS] is not None and node.int_attribute("is_causal", 0):
        return "OpenVINO leaves the causal mask out of the products that it gives beside the result"
    return None


def _mask_has_all_keys(node: Node) -> bool:
    """Return whether a mask is known not to be one of one key that stands for several."""
    mask, keys, past = (None if value is None else value.shape for value in map(node.input, (MASK, 1, PAST)))
    if node.input(MASK) is None:
        return True
    if not mask or not keys or (node.input(PAST) is not None and not past):
        return False
    sizes = [keys[-2], *([past[-2]] if past else [])]
    numbers = [size for size in sizes if isinstance(size, int)]
    if isinstance(mask[-1], int) and mask[-1] > 1:
        return True  # a shorter one is padded, and none but one of one key is repeated
    return mask[-1] == sum(numbers) if len(numbers) == len(sizes) else not past and mask[-1] == sizes[0]


def _has_as_many_queries_as_keys(node: Node) -> bool:
    queries, keys = (None if value is None else value.shape for value in map(node.input, (0, 1)))
    return bool(queries and keys) and queries[-2] is not None and queries[-2] == keys[-2]  # type: ignore[index]  # bool


def _lengths_of_known_steps(view: GraphView, node: Node) -> str | None:
    x = node.input(0)
    if node.input(LENGTHS) is None or (x is not None and is_static(x)):
        return None
    return f"OpenVINO gives other states of a {node.op_type} with lengths of sequences where a size is open"


_FOUR_GATES = without_attributes(input_forget=0)

SEQUENCES: Mapping[str, Rule] = {
    "RNN": Rule(FLOATS, ports={4: INDICES}, conditions=(_lengths_of_known_steps,), oldest=7),
    "GRU": Rule(FLOATS, ports={4: INDICES}, conditions=(_lengths_of_known_steps,), oldest=7),
    "LSTM": Rule(
        FLOATS, ports={4: INDICES}, conditions=(_FOUR_GATES, without_inputs(7), _lengths_of_known_steps), oldest=7
    ),
    "Attention": Rule(FLOATS, ports={3: FLOATS | BOOL, 6: INDICES}, conditions=(_plain_attention,)),
    "RotaryEmbedding": Rule(FLOATS, ports={3: INDICES}),
}
"""Rules by operator."""
