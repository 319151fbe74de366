"""com.microsoft: what attends without a record of its own, states of linear attention, padding, indexers."""

from __future__ import annotations

from ort_core.ir.dims import Dim
from ort_core.ir.types import DataType
from ort_core.ops.attention_forms import node_attention
from ort_core.ops.infer.attention import linear_attention_shapes
from ort_core.ops.infer_rule import infer_rule
from ort_core.ops.inference_context import InferenceContext
from ort_core.ops.shape_arithmetic import add_dims, divide_dim, scale_dim

MS = "com.microsoft"


@infer_rule("QOrderedAttention", domain=MS)
def infer_ordered_attention(ctx: InferenceContext) -> None:
    """[batch, length, value width] with separate weights."""
    shape, weights = ctx.shape_of_rank(0, 3), ctx.shape_of_rank(7, 2)
    if shape is not None:
        ctx.set_shape(0, (*shape[:2], None if weights is None else weights[1]))


@infer_rule("PagedAttention", domain=MS)
def infer_paged_attention(ctx: InferenceContext) -> None:
    """[tokens, heads * size of values]; the caches stay as they are, but for what is written into them."""
    record = node_attention(ctx.node, ctx.shape_of_rank, ctx.attribute)
    width = scale_dim(ctx.int_of("v_head_size"), record.query.heads) if ctx.int_of("v_head_size") else record.width
    if record.query.layout is not None:
        ctx.set_shape(0, (record.query.length, width))
    for index, cache in ((1, 3), (2, 4)):
        ctx.set_type(index, ctx.type_of(cache))


@infer_rule("SparsePagedAttention", domain=MS)
def infer_sparse_paged_attention(ctx: InferenceContext) -> None:
    """[tokens, heads * head size]; the caches are updated in place."""
    query = ctx.shape_of_rank(0, 2)
    if query is not None:
        heads, groups = ctx.int_of("num_heads"), ctx.int_of("kv_num_heads")
        size = divide_dim(query[1], heads if ctx.has_input(1) else heads + 2 * groups)
        ctx.set_shape(0, (query[0], scale_dim(size, heads)))
    for index, cache in ((1, 3), (2, 4)):
        ctx.set_type(index, ctx.type_of(cache))


@infer_rule("DecoderAttention", domain=MS)
def infer_decoder_attention(ctx: InferenceContext) -> None:
    """[length, batch, hidden]; the caches are [batch, heads, some length, head size]."""
    query, heads = ctx.shape_of_rank(0, 3), ctx.int_of("num_heads")
    ctx.set_shape(0, query)
    if query is not None:
        for index in (1, 2):
            ctx.set_shape(index, (query[1], heads or None, None, divide_dim(query[2], heads)))


@infer_rule("LinearAttention", domain=MS)
def infer_linear_attention(ctx: InferenceContext) -> None:
    """As in ai.onnx; a state window keeps several states."""
    output, state = linear_attention_shapes(ctx)
    window = ctx.int_of("state_window")
    ctx.set_shape(0, output)
    ctx.set_output(1, ctx.dtype(3) or ctx.dtype(0), (window, *state) if window > 0 else state)


@infer_rule("CausalConvWithState", domain=MS)
def infer_causal_conv_with_state(ctx: InferenceContext) -> None:
    """The shape of the input; the state holds the positions before the next one."""
    shape, weight = ctx.shape(0), ctx.shape(1)
    ctx.set_shape(0, shape)
    window, past = ctx.int_of("state_window"), ctx.shape(3)
    if past is not None:
        ctx.set_shape(1, past)
    elif shape is not None and len(shape) >= 3 and ctx.int_of("ndim", 1) == 1:
        kernel = None if weight is None or len(weight) < 3 else weight[2]
        kept = scale_dim(add_dims(kernel, -1), ctx.int_of("dilation", 1))
        state = (shape[0], kept, *shape[2:]) if ctx.int_of("channels_last") else (*shape[:2], kept)
        ctx.set_shape(1, (window, *state) if window > 0 else state)


