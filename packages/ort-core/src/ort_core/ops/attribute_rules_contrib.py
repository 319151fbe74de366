"""What operators of com.microsoft require of their attributes."""

from __future__ import annotations

import math

from ort_core.ir.nodes import Node
from ort_core.ir.types import DataType
from ort_core.ops.attribute_checks import (
    AttributeRule,
    above_zero,
    flag,
    flags,
    in_range,
    length,
    not_negative,
    one_of,
    padding,
    words,
)
from ort_core.ops.attribute_rules_recurrent import recurrent_functions
from ort_core.ops.windows import SAME

_MOST = 2**31 - 1
_MOST_CAPTURED = 8
_BLOCKS_OF_SMALL_CODES = (16, 32, 64, 128, 256)
_KERNEL_DELTA, _CAPTURED_TOKENS, _CAPTURED_HASHES = 6, 5, 9  # places of inputs
_FUSED_WITH_IMAGES = ("Relu", "Tanh", "Sigmoid", "LeakyRelu", "Clip", "HardSigmoid", "HardSwish")
_FUSED_WITH_PRODUCTS = (
    "Relu", "Tanh", "Sigmoid", "LeakyRelu", "Elu", "HardSigmoid", "ScaledTanh", "Selu",
    "Softplus", "Softsign", "ThresholdedRelu",
)  # fmt: skip
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


def paged(node: Node, since_version: int) -> str | None:
    """Require heads, and words that there are."""
    known = words(
        k_quant_type=("NONE", "PER_TENSOR", "PER_CHANNEL"), v_quant_type=("NONE", "PER_TENSOR", "PER_CHANNEL"),
        kv_cache_layout=("SEPARATE", "LATENT"),
    )  # fmt: skip
    counts = (in_range(name, 1)(node, since_version) for name in ("num_heads", "kv_num_heads"))
    heads, groups = node.int_attribute("num_heads", 1), node.int_attribute("kv_num_heads", 1)
    problem = next((text for text in counts if text), None) or known(node, since_version)
    if problem is None and heads % groups:
        return f"attribute num_heads must be a multiple of kv_num_heads, found {heads} and {groups}"
    return problem


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
    if name not in _FUSED_WITH_IMAGES:
        return f"attribute activation must be one of {', '.join(_FUSED_WITH_IMAGES)}, or left out; found {name!r}"
    wanted, found = _ACTIVATION_PARAMETERS.get(name, 0), length(node, "activation_params")
    if wanted and wanted != found:
        return f"attribute activation_params must hold {wanted} numbers for {name}, found {found}"
    return None


def product_activation(node: Node, since_version: int) -> str | None:
    """Require an activation that there is, where one is named."""
    name = node.string_attribute("activation", "Relu")
    if name in _FUSED_WITH_PRODUCTS:
        return None
    return (
        f"attribute activation must be one of {', '.join(_FUSED_WITH_PRODUCTS)}, or left out for none; found {name!r}"
    )


def delta_network(node: Node, since_version: int) -> str | None:
    """Require a size of chunks, a bound of gates, and a function for beta also where beta is not used."""
    bound = node.float_attribute("gate_lower_bound", -5.0)
    if not -math.inf < bound < 0:
        return f"attribute gate_lower_bound must be finite and negative, found {bound}"
    problem = in_range("chunk_size", 1, _MOST)(node, since_version)
    return problem or words(beta_activation=("none", "sigmoid"))(node, since_version)


def gathered_tokens(node: Node, since_version: int) -> str | None:
    """Require a type of floats."""
    number = node.int_attribute("output_dtype", DataType.FLOAT.value)
    if number in (DataType.FLOAT.value, DataType.FLOAT16.value, DataType.BFLOAT16.value):
        return None
    return f"attribute output_dtype must be FLOAT, FLOAT16 or BFLOAT16, found {number}"


def multimodal_rotary(node: Node, since_version: int) -> str | None:
    """Require an even part of each head, if not all of it is turned."""
    part = node.int_attribute("rotary_embedding_dim", 0)
    if not 0 <= part <= _MOST or part % 2:
        return f"attribute rotary_embedding_dim must be even and from 0 to {_MOST}, found {part}"
    return None


