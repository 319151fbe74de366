"""Operators of com.microsoft on sequences: linear attention, states, packed and quantized attention, positions."""

from __future__ import annotations

import numpy as np

from random_graphs import element_types as et
from random_graphs.families.attention import projected, sequence
from random_graphs.families.operands import fixed
from random_graphs.family import family
from random_graphs.writer import GraphWriter, Value

MICROSOFT = "com.microsoft"


@family(2)
def linear_attention(g: GraphWriter) -> list[Value]:
    value = sequence(g, et.F32)
    heads, size = g.choice((1, 2, 3)), g.choice((2, 4, 8))
    query, key, content = (projected(g, value, heads * size) for _ in range(3))
    rule = g.choice(("linear", "gated", "delta", "gated_delta"))
    decay = beta = None
    if "gated" in rule:
        decay = g.node("Neg", [g.node("Abs", [projected(g, value, heads)])])
    if "delta" in rule:
        beta = g.node("Sigmoid", [projected(g, value, heads)])
    domain = "" if g.opset >= 27 and g.chance(0.5) else MICROSOFT
    return g.node(
        "LinearAttention", [query, key, content, None, decay, beta], 2, domain=domain, q_num_heads=heads,
        kv_num_heads=heads, update_rule=rule, scale=g.choice((None, 0.5)),
    )  # fmt: skip


@family()
def convolution_with_state(g: GraphWriter) -> list[Value]:
    value = g.pick(et.F32, rank=3, filled=True)
    channels, width = value.size(1), g.choice((1, 2, 4))
    bias = g.weights(et.F32, channels) if g.chance(0.5) else None
    domain = "" if g.opset >= 27 and g.chance(0.5) else MICROSOFT
    weights = g.weights(et.F32, channels, 1, width)
    activation = g.choice((None, "silu", "swish"))
    return g.node("CausalConvWithState", [value, weights, bias], 2, domain=domain, activation=activation)


@family()
def quantized_attention(g: GraphWriter) -> Value:
    value = sequence(g, et.F32)
    heads, size = g.choice((1, 2)), g.choice((4, 8))
    scale, point = g.constant(0.02, et.F32), g.constant(128, et.U8)
    content = g.node("QuantizeLinear", [value, scale, point])
    weights = g.constant(g.numbers.integers(-40, 40, (value.size(2), 3 * heads * size)), et.I8)
    bias = g.constant(g.numbers_of(et.F32, (3 * heads * size,)))
    given = [content, weights, bias, scale, g.constant(0.01, et.F32), None, point, g.constant(0, et.I8)]
    return g.node("QAttention", given, domain=MICROSOFT, num_heads=heads, unidirectional=g.choice((0, 1)))


@family()
def packed_attention(g: GraphWriter) -> Value:
    value = sequence(g, et.F32)
    batch, length, width = value.sizes(0, 1, 2)
    heads, size = g.choice((1, 2)), g.choice((4, 8))
    counts = g.constant(g.numbers.integers(1, length + 1, batch).astype(np.int32))
    packed, offsets, ends, _ = g.node("RemovePadding", [value, counts], 4, domain=MICROSOFT)
    weights = g.weights(et.F32, width, 3 * heads * size, low=-0.5, high=0.5)
    bias = g.weights(et.F32, 3 * heads * size)
    if g.chance(0.5):
        given = [packed, weights, bias, offsets, ends]
        return g.node("PackedAttention", given, domain=MICROSOFT, num_heads=heads)
    parts = [g.node("MatMul", [packed, g.weights(et.F32, width, heads * size)]) for _ in range(3)]
    return g.node("PackedMultiHeadAttention", [*parts, None, offsets, ends], domain=MICROSOFT, num_heads=heads)


@family()
def positions(g: GraphWriter) -> Value | list[Value]:
    if g.chance(0.5):
        length = g.constant(np.asarray([g.choice((1, 3, 8))], np.int64))
        table = g.weights(et.F32, g.choice((8, 16)), g.choice((1, 2, 4)))
        both = g.choice((0, 1))
        given = {"max_distance": g.choice((8, 20)), "is_bidirectional": both}
        return g.node("RelativePositionBias", [table, length, length], domain=MICROSOFT, **given)
    words = g.constant(g.numbers.integers(0, 7, (g.choice((1, 2)), g.choice((1, 5)))).astype(np.int32))
    width = g.choice((4, 8))
    tables = [g.weights(et.F32, rows, width) for rows in (7, 9)]
    norm = [g.weights(et.F32, width) for _ in range(2)]
    given = [words, None, *tables, None, *norm]
    return g.node("EmbedLayerNormalization", given, (True, False), domain=MICROSOFT)


@family()
def rotated_in_sections(g: GraphWriter) -> Value:
    value = sequence(g, et.F32)
    batch, length = value.sizes(0, 1)
    heads, size = g.choice((1, 2)), 8
    made = projected(g, value, heads * size)
    places = g.constant(g.numbers.integers(0, 6, (3, batch, length)).astype(np.int64))
    tables = [g.weights(et.F32, 6 + length, size // 2) for _ in range(2)]
    given = {"mrope_section": [2, 1, 1], "num_heads": heads, "scale": g.choice((1.0, 0.5, -1.0))}
    return g.node("MRotaryEmbedding", [made, places, *tables], domain=MICROSOFT, **given)


@family()
def decoding_step(g: GraphWriter) -> list[Value]:
    """One query beside a cache of keys and values."""
    value = g.pick(et.F32, rank=2, filled=True)
    batch = value.size(0)
    heads, size, past = g.choice((1, 2)), g.choice((4, 8)), g.choice((1, 3, 8))
    row = g.node("Unsqueeze", [value, g.constant(fixed([1]))])
    parts = [projected(g, row, heads * size) for _ in range(3)]
    cache = [g.weights(et.F32, batch, heads, past, size) for _ in range(2)]
    given = [*parts, None, None, None, *cache]
    return g.node("MultiHeadAttention", given, 3, domain=MICROSOFT, num_heads=heads)
