"""Names of fused operators, and what their inputs and outputs are by place."""

from __future__ import annotations


class Operators:
    """Names of operators."""

    ATTENTION = "Attention"
    LAYERNORM = "LayerNormalization"
    MULTI_HEAD_ATTENTION = "MultiHeadAttention"
    PACKEDATTENTION = "PackedAttention"
    PACKED_MULTI_HEAD_ATTENTION = "PackedMultiHeadAttention"
    REMOVEPADDING = "RemovePadding"
    RESTOREPADDING = "RestorePadding"
    SKIPLAYERNORM = "SkipLayerNormalization"


class AttentionInputIDs:
    """Places of an Attention's inputs."""

    INPUT, WEIGHTS, BIAS, MASK_INDEX, PAST, ATTENTION_BIAS, PAST_SEQUENCE_LENGTH = range(7)


class AttentionOutputIDs:
    """Places of an Attention's outputs."""

    OUTPUT, PRESENT = range(2)


class MultiHeadAttentionInputIDs:
    """Places of a MultiHeadAttention's inputs."""

    QUERY, KEY, VALUE, BIAS, KEY_PADDING_MASK, ATTENTION_BIAS, PAST_KEY, PAST_VALUE = range(8)


class MultiHeadAttentionOutputIDs:
    """Places of a MultiHeadAttention's outputs."""

    OUTPUT, PRESENT_KEY, PRESENT_VALUE = range(3)
