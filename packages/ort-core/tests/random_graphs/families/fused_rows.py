"""Operators of com.microsoft on rows of vectors: gates, biases, norms and products that optimizers fuse."""

from __future__ import annotations

import numpy as np

from random_graphs import element_types as et
from random_graphs.element_types import ElementType
from random_graphs.families.operands import fixed
from random_graphs.family import family
from random_graphs.writer import GraphWriter, Refused, Value

MICROSOFT = "com.microsoft"


def beside(g: GraphWriter, value: Value) -> Value:
    """Return a value of the same shape under every assignment: another of the graph, or a function of this one."""
    fitting = [v for v in g.visible() if v.dtype is value.dtype and v.shapes == value.shapes and v is not value]
    if fitting and g.chance(0.6):
        return g.choice(fitting)
    return g.node(g.choice(("Neg", "Abs")), [value])


def even_rows(g: GraphWriter, *dtypes: ElementType, least: int = 1, most: int = 5) -> Value:
    """Return a value whose last axis has an even size under every assignment."""
    return g.pick(
        *dtypes, least=least, most=most, filled=True, where=lambda v: all(s[-1] % 2 == 0 for s in v.shapes if s)
    )


@family(2)
def gate(g: GraphWriter) -> Value:
    value = g.pick(et.F32, et.F32, et.F16, least=1)
    op_type = g.choice(("SwiGLU", "ScaledSiLU", "GatedAdd", "GatedRMSNorm"))
    if op_type == "SwiGLU":
        given = {"limit": g.choice((None, 1.5)), "activation_alpha": g.choice((None, 1.7))}
        return g.node(op_type, [value, beside(g, value)], domain=MICROSOFT, **given)
    if op_type == "ScaledSiLU":
        return g.node(op_type, [value], domain=MICROSOFT, alpha=g.choice((None, 1.0, 1.7)))
    if op_type == "GatedAdd":
        return g.node(op_type, [value, beside(g, value), beside(g, value)], domain=MICROSOFT)
    scales = g.weights(value.dtype, value.size(-1), low=0.5, high=1.5)
    return g.node(op_type, [value, scales, beside(g, value)], domain=MICROSOFT)


@family()
def branches(g: GraphWriter) -> Value:
    count = g.choice((1, 2, 4))
    value = g.pick(et.F32, et.F16, least=2, filled=True, where=lambda v: all(s[-1] % count == 0 for s in v.shapes))
    return g.node("BranchwiseRMSNorm", [value], domain=MICROSOFT, num_branches=count)


@family()
def bias(g: GraphWriter) -> Value:
    op_type = g.choice(("BiasAdd", "BiasDropout", "BiasSplitGelu", "BiasSoftmax"))
    if op_type == "BiasSplitGelu":
        value = even_rows(g, et.F32, least=3, most=3)
        return g.node(op_type, [value, g.weights(et.F32, value.size(-1))], domain=MICROSOFT)
    value = g.pick(et.F32, rank=3) if op_type == "BiasAdd" else g.pick(et.F32, least=1, filled=True)
    if op_type == "BiasSoftmax":
        weights = g.constant(g.numbers_of(et.F32, (1,) * (value.rank - 1) + (value.size(-1),)))
        return g.node(op_type, [value, weights], domain=MICROSOFT, axis=-1, is_inner_broadcast=g.choice((0, 1)))
    operands = [value, g.weights(et.F32, value.size(-1)), beside(g, value)]
    return g.node(op_type, operands, domain=MICROSOFT)


