"""Preconditions of com.microsoft's states, streams and adapters: GatedDeltaNet, HyperConnectionLowRankMix, QLoRA."""

from __future__ import annotations

from ort_core.ir.dims import KnownDim, ceil_div
from ort_core.kernels.preconditions.conditions import Conditions, Sizes

_ADAPTER_BITS = (2, 4, 8)


def gated_delta_network(c: Conditions) -> None:
    """GatedDeltaNet: query and key [tokens, heads, width], value [tokens, value heads, depth], gates for each token.

    Tokens may be [batch, sequence]. Packed queries, keys and values are one input, which the state takes apart.
    """
    query, state = c.at_least(0, "query", 2), c.rank(6, "initial_state", 4)
    if query is None:
        return
    if c.has(1) and c.has(2):
        c.rank(0, "query", 3, 4)
        c.same_shape(0, 1, "'query' and 'key'")
        value = c.rank(2, "value", len(query))
        if value is None:
            return
        c.sized(2, "value", *query[:-2], None, None)
        tokens, heads, depth, width = query[:-2], value[-2], value[-1], query[-1]
    elif state is not None:
        c.rank(0, "query", 2, 3)
        tokens, (heads, depth, width) = query[:-1], state[1:]
    else:
        return  # the kernel says that one of the two must be there
    if c.has(3):
        c.require(
            len(tokens) == 1, "cu_seqlens tells requests of different lengths: query must have one axis of tokens"
        )
    for size in tokens:
        c.positive(size, "there must be at least one token")
    _gates(c, tokens, heads, width)
    ends = c.rank(3, "cu_seqlens", 1)
    batch = ends[0] - 1 if ends is not None else tokens[0] if len(tokens) == 2 else state[0] if state else None
    c.sized(6, "initial_state", batch, heads, depth, width)
    c.sized(9, "capture_count", batch)
    c.sized(10, "state_update_active", 1)


def _gates(c: Conditions, tokens: Sizes, heads: KnownDim, width: KnownDim) -> None:
    """Decays for each head, or for each element of its keys; a bias of either form, flat or not."""
    decay = c.shape(4)
    by_element = decay is not None and len(decay) > len(tokens) + 1
    c.sized(4, "decay", *tokens, heads, *([width] if by_element else []))
    c.sized(5, "beta", *tokens, heads)
    c.sized(7, "a_log", heads)
    bias = c.shape(8)
    if bias is not None and by_element and len(bias) == 2:
        c.sized(8, "dt_bias", heads, width)
    elif bias is not None:
        c.rank(8, "dt_bias", 1)
        c.require(
            bias[0] == heads or (by_element and bias[0] == heads * width),
            f"dt_bias must have an element for each of {heads} heads, or for each element of decays, got {bias[0]}",
        )


def low_rank_streams(c: Conditions) -> None:
    """HyperConnectionLowRankMix: streams [..., branches * width], two projections of a rank, gates of branches."""
    streams, branches = c.at_least(0, "streams", 1), c.node.int_attribute("num_branches", 0)
    if streams is None or branches < 1:
        return
    *rows, hidden = streams
    c.sized(1, "norm_scale", hidden)
    down = c.sized(2, "down_weight", hidden, None)
    if down is not None:
        c.sized(3, "up_weight", down[1], hidden)
    c.sized(4, "inject_weight", hidden, branches)
    block = c.sized(5, "prev_block_output", *rows, None)
    if block is not None:
        c.equal(
            hidden, block[-1] * branches, f"{branches} streams of prev_block_output's {block[-1]} elements: {hidden}"
        )
    c.sized(6, "prev_post_gate", *rows, branches)


def adapted_product(c: Conditions) -> None:
    """MatMulNBitsQLoRA: X [..., K], packed weights W [N, blocks, bytes], and of an adapter [rank, ...] and [N, ...]."""
    n, k = c.node.int_attribute("N", 0), c.node.int_attribute("K", 0)
    block, adapter_block = (c.node.int_attribute(name, 32) for name in ("block_size", "lora_block_size"))
    for name, default in (("bits", 4), ("lora_bits", 8)):
        bits = c.node.int_attribute(name, default)
        c.require(bits in _ADAPTER_BITS, f"{name} must be 2, 4 or 8, got {bits}")
    for name, size in (("block_size", block), ("lora_block_size", adapter_block)):
        c.require(size >= 16 and not size & (size - 1), f"{name} must be a power of two >= 16, got {size}")
    c.require(n > 0 and k > 0, f"N and K must be positive, got {n} and {k}")
    x = c.at_least(0, "X", 1)
    if x is not None:
        c.equal(x[-1], k, f"rows of X have {x[-1]} elements, K is {k}")
    blocks, nbytes = ceil_div(k, block), block * c.node.int_attribute("bits", 4) // 8
    c.sized(1, "W", n, blocks, nbytes)
    scales = c.rank(2, "scales", 1, 2)
    if scales is not None:
        c.sized(2, "scales", *((n, blocks) if len(scales) == 2 else (n * blocks,)))
    _adapter(c, n, ceil_div(k, adapter_block), adapter_block)


def _adapter(c: Conditions, n: int, blocks: KnownDim, block: int) -> None:
    """Of an adapter that is left out, the packed weights are empty, and the scales stay."""
    nbytes = block * c.node.int_attribute("lora_bits", 8) // 8
    scales = c.sized(4, "lora_A_scales", None, blocks)
    if scales is None:
        return
    rank = scales[0]
    down = c.sized(3, "lora_A", None, blocks, nbytes)
    if down is not None and down[0] != 0:
        c.equal(down[0], rank, f"lora_A has {down[0]} rows, lora_A_scales {rank}")
    up = c.sized(5, "lora_B", n, None, nbytes)
    if up is not None and up[1] != 0:
        c.equal(up[1], ceil_div(rank, block), f"lora_B has {up[1]} blocks in a row, for a rank of {rank}")
    c.sized(6, "lora_B_scales", n, ceil_div(rank, block))
