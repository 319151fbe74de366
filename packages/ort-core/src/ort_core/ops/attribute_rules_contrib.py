"""What operators of com.microsoft require of their attributes."""

from __future__ import annotations

from ort_core.ir.nodes import Node
from ort_core.ops.attribute_checks import (
    AttributeRule,
    above_zero,
    flag,
    in_range,
    length,
    not_negative,
)
from ort_core.ops.attribute_rules_recurrent import recurrent_functions

_MOST = 2**31 - 1
_ACTIVATION_PARAMETERS = {"LeakyRelu": 1, "Clip": 2, "HardSigmoid": 2}


def bifurcation(node: Node, since_version: int) -> str | None:
    """Require bounds of n-grams that leave some."""
    least, most = node.int_attribute("min_ngram_size", 1), node.int_attribute("max_ngram_size", 3)
    if 1 <= least <= most:
        return None
    return f"attributes must hold 1 <= min_ngram_size <= max_ngram_size, found {least} and {most}"


def attention(node: Node, since_version: int) -> str | None:
    """Require heads, and a width of each of queries, keys and values, where they are stated."""
    found = length(node, "qkv_hidden_sizes")
    if found not in (0, 3):
        return f"attribute qkv_hidden_sizes should have 3 elements, found {found}"
    return in_range("num_heads", 1)(node, since_version)


def causal_convolution(node: Node, since_version: int) -> str | None:
    """Require a distance of taps, and an order of axes."""
    return flag(node, "channels_last") or in_range("dilation", 1)(node, since_version)


def group_query(node: Node, since_version: int) -> str | None:
    """Require widths of the cache that there are, and an output for what is asked for."""
    bits = node.int_attribute("kv_cache_bit_width", 0)
    if bits not in (0, 4, 8):
        return f"attribute kv_cache_bit_width must be 0, 4 or 8, found {bits}"
    shown = node.int_attribute("qk_output", 0)
    if shown not in (0, 1, 2):
        return f"attribute qk_output must be 0, 1 or 2, found {shown}"
    if shown and (len(node.outputs) < 4 or node.outputs[3] is None):
        return f"attribute qk_output is {shown} and the output output_qk must be there, found none"
    return flag(node, "causal") or above_zero("q_norm_epsilon", "k_norm_epsilon")(node, since_version)


def rotary(node: Node, since_version: int) -> str | None:
    """Require sizes of heads, and their number where only a part of each is turned."""
    for name in ("num_heads", "rotary_embedding_dim"):
        value = node.int_attribute(name, 0)
        if not 0 <= value <= _MOST:
            return f"attribute {name} must be from 0 to {_MOST}, found {value}"
    part = node.int_attribute("rotary_embedding_dim", 0)
    if part and not node.int_attribute("num_heads", 0):
        return f"attribute num_heads must be set where rotary_embedding_dim is, found {part} and none"
    return None


def fused_activation(node: Node, since_version: int) -> str | None:
    """Require a named activation with its parameters."""
    name = node.string_attribute("activation", "Relu")
    if not name:
        return "attribute activation must name a function, or be left out; found ''"
    wanted, found = _ACTIVATION_PARAMETERS.get(name, 0), length(node, "activation_params")
    if wanted and wanted != found:
        return f"attribute activation_params must hold {wanted} numbers for {name}, found {found}"
    return None


def quantized_experts(node: Node, since_version: int) -> str | None:
    """Require widths of weights, a size of blocks and a way of packing that there are."""
    shared = node.int_attribute("expert_weight_bits", 4)
    widths = [node.int_attribute(f"fc{number}_expert_weight_bits", shared) for number in (1, 2, 3)]
    for number, bits in enumerate(widths, start=1):
        if bits not in (2, 3, 4, 8):
            return f"attribute fc{number}_expert_weight_bits must be 2, 3, 4 or 8, found {bits}"
    if node.int_attribute("swiglu_fusion", 0) and widths[0] != widths[2]:
        return (
            f"attributes fc1_expert_weight_bits and fc3_expert_weight_bits must be equal for fused SwiGLU, found "
            f"{widths[0]} and {widths[2]}"
        )
    return in_range("block_size", 0)(node, since_version) or in_range("weights_prepacked", -1, 1)(node, since_version)


def gathered_blocks(node: Node, since_version: int) -> str | None:
    """Require a width of elements and a size of blocks that there are."""
    bits, block = node.int_attribute("bits", 4), node.int_attribute("block_size", 128)
    if bits not in (2, 4, 8):
        return f"attribute bits must be 2, 4 or 8, found {bits}"
    if block < 16 or block & (block - 1):
        return f"attribute block_size must be a power of 2 of at least 16, found {block}"
    return None


def attention_lstm(node: Node, since_version: int) -> str | None:
    """Require three functions for each direction, and a positive limit."""
    return above_zero("clip")(node, since_version) or recurrent_functions(node, 3)


CONTRIB_RULES: dict[str, AttributeRule] = {
    "NGramRepeatBlock": in_range("ngram_size", 1),
    "Attention": attention,
    "AttnLSTM": attention_lstm,
    "BifurcationDetector": bifurcation,
    "CausalConvWithState": causal_convolution,
    "EmbedLayerNormalization": not_negative("epsilon"),
    "FusedConv": fused_activation,
    "GatherBlockQuantized": gathered_blocks,
    "GroupQueryAttention": group_query,
    "PackedAttention": attention,
    "QAttention": in_range("num_heads", 1),
    "QEmbedLayerNormalization": not_negative("epsilon"),
    "QMoE": quantized_experts,
    "RotaryEmbedding": rotary,
    "SkipLayerNormalization": not_negative("epsilon"),
    "SkipSimplifiedLayerNormalization": not_negative("epsilon"),
}
