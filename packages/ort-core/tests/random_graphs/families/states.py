"""Operators of com.microsoft over states: attention around an LSTM, delta rules, replays, packed requests, routers."""

from __future__ import annotations

import numpy as np

from random_graphs import element_types as et
from random_graphs.families.attention import sequence
from random_graphs.family import family
from random_graphs.writer import GraphWriter, Value

MICROSOFT = "com.microsoft"


@family()
def attention_around_memory(g: GraphWriter) -> list[Value]:
    """AttnLSTM: each step reads the attention's state over a memory as well."""
    steps, batch, width = g.choice((1, 3)), g.choice((1, 2)), g.choice((1, 4))
    hidden, memory, room, depth = g.choice((1, 4)), g.choice((1, 5)), g.choice((2, 3)), g.choice((1, 6))
    directions = g.choice((1, 2))
    layer = g.choice((None, 4))
    state = layer or memory
    operands = [
        g.weights(et.F32, steps, batch, width), g.weights(et.F32, directions, 4 * hidden, width + state),
        g.weights(et.F32, directions, 4 * hidden, hidden), g.weights(et.F32, directions, 8 * hidden), *[None] * 4,
        g.weights(et.F32, directions, hidden, depth), g.weights(et.F32, directions, memory, depth),
        g.weights(et.F32, directions, depth), g.weights(et.F32, batch, room, memory),
        g.constant(g.numbers.integers(1, room + 1, batch), et.I32) if g.chance(0.5) else None,
    ]  # fmt: skip
    if layer:
        operands.append(g.weights(et.F32, directions, memory + hidden, layer))
    return g.node(
        "AttnLSTM", operands, 3, domain=MICROSOFT, hidden_size=hidden,
        direction="bidirectional" if directions == 2 else g.choice(("forward", "reverse")),
    )  # fmt: skip


@family()
def replayed_history(g: GraphWriter) -> Value:
    batch, channels, width, capacity = g.choice((1, 2)), g.choice((1, 3)), g.choice((1, 4)), g.choice((1, 5))
    kept = g.random.randint(0, capacity)
    sizes = (2 + batch * channels * width, 4 + batch * capacity * channels, 3 + batch * channels * width)
    backing = [g.weights(et.F32, size + 2) for size in sizes]
    facts = np.array([8, 12, 16, batch, channels, width, capacity, kept])
    return g.node("ConvStateReplay", [*backing, g.constant(facts)], domain=MICROSOFT)


@family()
def replayed_state(g: GraphWriter) -> Value:
    key_heads = g.choice((1, 2))
    heads, depth, width, capacity = key_heads * g.choice((1, 2)), g.choice((1, 3)), g.choice((2, 4)), g.choice((1, 5))
    key_at = 1 + capacity * heads * g.choice((1, width))
    delta_at = key_at + capacity * key_heads * width
    size = heads * depth * width
    backing = [g.weights(et.F32, count) for count in (3 + size, delta_at + capacity * heads * depth, 5 + size)]
    kept = g.random.randint(1, capacity)
    facts = np.array([3, 5, 1, key_at, delta_at, heads, depth, width, key_heads, capacity, kept])
    return g.node("GatedDeltaNetStateReplay", [*backing, g.constant(facts)], domain=MICROSOFT)


@family()
def delta_rule(g: GraphWriter) -> list[Value]:
    batch, length, own = g.choice((1, 2)), g.choice((1, 5)), g.choice((1, 2))
    heads, width, depth = own * g.choice((1, 2)), g.choice((2, 8)), g.choice((1, 4))
    rule = g.choice(("linear", "gated", "delta", "gated_delta"))
    q, k = (g.weights(et.F32, batch, length, own, width) for _ in range(2))
    v = g.weights(et.F32, batch, length, heads, depth)
    decay = beta = None
    if "gated" in rule:
        decay = g.constant(-g.numbers.uniform(0, 1, (batch, length, heads)), et.F32)
    if "delta" in rule:
        beta = g.constant(g.numbers.uniform(0, 0.3, (batch, length, heads)), et.F32)
    state = g.weights(et.F32, batch, heads, depth, width) if g.chance(0.5) else None
    given = {"update_rule": rule, "qk_l2_norm": g.choice((0, 1)), "scale": g.choice((0.0, 0.5))}
    return g.node("GatedDeltaNet", [q, k, v, None, decay, beta, state], 2, domain=MICROSOFT, **given)


@family()
def one_token_behind_its_past(g: GraphWriter) -> Value:
    heads, size, past = g.choice((1, 2)), g.choice((4, 8)), g.choice((1, 5))
    batch, width, hidden = g.choice((1, 2)), g.choice((4, 7)), heads * size
    operands = [
        g.weights(et.F32, batch, 1, width), g.weights(et.F32, width, 3 * hidden), g.weights(et.F32, 3 * hidden), None,
        g.weights(et.F32, 2, batch, heads, past, size), None, g.constant(np.array([past]), et.I32),
    ]  # fmt: skip
    return g.node("DecoderMaskedSelfAttention", operands, 2, domain=MICROSOFT, num_heads=heads)[0]


