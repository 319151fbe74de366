"""Attention: written out, as ONNX's operator, as com.microsoft's; rotary positions."""

from __future__ import annotations

import numpy as np

from random_graphs import element_types as et
from random_graphs.families.operands import fixed
from random_graphs.family import family
from random_graphs.writer import GraphWriter, Refused, Value

MICROSOFT = "com.microsoft"


def sequence(g: GraphWriter, *dtypes: et.ElementType) -> Value:
    """Return a batch of sequences of vectors."""
    return g.pick(*dtypes, rank=3, filled=True)


def projected(g: GraphWriter, value: Value, columns: int) -> Value:
    """Multiply rows by weights that keep their size."""
    depth = value.size(-1)
    bound = 1 / np.sqrt(depth)
    return g.node("MatMul", [value, g.weights(value.dtype, depth, columns, low=-bound, high=bound)])


@family(2)
def written_out(g: GraphWriter) -> Value:
    value = sequence(g, et.F32, et.F32, et.F16)
    heads, size = g.choice((1, 2, 3)), g.choice((1, 4, 8))
    split = g.constant(fixed([0, 0, heads, size]))

    def head(order: list[int]) -> Value:
        return g.node("Transpose", [g.node("Reshape", [projected(g, value, heads * size), split])], perm=order)

    scores = g.node("MatMul", [head([0, 2, 1, 3]), head([0, 2, 3, 1])])
    scores = g.node(g.choice(("Mul", "Div")), [scores, g.constant(g.choice((0.5, 2.0)), value.dtype)])
    if g.chance(0.3):
        sizes = g.choice(((1, 1, 1, 1), (1, heads, 1, 1), (2, 1, 1, 1)))  # of one sequence the last makes two
        scores = g.node("Add", [scores, g.constant(g.numbers_of(value.dtype, sizes))])
    weights = g.node("Softmax", [scores], axis=-1)
    result = g.node("Transpose", [g.node("MatMul", [weights, head([0, 2, 1, 3])])], perm=[0, 2, 1, 3])
    return g.node("Reshape", [result, g.constant(fixed([0, 0, heads * size]))])


@family(3)
def standard(g: GraphWriter) -> Value | list[Value]:
    if g.opset < 23:
        raise Refused("a newer operator")
    value = sequence(g, et.F32, et.F32, et.F16)
    groups, size = g.choice((1, 2)), g.choice((1, 4, 8, 16))
    heads = groups * g.choice((1, 2, 3))
    query, key, content = (
        projected(g, value, heads * size),
        projected(g, value, groups * size),
        projected(g, value, groups * size),
    )
    mask = None
    if g.chance(0.3) and len({s[1] for s in value.shapes}) == 1:
        length = value.size(1)
        mask = g.constant(g.numbers_of(value.dtype, (length, length)))
        if g.chance(0.4):
            kept = g.numbers.random((length, length)) < 0.7
            mask = g.constant(kept | np.eye(length, dtype=bool))
    return g.node(
        "Attention", [query, key, content, mask], q_num_heads=heads, kv_num_heads=groups,
        is_causal=g.choice((0, 0, 1)), scale=g.choice((None, 0.3)), softcap=g.choice((None, None, 5.0)),
    )  # fmt: skip


@family(2)
def multi_head(g: GraphWriter) -> Value:
    value = sequence(g, et.F32, et.F32, et.F16)
    heads, size = g.choice((1, 2, 3)), g.choice((4, 8))
    query, key, content = (projected(g, value, heads * size) for _ in range(3))
    bias = g.weights(value.dtype, 3 * heads * size) if g.chance(0.4) else None
    padding = None
    if g.chance(0.3):
        batch, length = value.sizes(0, 1)
        padding = g.constant((np.arange(length) < g.numbers.integers(1, length + 1, (batch, 1))).astype(np.int32))
    return g.node(
        "MultiHeadAttention", [query, key, content, bias, padding], domain=MICROSOFT, num_heads=heads,
        scale=g.choice((None, 0.3)), unidirectional=g.choice((None, 0, 1)),
    )  # fmt: skip


@family()
def projecting(g: GraphWriter) -> Value:
    """com.microsoft::Attention: its weights project."""
    value = sequence(g, et.F32, et.F32, et.F16)
    heads, size, depth = g.choice((1, 2)), g.choice((4, 8)), value.size(2)
    weights = g.weights(value.dtype, depth, 3 * heads * size, low=-0.4, high=0.4)
    bias = g.weights(value.dtype, 3 * heads * size)
    return g.node(
        "Attention", [value, weights, bias], domain=MICROSOFT, num_heads=heads, unidirectional=g.choice((0, 1)),
        do_rotary=g.choice((None, None, None, 1)),
    )  # fmt: skip


