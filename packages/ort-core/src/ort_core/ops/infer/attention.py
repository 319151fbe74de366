"""Attention of ai.onnx: Attention, RotaryEmbedding, LinearAttention, CausalConvWithState, FlexAttention."""

from __future__ import annotations

from ort_core.ir.dims import Dim
from ort_core.ir.graph import Graph
from ort_core.ir.types import DataType, Shape, TensorType
from ort_core.ops.infer_rule import infer_rule
from ort_core.ops.inference_context import InferenceContext
from ort_core.ops.shape_arithmetic import add_dims, divide_dim, scale_dim


@infer_rule("Attention")
def infer_attention(ctx: InferenceContext) -> None:
    """Queries keep their layout with the values' head size; present keys and values follow the past ones."""
    query, key, value = (_heads(ctx, i, "q_num_heads" if i == 0 else "kv_num_heads") for i in range(3))
    if query is None or value is None:
        return
    batch, heads, length, _ = query
    size = value[3]
    if len(ctx.shape(0) or ()) == 4:
        ctx.set_shape(0, (batch, heads, length, size))
    else:
        ctx.set_shape(0, (batch, length, scale_dim(size, heads)))
    total = None if key is None else key[2]
    past = ctx.shape_of_rank(4, 4)
    if ctx.has_input(4):
        total = None if past is None else add_dims(total, past[2])
    if key is not None:
        ctx.set_shape(1, (key[0], key[1], total, key[3]))
    ctx.set_shape(2, (value[0], value[1], total, size))
    ctx.set_shape(3, (batch, heads, length, total))


def _heads(ctx: InferenceContext, index: int, attribute: str) -> tuple[Dim, Dim, Dim, Dim] | None:
    """Return [batch, heads, length, head size] of an input of rank 4, or of rank 3 with packed heads."""
    shape = ctx.shape_of_rank(index, 3, 4)
    if shape is None:
        return None
    if len(shape) == 4:
        return shape[0], shape[1], shape[2], shape[3]
    heads = ctx.int_of(attribute)
    if heads <= 0:
        ctx.refuse(f"attribute '{attribute}' is needed for inputs of rank 3")
    return shape[0], heads, shape[1], divide_dim(shape[2], heads)


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