@family()
def product_with_activation(g: GraphWriter) -> Value:
    value = g.pick(et.F32, least=2, filled=True)
    op_type = g.choice(("FusedMatMulActivation", "TransposeMatMul", "GemmFastGelu"))
    columns = g.choice((1, 8, 17))
    flipped = op_type != "GemmFastGelu" and g.chance(0.5)
    shape = (columns, value.size(-1)) if flipped else (value.size(-1), columns)
    weights = g.weights(et.F32, *shape, low=-0.5, high=0.5)
    if op_type == "GemmFastGelu":
        return g.node(op_type, [value, weights, g.weights(et.F32, columns)], domain=MICROSOFT)
    given = {"transB": int(flipped), "alpha": g.choice((1.0, 0.5))}
    if op_type == "FusedMatMulActivation":
        given["activation"] = g.choice(("Relu", "Tanh", "Sigmoid"))
    return g.node(op_type, [value, weights], domain=MICROSOFT, **given)


@family()
def complex_product(g: GraphWriter) -> Value:
    value = g.pick(et.F32, least=1, filled=True, where=lambda v: all(s[-1] == 2 for s in v.shapes))
    return g.node(g.choice(("ComplexMul", "ComplexMulConj")), [value, beside(g, value)], domain=MICROSOFT)


@family()
def grouped_norm(g: GraphWriter) -> Value | list[Value]:
    last = g.choice((0, 1))
    value = g.pick(et.F32, rank=4, filled=True)
    channels = value.size(-1 if last else 1)
    groups = g.choice([n for n in (1, 2, 4, 8) if channels % n == 0])
    gamma, beta = (g.weights(et.F32, channels) for _ in range(2))
    given = {"groups": groups, "activation": g.choice((0, 1)), "channels_last": last}
    if g.chance(0.5):
        return g.node("GroupNorm", [value, gamma, beta], domain=MICROSOFT, **given)
    return g.node("SkipGroupNorm", [value, gamma, beta, beside(g, value)], 2, domain=MICROSOFT, **given)


@family()
def small_matrix(g: GraphWriter) -> Value:
    if g.chance(0.5):
        value = g.pick(et.F32, et.F64, rank=2, filled=True)
        other = g.weights(value.dtype, g.choice((1, 5, 17)), value.size(1))
        return g.node("CDist", [value, other], domain=MICROSOFT, metric=g.choice(("sqeuclidean", "euclidean")))
    size = g.choice((1, 2, 4))
    value = g.pick(et.F32, least=1, most=3, filled=True)
    shape = g.node("Reshape", [g.node("ReduceMean", [value], keepdims=0), g.constant(fixed([1, 1]))])
    return g.node("Inverse", [g.node("Add", [shape, g.constant(2 * np.eye(size), et.F32)])], domain=MICROSOFT)


