"""Operators of com.microsoft that few models have: masks in bits, gates, hashes, decoding, an LSTM of bytes."""

from __future__ import annotations

import numpy as np

from random_graphs import element_types as et
from random_graphs.families.operands import fixed
from random_graphs.families.quantized import scale, zero_point
from random_graphs.families.quantized_operators import quantized_value
from random_graphs.family import family
from random_graphs.writer import GraphWriter, Value

MICROSOFT = "com.microsoft"


@family()
def masks_in_bits(g: GraphWriter) -> list[Value]:
    """BitmaskDropout and BitmaskBiasDropout that drop nothing: all bits of the mask are one."""
    value = g.pick(et.F32, least=1, filled=True)
    if g.chance(0.5):
        return g.node("BitmaskDropout", [value], 2, domain=MICROSOFT)
    residual = g.pick(value.dtype, where=lambda v: v.shapes == value.shapes) if g.chance(0.5) else None
    return g.node("BitmaskBiasDropout", [value, g.weights(value.dtype, value.size(-1)), residual], 2, domain=MICROSOFT)


@family()
def sample(g: GraphWriter) -> Value:
    return g.node("SampleOp", [g.pick(et.F32)], domain=MICROSOFT)


@family()
def masked_pooling(g: GraphWriter) -> Value:
    space = [g.choice((1, 3, 7)) for _ in range(g.choice((1, 2, 3)))]
    sizes = [g.choice((1, 2)), g.choice((1, 3)), *space]
    mask = g.numbers.integers(0, 2, sizes)
    mask[tuple([slice(None)] * 2 + [slice(None, None, 2)] * len(space))] = 1
    given = {"kernel_shape": [min(size, 2) for size in space], "strides": [g.choice((1, 1, 2)) for _ in space]}
    value = g.weights(et.F32, *sizes)
    return g.node("MaxpoolWithMask", [value, g.constant(mask, et.I32)], domain=MICROSOFT, **given)


@family()
def gates_of_attention(g: GraphWriter) -> list[Value]:
    sizes = g.choice((1, 2)), g.choice((1, 4)), g.choice((1, 8, 17))
    value, width = g.weights(et.F32, *sizes), sizes[-1]
    operands = [value, g.weights(et.F32, width), g.weights(et.F32, width)]
    if g.chance(0.5):
        return [g.node("LinearAttentionGate", operands, domain=MICROSOFT)]
    return g.node("LinearAttentionGate", [*operands, g.weights(et.F32, *sizes)], 2, domain=MICROSOFT)


@family()
def gate_of_memory(g: GraphWriter) -> Value:
    batch, length, parts, width = g.choice((1, 2)), g.choice((1, 3)), g.choice((1, 2)), g.choice((4, 8, 17))
    sides = [g.weights(et.F32, batch, length, parts, width) for _ in range(2)]
    value = g.weights(et.F32, batch, length, width)
    scales = [g.constant(g.numbers.uniform(0.5, 1.5, (parts, width)), et.F32) for _ in range(2)]
    return g.node("EngramGate", [*sides, value, *scales], domain=MICROSOFT, epsilon=1e-4)


@family()
def hashes_of_words(g: GraphWriter) -> list[Value]:
    longest, heads = g.choice((2, 3)), g.choice((1, 2))
    ids = g.constant(g.numbers.integers(0, 50, (g.choice((1, 2)), g.choice((1, 4, 7)))))
    factors = g.constant(g.numbers.integers(1, 1000, longest) * 2 + 1)
    sizes = g.constant(g.numbers.integers(3, 99, (longest - 1) * heads))
    return g.node(
        "NGramHashMapping", [ids, factors, sizes], 2, domain=MICROSOFT, max_ngram_size=longest, n_head_per_ngram=heads,
        pad_id=0,
    )  # fmt: skip


@family()
def router_beside_experts(g: GraphWriter) -> list[Value]:
    value = g.node("Cast", [g.pick(et.F32, least=2, filled=True)], to=et.F16.onnx)
    router, half = g.choice((1, 4)), g.choice((1, 8, 17))
    weights = g.weights(et.F16, value.size(-1), router + 2 * half, low=-0.3, high=0.3)
    return g.node("RouterGateUpProj", [value, weights], 2, domain=MICROSOFT, router_size=router)


@family()
def accepted_tokens(g: GraphWriter) -> list[Value]:
    """BifurcationDetector: guesses are kept up to the first wrong one, and the text goes on elsewhere."""
    source = g.numbers.integers(0, 6, g.choice((3, 8, 12)))
    start = g.random.randrange(len(source) - 1)
    guessed = source[start : start + g.random.randint(1, 4)].copy()
    guessed = np.append(guessed, g.random.randrange(6))
    current = g.constant(g.numbers.integers(0, 6, g.choice((1, 4))))
    operands = [g.constant(source), current, g.constant(fixed([start])), g.constant(guessed)]
    sizes = {"min_ngram_size": 1, "max_ngram_size": g.choice((1, 3))}
    return g.node("BifurcationDetector", operands, 2, domain=MICROSOFT, **sizes)


@family()
def quantized_mean(g: GraphWriter) -> Value:
    value = quantized_value(g)
    axes = sorted(g.random.sample(range(value.rank), g.random.randint(1, value.rank)))
    operands = [value, scale(g), zero_point(g, value.dtype), scale(g), zero_point(g, value.dtype)]
    return g.node("QLinearReduceMean", operands, domain=MICROSOFT, axes=axes, keepdims=g.choice((0, 1)))


@family()
def long_memory_of_bytes(g: GraphWriter) -> list[Value]:
    """DynamicQuantizeLSTM: weights of bytes, inputs and states quantized as it runs."""
    width, hidden = g.choice((1, 5, 16)), g.choice((1, 4, 8))
    value = g.weights(et.F32, g.choice((1, 3)), g.choice((1, 2)), width)
    directions = g.choice((1, 2))
    kind = g.choice((et.U8, et.I8))
    low = 0 if kind is et.U8 else -128

    def weights(rows: int) -> Value:
        return g.constant(g.numbers.integers(low, low + 256, (directions, rows, 4 * hidden)), kind)

    def scales() -> Value:
        return g.constant(g.numbers.uniform(0.002, 0.01, directions), et.F32)

    def points() -> Value:
        return g.constant(np.full(directions, low + 128), kind)

    operands = [value, weights(width), weights(hidden), g.weights(et.F32, directions, 8 * hidden), *[None] * 4]
    return g.node(
        "DynamicQuantizeLSTM", [*operands, scales(), points(), scales(), points()], 3, domain=MICROSOFT,
        hidden_size=hidden, direction="bidirectional" if directions == 2 else g.choice(("forward", "reverse")),
    )  # fmt: skip
