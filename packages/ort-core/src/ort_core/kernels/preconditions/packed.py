"""Preconditions of com.microsoft's packed requests, positions of rows, and products of small floats."""

from __future__ import annotations

from ort_core.kernels.preconditions.conditions import Conditions


def packed_convolution(c: Conditions) -> None:
    """Input [tokens, channels], weight [channels, 1, kernel], a state for each request."""
    x, ends = c.rank(0, "input", 2), c.rank(2, "cumulative_sequence_length", 1)
    if x is None or ends is None:
        return
    w = c.sized(1, "weight", x[1], 1, None)
    c.sized(3, "bias", x[1])
    if w is not None:
        c.sized(4, "initial_state", ends[0] - 1, x[1], (w[2] - 1) * c.node.int_attribute("dilation", 1))


def packed_hashes(c: Conditions) -> None:
    """Tokens of all requests in one vector, and as many sizes as there are heads of all n-grams."""
    c.rank(0, "input_ids", 1)
    hashes(c)


def hashes(c: Conditions) -> None:
    """As many sizes as there are heads of all n-grams."""
    heads = (c.node.int_attribute("max_ngram_size", 1) - 1) * c.node.int_attribute("n_head_per_ngram", 1)
    c.rank(1, "multipliers", 1)
    c.sized(2, "vocab_sizes", heads)


def repeated_blocks(c: Conditions) -> None:
    """NGramRepeatBlock: tokens (B, S) and scores (B, V)."""
    tokens = c.rank(0, "input_ids", 2)
    if tokens is not None:
        c.sized(1, "scores", tokens[0], None)


def merged_selections(c: Conditions) -> None:
    """PackedSparseAttentionIndexerMerge: selections (R, C) with counts (R), and what each of N queries adds."""
    base, rows = c.rank(0, "base_indices", 2), c.rank(2, "base_row_indices", 1)
    if base is not None:
        c.sized(1, "base_counts", base[0])
    if rows is not None:
        c.sized(3, "range_starts", rows[0])
        c.sized(4, "range_ends", rows[0])
        c.sized(5, "additional_indices", rows[0], None)
        c.sized(6, "additional_counts", rows[0])


def turned_rows(c: Conditions) -> None:
    """GemmaRotaryEmbedding: angles [batch, sequence, width], rows [batch, heads, sequence, width] with turned ones."""
    angles = c.rank(0, "emb", 3)
    c.same_shape(1, 2, "'q' and 'q_rot'")
    c.same_shape(3, 4, "'k' and 'k_rot'")
    for index, name in ((1, "q"), (3, "k")):
        if angles is not None:
            c.sized(index, name, angles[0], None, *angles[1:])


def gated_positions(c: Conditions) -> None:
    """GatedRelativePositionBias: query [batch, sequence, hidden], or packed tokens, and a gate for each head."""
    query, heads = c.rank(0, "query_layer", 2, 3), c.node.int_attribute("num_heads", 1)
    if query is None:
        return
    hidden = query[-1]
    c.sized(1, "query_bias", hidden)
    length = query[1] if len(query) == 3 else None
    c.sized(2, "rel_pos", None, heads, length, length)
    weight = c.sized(3, "weight", hidden // heads if heads > 0 else None, None)
    if weight is not None:
        c.sized(4, "bias", weight[1])
    c.sized(5, "eco_a", 1, heads, 1, 1)


def small_float_product(c: Conditions) -> None:
    """GemmFloat8: two matrices that fit."""
    a, b = c.rank(0, "A", 2), c.rank(1, "B", 2)
    if a is None or b is None:
        return
    inner = a[0] if c.node.int_attribute("transA", 0) else a[1]
    other = b[1] if c.node.int_attribute("transB", 0) else b[0]
    c.equal(inner, other, f"A and B do not fit: {inner} and {other} elements of a sum")


def block_scaled_product(c: Conditions) -> None:
    """MatMulBlockQuantizedFp8Weight and ...Fp4Weight: weights [columns, depth], a scale for each block of a row."""
    is_half = c.node.op_type.endswith("Fp4Weight")
    a, b = c.at_least(0, "A", 1), c.rank(1, "B", 2)
    if a is None or b is None:
        return
    depth, block = b[1] * 2 if is_half else b[1], c.node.int_attribute("block_size", 16 if is_half else 128)
    c.equal(a[-1], depth, f"rows of A have {a[-1]} elements, rows of B {depth}")
    blocks = -(-depth // block) if isinstance(depth, int) and block > 0 else None
    c.sized(2, "weight_scale" if is_half else "b_scale", b[0], blocks)
    c.sized(5 if is_half else 4, "bias", b[0])