@family()
def gated_positions(g: GraphWriter) -> Value:
    value = sequence(g, et.F32)
    length, width = value.sizes(1, 2)
    heads = g.choice([n for n in (1, 2, 4) if width % n == 0])
    columns = 2 * g.choice((1, 4))
    operands = [
        g.weights(et.F32, width), g.weights(et.F32, 1, heads, length, length),
        g.weights(et.F32, width // heads, columns), g.weights(et.F32, columns), g.weights(et.F32, 1, heads, 1, 1),
    ]  # fmt: skip
    return g.node("GatedRelativePositionBias", [value, *operands], domain=MICROSOFT, num_heads=heads)


@family()
def turned_rows(g: GraphWriter) -> list[Value]:
    batch, heads, length, width = g.choice((1, 2)), g.choice((1, 2)), g.choice((1, 5)), g.choice((4, 8))
    angles = g.weights(et.F32, batch, length, width)
    rows = [g.weights(et.F16, batch, heads, length, width) for _ in range(4)]
    return g.node("GemmaRotaryEmbedding", [angles, *rows], 2, domain=MICROSOFT)


@family()
def streams_of_low_rank(g: GraphWriter) -> list[Value]:
    branches, width, low = g.choice((1, 2, 4)), g.choice((4, 8)), g.choice((1, 3))
    lead, flat = (g.choice((1, 2)), g.choice((1, 5))), branches * width
    operands = [
        g.weights(et.F32, *lead, flat), g.weights(et.F32, flat, low=0.5), g.weights(et.F32, flat, low),
        g.weights(et.F32, low, flat), g.weights(et.F32, flat, branches),
    ]  # fmt: skip
    if g.chance(0.5):
        operands += [g.weights(et.F32, *lead, width), g.weights(et.F32, *lead, branches)]
    given = {"num_branches": branches, "gate_div": g.choice((1.0, 2.0)), "gate_mul": g.choice((1.0, 1.5))}
    return g.node("HyperConnectionLowRankMix", operands, 3, domain=MICROSOFT, **given)


@family()
def groups_of_experts(g: GraphWriter) -> Value:
    groups = g.choice((1, 2, 4))
    experts = groups * g.choice((2, 4))
    chosen = g.random.randint(1, groups)
    value = g.weights(et.F32, g.choice((1, 5)), experts)
    given = {"n_group": groups, "topk_group": chosen, "top_k": g.random.randint(1, chosen * experts // groups)}
    return g.node("MoEGroupRouter", [value, g.weights(et.F32, experts)], domain=MICROSOFT, **given)


@family()
def joined_selections(g: GraphWriter) -> list[Value]:
    rows, queries, most = g.choice((1, 3)), g.choice((1, 4)), g.choice((3, 8))
    base = [
        g.numbers.integers(0, 9, (rows, 4)), g.numbers.integers(0, 5, rows), g.numbers.integers(0, rows + 1, queries)
    ]  # fmt: skip
    starts = g.numbers.integers(0, 6, queries)
    more: list[np.ndarray | None] = [starts, starts + g.numbers.integers(-1, 4, queries)]
    policy = g.choice(("append_range", "append_indices"))
    if policy == "append_indices":
        more = [None, None, g.numbers.integers(0, 9, (queries, 3)), g.numbers.integers(0, 4, queries)]
    operands = [None if each is None else g.constant(each, et.I32) for each in (*base, *more)]
    return g.node(
        "PackedSparseAttentionIndexerMerge", operands, 3, domain=MICROSOFT, max_output_entries=most, policy_mode=policy
    )


def _ends(g: GraphWriter) -> np.ndarray:
    """Return where requests that are packed one behind the other begin and end."""
    return np.cumsum([0, *(g.choice((1, 2, 5)) for _ in range(g.choice((1, 3))))])


@family()
def packed_convolution(g: GraphWriter) -> list[Value]:
    ends, channels, taps, dilation = _ends(g), g.choice((1, 3, 8)), g.choice((1, 3)), g.choice((1, 2))
    operands = [
        g.weights(et.F32, int(ends[-1]), channels), g.weights(et.F32, channels, 1, taps), g.constant(ends, et.I32),
        g.weights(et.F32, channels) if g.chance(0.5) else None,
        g.weights(et.F32, len(ends) - 1, channels, (taps - 1) * dilation),
    ]  # fmt: skip
    activation = g.choice(("none", "silu"))
    return g.node("VarlenCausalConvWithState", operands, 2, domain=MICROSOFT, dilation=dilation, activation=activation)


@family()
def hashes_of_packed_words(g: GraphWriter) -> list[Value]:
    ends, longest, heads = _ends(g), g.choice((2, 3)), g.choice((1, 2))
    operands = [
        g.constant(g.numbers.integers(0, 50, ends[-1])), g.constant(g.numbers.integers(1, 1000, longest) * 2 + 1),
        g.constant(g.numbers.integers(3, 99, (longest - 1) * heads)),
    ]  # fmt: skip
    return g.node(
        "VarlenNGramHashMapping", [*operands, g.constant(ends, et.I32)], 2, domain=MICROSOFT, max_ngram_size=longest,
        n_head_per_ngram=heads, pad_id=0,
    )  # fmt: skip


@family()
def path_of_least_cost(g: GraphWriter) -> Value:
    costs = g.numbers.integers(0, 9, (1, g.choice((1, 4, 9)), g.choice((1, 5))))
    return g.node("DynamicTimeWarping", [g.constant(costs, et.F32)], domain=MICROSOFT)