@family(2)
def grouped_query(g: GraphWriter) -> list[Value]:
    """One step of decoding, or a prompt: keys and values are appended to a past."""
    value = sequence(g, et.F32, et.F32, et.F16)
    batch, length = value.sizes(0, 1)
    groups, size = g.choice((1, 2)), g.choice((8, 16))
    heads = groups * g.choice((1, 2))
    query, key, content = (
        projected(g, value, heads * size),
        projected(g, value, groups * size),
        projected(g, value, groups * size),
    )
    past = 0 if length > 1 else g.choice((0, 3, 8))
    kind, shape = g.choice((None, None, "PER_TENSOR", "PER_CHANNEL")), (batch, groups, past, size)
    scales: list[Value | None] = []
    if kind is None:
        caches = [g.constant(g.numbers_of(value.dtype, shape)) for _ in range(2)]
    else:
        caches = [g.constant(g.numbers.integers(-128, 128, shape, np.int8)) for _ in range(2)]
        scale = (1, groups, 1, size) if kind == "PER_CHANNEL" else (1,)
        scales = [g.constant(g.numbers.uniform(0.01, 0.05, scale).astype(np.float32)) for _ in range(2)]
    lengths = g.constant(np.full(batch, past + length - 1, np.int32))
    total = g.constant(np.asarray(past + length, np.int32))
    if g.chance(0.3):  # a number that data make: how many rows a present has is read when it is there
        marks = g.node("Cast", [g.node("IsNaN", [value])], to=et.I32.onnx)
        none = g.node("Mul", [g.node("ReduceMax", [marks], keepdims=0), g.constant(np.asarray(0, np.int32))])
        total = g.node("Add", [none, total])
    elif g.outer is None and g.chance(0.3):  # one that is fed: it belongs to what a direct call knows
        total = g.given(np.asarray(past + length, np.int32))
    quantized = {"k_quant_type": kind, "v_quant_type": kind, "kv_cache_bit_width": 8} if scales else {}
    further = [*[None] * 5, *scales] if scales else []
    return g.node(
        "GroupQueryAttention", [query, key, content, *caches, lengths, total, *further], 3, domain=MICROSOFT,
        num_heads=heads, kv_num_heads=groups, scale=g.choice((None, 0.3)),
        local_window_size=g.choice((None, None, 4)), **quantized,
    )  # fmt: skip


@family(2)
def paged(g: GraphWriter) -> list[Value]:
    """Sequences packed one behind the other, in blocks that lie anywhere in the caches."""
    value = g.pick(et.F32, et.F32, et.F16, rank=2, filled=True)
    tokens, rows, blocks = value.size(0), g.choice((2, 4, 16)), 12
    groups, size = g.choice((1, 2)), g.choice((8, 16))
    heads = groups * g.choice((1, 3))
    query, key, content = (projected(g, value, count * size) for count in (heads, groups, groups))
    kind, shape = g.choice((None, None, "PER_TENSOR", "PER_CHANNEL")), (blocks, rows, groups, size)
    scales: list[Value | None] = []
    if kind is None:
        caches = [g.constant(g.numbers_of(value.dtype, shape)) for _ in range(2)]
    else:
        caches = [g.constant(g.numbers.integers(-128, 128, shape, np.int8)) for _ in range(2)]
        scale = (groups, 1, size) if kind == "PER_CHANNEL" else (1,)
        scales = [g.constant(g.numbers.uniform(0.01, 0.05, scale).astype(np.float32)) for _ in range(2)]
    cut = g.numbers.integers(0, tokens + 1)
    past = g.numbers.integers(0, rows + 1, 2)
    used = -(-(past + [cut, tokens - cut]) // rows)
    if used.sum() > blocks:
        raise Refused("more blocks than there are")
    table = np.full((2, blocks), -1)
    drawn = g.numbers.permutation(blocks)
    table[0, : used[0]], table[1, : used[1]] = drawn[: used[0]], drawn[used[0] : used.sum()]
    places = [g.constant(np.asarray(each, np.int32)) for each in ([0, cut, tokens], past, table)]
    further = [*[None] * 6, *scales] if scales else []
    quantized = {"k_quant_type": kind, "v_quant_type": kind} if scales else {}
    return g.node(
        "PagedAttention", [query, key, content, *caches, *places, *further], 3, domain=MICROSOFT, num_heads=heads,
        kv_num_heads=groups, scale=g.choice((None, 0.3)), local_window_size=g.choice((None, None, 3)),
        is_causal=g.choice((None, 1, 0)), softcap=g.choice((None, None, 4.0)), **quantized,
    )  # fmt: skip


@family()
def rotary(g: GraphWriter) -> Value:
    value = sequence(g, et.F32, et.F32, et.F16)
    batch, length = value.sizes(0, 1)
    heads, size = g.choice((1, 2)), g.choice((4, 8))
    operand = projected(g, value, heads * size)
    angles = np.outer(np.arange(length), 10000.0 ** (-np.arange(size // 2) / size * 2))
    positions = np.tile(np.arange(length), (batch, 1)).astype(np.int64)
    tables = [g.constant(function(angles), value.dtype) for function in (np.cos, np.sin)]
    if g.opset >= 23 and g.chance(0.5):
        operands = [operand, *tables, g.constant(positions)]
        return g.node("RotaryEmbedding", operands, num_heads=heads, interleaved=g.choice((0, 1)))
    operands = [operand, g.constant(positions), *tables]
    return g.node("RotaryEmbedding", operands, domain=MICROSOFT, interleaved=g.choice((0, 1)), num_heads=heads)


@family()
def bias_gelu(g: GraphWriter) -> Value:
    value = g.pick(et.F32, et.F16, least=1)
    return g.node("BiasGelu", [value, g.weights(value.dtype, value.size(-1))], domain=MICROSOFT)