def packed_convolution(node: Node, since_version: int) -> str | None:
    """Require a distance of taps, groups that there are, and a delta where they are used."""
    problem = in_range("dilation", 1)(node, since_version) or in_range("group_size", 1)(node, since_version)
    if problem is None and node.int_attribute("group_size", 1) > 1 and node.input(_KERNEL_DELTA) is None:
        return "attribute group_size needs the input kernel_delta, found none"
    return problem or _captured(node, _CAPTURED_TOKENS)


def packed_hashes(node: Node, since_version: int) -> str | None:
    """Require heads, and a count exactly where states are captured."""
    return in_range("n_head_per_ngram", 1)(node, since_version) or _captured(node, _CAPTURED_HASHES)


def _captured(node: Node, place: int) -> str | None:
    capacity, is_counted = node.int_attribute("state_update_capacity", 0), node.input(place) is not None
    if not 0 <= capacity <= _MOST_CAPTURED or is_counted != (capacity > 0):
        return (
            f"attribute state_update_capacity must be from 1 to {_MOST_CAPTURED} with the input capture_count and 0 "
            f"without it; found {capacity} {'with' if is_counted else 'without'} it"
        )
    return None


def experts(node: Node, since_version: int) -> str | None:
    """Require a flag for where gates are cut off."""
    return flag(node, "swiglu_limit_after_activation")


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
    problem = in_range("block_size", 0)(node, since_version) or in_range("weights_prepacked", -1, 1)(
        node, since_version
    )
    if problem is None and 3 in widths and node.int_attribute("weights_prepacked", -1) != 0:
        return "attribute weights_prepacked must be 0 for weights of 3 bits"
    return problem or experts(node, since_version)


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


def small_codes(node: Node, since_version: int) -> str | None:
    """MatMulBnb4: a code book, and sizes that there are."""
    block = node.int_attribute("block_size", 64)
    if block not in _BLOCKS_OF_SMALL_CODES:
        return f"attribute block_size must be one of {', '.join(map(str, _BLOCKS_OF_SMALL_CODES))}, found {block}"
    sizes = (in_range(name, 1)(node, since_version) for name in ("N", "K"))
    return in_range("quant_type", 0, 1)(node, since_version) or next((text for text in sizes if text), None)


def quantized_layer(node: Node, since_version: int) -> str | None:
    """DynamicQuantizeLSTM: a size, a limit, and a direction written as the schema has it."""
    return (
        in_range("hidden_size", 1)(node, since_version)
        or one_of(node, "direction", ("forward", "reverse", "bidirectional"))
        or above_zero("clip")(node, since_version)
    )


def fused_convolution(node: Node, since_version: int) -> str | None:
    """Require paddings of one kind, and a named activation with its parameters."""
    return padding(node, since_version) or fused_activation(node, since_version)


CONTRIB_RULES: dict[str, AttributeRule] = {
    "NGramRepeatBlock": in_range("ngram_size", 1),
    "Attention": attention,
    "AttnLSTM": attention_lstm,
    "BifurcationDetector": bifurcation,
    "CausalConvWithState": causal_convolution,
    "ConvTransposeWithDynamicPads": words(auto_pad=("NOTSET", "VALID", *SAME)),
    "DynamicQuantizeLSTM": quantized_layer,
    "EmbedLayerNormalization": not_negative("epsilon"),
    "FusedConv": fused_convolution,
    "FusedGemm": product_activation,
    "GatedDeltaNet": delta_network,
    "GatherPacked": gathered_tokens,
    "GatherBlockQuantized": gathered_blocks,
    "GroupQueryAttention": group_query,
    "MRotaryEmbedding": multimodal_rotary,
    "MatMulBnb4": small_codes,
    "MoE": experts,
    "NhwcConv": padding,
    "NhwcFusedConv": fused_convolution,
    "NGramHashMapping": in_range("n_head_per_ngram", 1),
    "PackedAttention": attention,
    "PagedAttention": paged,
    "QAttention": in_range("num_heads", 1),
    "QEmbedLayerNormalization": not_negative("epsilon"),
    "QMoE": quantized_experts,
    "RMSNormRotary": flags("flatten_batch", "output_fp16", "use_fp32_arithmetic"),
    "RotaryEmbedding": rotary,
    "SkipLayerNormalization": not_negative("epsilon"),
    "SkipSimplifiedLayerNormalization": not_negative("epsilon"),
    "VarlenCausalConvWithState": packed_convolution,
    "VarlenNGramHashMapping": packed_hashes,
}
