"""Attention of ai.onnx: Attention, RotaryEmbedding, LinearAttention, CausalConvWithState, FlexAttention."""

from __future__ import annotations

from ort_core.ir.dims import Dim, maximum
from ort_core.ir.graph import Graph
from ort_core.ir.types import DataType, Shape, TensorType
from ort_core.ops.attention import AttentionRecord, Cache, Growth, HeadSource, Layout
from ort_core.ops.attention_forms import node_attention
from ort_core.ops.infer_rule import infer_rule
from ort_core.ops.inference_context import InferenceContext
from ort_core.ops.shape_arithmetic import add_dims, divide_dim, scale_dim


@infer_rule("Attention")
@infer_rule(
    "Attention", "DecoderMaskedMultiHeadAttention", "DecoderMaskedSelfAttention", "DynamicSparseAttention",
    "GroupQueryAttention", "MultiHeadAttention", "PackedAttention", "PackedMultiHeadAttention", "QAttention",
    "SparseAttention", domain="com.microsoft",
)  # fmt: skip
def infer_attention(ctx: InferenceContext) -> None:
    """Results lie as queries do, as wide as the values; keys and values follow those of before."""
    record = node_attention(ctx.node, ctx.shape_of_rank, ctx.attribute)
    query, key, value = record.query, record.key, record.value
    for source, name in ((query, "q_num_heads"), (key, "kv_num_heads"), (value, "kv_num_heads")):
        if not ctx.node.domain and source.layout is Layout.ROWS and source.heads is None:
            ctx.refuse(f"attribute '{name}' is needed for inputs of rank 3")
    if query.layout is None:
        return
    if not record.is_merged:
        ctx.set_shape(0, (query.batch, query.heads, query.length, value.size))
    else:
        leading = (query.length,) if record.tokens is not None else (query.batch, query.length)
        ctx.set_shape(0, (*leading, record.width))
    if record.cache is not None:
        for index, source, past in ((1, key, record.cache.key), (2, value, record.cache.value)):
            _say_present(ctx, record, record.cache, index, source, past)
    ctx.set_output(3, ctx.dtype(0), (query.batch, query.heads, query.length, record.total))


def _say_present(
    ctx: InferenceContext, record: AttentionRecord, cache: Cache, index: int, new: HeadSource, past: int | None
) -> None:
    """Say the shape of what becomes of a cache, which lies as the cache of before does."""
    leading: Shape = (2,) if cache.is_one_tensor else ()
    before = None if past is None else ctx.shape_of_rank(past, 4 + len(leading))
    rows = record.total
    if cache.growth is Growth.BUFFER and past is not None:
        rows = None if before is None else before[-2]
    elif cache.growth is Growth.FILLED:
        rows = _filled(ctx, record, past, before)
    shape = (*leading, new.batch, new.heads, rows, new.size)
    if before is not None:
        shape = (*before[:-2], rows, before[-1])
    if cache.growth is Growth.FILLED:  # a cache may have a type of its own
        ctx.set_output(index, (None if past is None else ctx.dtype(past)) or ctx.dtype(0), shape)
    elif not cache.is_one_tensor or index == 1:
        ctx.set_shape(index, shape)


def _filled(ctx: InferenceContext, record: AttentionRecord, past: int | None, before: Shape | None) -> Dim:
    """Return the rows of a cache that grows to the total where it has fewer."""
    stated = None if record.lengths is None or record.lengths.total is None else ctx.scalar(record.lengths.total)
    total = None if isinstance(stated, float) else stated
    if past is None:
        return total
    return None if before is None or before[-2] is None or total is None else maximum(before[-2], total)


@infer_rule("RotaryEmbedding")
def infer_rotary_embedding(ctx: InferenceContext) -> None:
    """The shape of the input."""
    ctx.set_shape(0, ctx.shape_of_rank(0, 3, 4))


@infer_rule("FlexAttention", domain="ai.onnx.preview")
def infer_flex_attention(ctx: InferenceContext) -> None:
    """The shape of the queries with the values' head size; the modifier graphs see the scores."""
    query, key, value = (ctx.shape_of_rank(i, 4) for i in range(3))
    if query is None:
        return
    ctx.set_shape(0, (*query[:3], None if value is None else value[3]))
    dtype = ctx.data_type_of("softmax_precision") or (
        DataType.DOUBLE if ctx.dtype(0) is DataType.DOUBLE else DataType.FLOAT
    )
    scores = TensorType(dtype, (*query[:3], None if key is None else key[2]))
    for name in ("score_mod", "prob_mod"):
        graph = ctx.attribute(name)
        if isinstance(graph, Graph):
            ctx.infer_body(graph, (scores,))


def linear_attention_shapes(ctx: InferenceContext) -> tuple[Shape, Shape]:
    """Return the shapes of the output and of the state of a linear attention with packed heads."""
    query, value = ctx.shape_of_rank(0, 3), ctx.shape_of_rank(2, 3)
    groups, heads = ctx.int_of("kv_num_heads"), ctx.int_of("q_num_heads")
    key_size = None if query is None else divide_dim(query[2], heads)  # keys may have fewer heads than values
    size = None if value is None else divide_dim(value[2], groups)
    batch, length = (None, None) if query is None else query[:2]
    return (batch, length, scale_dim(size, max(heads, groups))), (batch, groups, key_size, size)


@infer_rule("LinearAttention")
def infer_linear_attention(ctx: InferenceContext) -> None:
    """Packed heads come out with the values' head size; the state is [batch, groups, key size, value size]."""
    output, state = linear_attention_shapes(ctx)
    ctx.set_shape(0, output)
    ctx.set_output(1, ctx.dtype(3) or ctx.dtype(0), state)


@infer_rule("CausalConvWithState")
def infer_causal_conv_with_state(ctx: InferenceContext) -> None:
    """The shape of the input; the state holds the last ``kernel - 1`` positions."""
    shape, weight = ctx.shape_of_rank(0, 3), ctx.shape_of_rank(1, 3)
    ctx.set_shape(0, shape)
    if shape is not None:
        ctx.set_shape(1, (*shape[:2], None if weight is None else add_dims(weight[2], -1)))