@family()
def rows_rotated_with_norm(g: GraphWriter) -> list[Value]:
    heads, size = g.choice((1, 2, 3)), g.choice((4, 8, 16))
    batch, length = g.choice((1, 2)), g.choice((1, 3, 5))
    value = g.node("Neg", [g.weights(et.F16, batch, length, heads, size, low=-2, high=2)])
    places = g.constant(np.tile(np.arange(length), (batch, 1)).astype(np.int64))
    angles = np.outer(np.arange(length), 0.5 ** np.arange(size // 2))
    tables = [g.constant(each, et.F32) for each in (np.cos(angles), np.sin(angles))]
    scale = g.weights(et.F32, size, low=0.5, high=1.5)
    given = [value, scale, places, *tables]
    return g.node("RMSNormRotary", given, (True, False), domain=MICROSOFT, rotary_embedding_dim=size)


@family()
def routed(g: GraphWriter) -> Value:
    """A mixture of experts."""
    value = g.pick(et.F32, least=2, most=3, filled=True)
    width, experts, hidden = value.size(-1), g.choice((2, 4)), g.choice((4, 8, 16))
    rows = g.node("Reshape", [value, g.constant(fixed([-1, width]))])
    scores = g.node("MatMul", [rows, g.weights(et.F32, width, experts)])
    kind = g.choice(("relu", "gelu", "silu", "identity", "swiglu"))
    columns = 2 * hidden if kind == "swiglu" else hidden  # gates and what they open, side by side
    shapes = [(columns, width), (width, hidden)]
    if g.chance(0.2) and kind != "swiglu":
        shapes.reverse()  # as earlier exporters declare the same bytes
    first, second = (g.weights(et.F32, experts, *shape, low=-0.3, high=0.3) for shape in shapes)
    biases = [g.weights(et.F32, experts, size) if g.chance(0.3) else None for size in (columns, width)]
    more = {} if kind != "swiglu" else {
        "swiglu_fusion": 1, "swiglu_limit": g.choice((None, 0.5, 7.0)), "activation_alpha": g.choice((None, 1.702)),
        "activation_beta": g.choice((None, 1.0)),
    }  # fmt: skip
    return g.node(
        "MoE", [rows, scores, first, biases[0], second, biases[1]], domain=MICROSOFT, k=g.choice((1, 2)),
        activation_type=kind, normalize_routing_weights=g.choice((0, 1)), **more,
    )  # fmt: skip


@family()
def hyper_connection(g: GraphWriter) -> Value:
    count = g.choice((2, 4))
    value = g.pick(et.F32, rank=3, filled=True)
    streams = g.node("Concat", [value] * count, axis=-1)
    mix = g.node("MatMul", [value, g.weights(et.F32, value.size(2), count)])
    if g.chance(0.5):
        return g.node("HyperConnectionPreMix", [streams, mix], domain=MICROSOFT, num_branches=count)
    return g.node("HyperConnectionPostMix", [streams, value, mix], domain=MICROSOFT, num_branches=count)


@family()
def padding_removed(g: GraphWriter) -> Value:
    value = g.pick(et.F32, rank=3, filled=True)
    batch, length = value.sizes(0, 1)
    counts = g.constant(g.numbers.integers(1, length + 1, batch).astype(np.int32))
    packed, offsets, _, _ = g.node("RemovePadding", [value, counts], 4, domain=MICROSOFT)
    made = g.node(g.choice(("Relu", "Tanh", "Neg")), [packed])
    return g.node("RestorePadding", [made, offsets], domain=MICROSOFT)


@family()
def spectrum(g: GraphWriter) -> Value:
    value = g.pick(et.F32, least=1, most=3, filled=True)
    found = g.node("Rfft", [value], domain=MICROSOFT, signal_ndim=1, onesided=1, normalized=0)
    if g.chance(0.5):
        return found
    if value.size(-1) % 2:
        raise Refused("the size that comes back is even")
    return g.node("Irfft", [found], domain=MICROSOFT, signal_ndim=1, onesided=1, normalized=0)


@family()
def looked_up(g: GraphWriter) -> Value:
    """Rows of tables: positions, hashes, embeddings."""
    op_type = g.choice(("TorchEmbedding", "MurmurHash3", "ExpandDims", "UnfoldTensor", "IsAllFinite"))
    if op_type == "TorchEmbedding":
        indices = g.constant(g.numbers.integers(0, 5, (2, 3)).astype(np.int64))
        return g.node(op_type, [g.weights(et.F32, 5, 4), indices], domain=MICROSOFT)
    if op_type == "MurmurHash3":
        return g.node(op_type, [g.pick(et.I32, et.I64, et.U32)], domain=MICROSOFT, seed=g.choice((None, 7)))
    if op_type == "ExpandDims":
        value = g.pick(et.F32, et.I64)
        axis = g.constant(np.asarray(g.random.randint(-value.rank - 1, value.rank), np.int32))
        return g.node(op_type, [value, axis], domain=MICROSOFT)
    value = g.pick(et.F32, least=1, filled=True)
    if op_type == "IsAllFinite":
        return g.node(op_type, [value], domain=MICROSOFT)
    size = g.random.randint(1, min(shape[-1] for shape in value.shapes))
    return g.node(op_type, [value], domain=MICROSOFT, dim=-1, size=size, step=g.choice((1, 2)))