@infer_rule("VarlenCausalConvWithState", domain=MS)
def infer_varlen_causal_conv_with_state(ctx: InferenceContext) -> None:
    """[tokens, channels]; the states keep their shape."""
    shape, state = ctx.shape_of_rank(0, 2), ctx.shape_of_rank(4, 3)
    ctx.set_shape(0, shape)
    ctx.set_shape(1, state)
    if state is not None:
        ctx.set_shape(2, (state[0], ctx.int_of("state_update_capacity"), state[1]))


@infer_rule("GatedDeltaNet", domain=MS)
def infer_gated_delta_net(ctx: InferenceContext) -> None:
    """Like the values, packed ones as the state tells; the final state has the shape of the initial one."""
    query, value, state = ctx.shape(0), ctx.shape_of_rank(2, 3, 4), ctx.shape_of_rank(6, 4)
    if value is not None:
        ctx.set_shape(0, value)
    elif query is not None and state is not None and not ctx.has_input(2):
        ctx.set_shape(0, (*query[:-1], state[1], state[2]))
    ctx.set_output(1, DataType.FLOAT, state)
    ctx.set_output(2, DataType.FLOAT, (None if state is None else state[0], None))


@infer_rule("RelativePositionBias", domain=MS)
def infer_relative_position_bias(ctx: InferenceContext) -> None:
    """[1, heads, query length, key length]."""
    table = ctx.shape_of_rank(0, 2)
    lengths = [ctx.scalar(1), ctx.scalar(2)]
    dims = [None if isinstance(d, float) else d for d in lengths]
    ctx.set_shape(0, (1, None if table is None else table[1], *dims))


@infer_rule("GatedRelativePositionBias", domain=MS)
def infer_gated_relative_position_bias(ctx: InferenceContext) -> None:
    """[batch, heads, length, length]."""
    query, bias = ctx.shape_of_rank(0, 2, 3), ctx.shape_of_rank(2, 4)
    length = bias[2] if bias is not None else None
    batch = query[0] if query is not None and len(query) == 3 else None
    ctx.set_shape(0, (batch, ctx.int_of("num_heads") or None, length, length))


@infer_rule("RemovePadding", domain=MS)
def infer_remove_padding(ctx: InferenceContext) -> None:
    """[tokens, hidden], offsets, cumulated lengths, and the longest length."""
    shape = ctx.shape_of_rank(0, 3)
    if shape is not None:
        ctx.set_shape(0, (None, shape[2]))
        ctx.set_output(1, DataType.INT32, shape[:2])
        ctx.set_output(2, DataType.INT32, (add_dims(shape[0], 1),))
        ctx.set_output(3, DataType.INT32, (1,))


@infer_rule("RestorePadding", domain=MS)
def infer_restore_padding(ctx: InferenceContext) -> None:
    """[batch, length, hidden]."""
    shape, offsets = ctx.shape_of_rank(0, 2), ctx.shape_of_rank(1, 2)
    if shape is not None and offsets is not None:
        ctx.set_shape(0, (*offsets, shape[1]))


@infer_rule("SparseAttentionIndexer", domain=MS)
def infer_sparse_attention_indexer(ctx: InferenceContext) -> None:
    """Indices per query; the cache keeps its shape when it is shared."""
    query, past = ctx.shape(0), ctx.shape(7)
    if query is not None and len(query) >= 2:
        ctx.set_shape(0, (*query[:2], _selected(ctx)))
    if past is not None:
        ctx.set_shape(1, past if ctx.has_input(12) else (*past[:1], None, *past[2:]))


@infer_rule("PackedSparseAttentionIndexer", domain=MS)
def infer_packed_sparse_attention_indexer(ctx: InferenceContext) -> None:
    """Indices and counts per token; the states keep their shapes."""
    query = ctx.shape_of_rank(0, 2)
    if query is not None:
        ctx.set_shape(0, (query[0], _selected(ctx)))
        ctx.set_shape(1, (query[0],))
    for index, source in ((2, 12), (3, 13), (4, 14), (5, 15)):
        ctx.set_shape(index, ctx.shape(source))
    state = ctx.shape(12)
    if state is not None and len(state) == 3:
        ctx.set_shape(6, (state[0], ctx.int_of("state_update_capacity"), state[2]))


def _selected(ctx: InferenceContext) -> Dim:
    if ctx.string_of("policy_mode") == "csa":
        return ctx.int_of("index_topk") or None
    return ctx.int_of("token_budget") + ctx.int_of("compress_ratio") - 1
