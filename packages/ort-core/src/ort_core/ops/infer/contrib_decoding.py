"""com.microsoft operators of experts, packed weights and guessed tokens."""

from __future__ import annotations

from ort_core.ir.dims import Dim, product
from ort_core.ir.types import DataType
from ort_core.ops.infer_rule import infer_rule
from ort_core.ops.inference_context import InferenceContext
from ort_core.ops.shape_arithmetic import add_dims, divide_dim, scale_dim

MS = "com.microsoft"


@infer_rule("ConvStateReplay", "GatedDeltaNetStateReplay", domain=MS)
def infer_state_replay(ctx: InferenceContext) -> None:
    """The destination's backing, of which a part is written."""
    ctx.set_shape(0, ctx.shape(2))


@infer_rule("GatherPacked", domain=MS)
def infer_gather_packed(ctx: InferenceContext) -> None:
    """A row of K elements for each index."""
    indices = ctx.shape(1)
    shape = None if indices is None else (*indices, ctx.int_of("K"))
    ctx.set_output(0, ctx.data_type_of("output_dtype", DataType.BFLOAT16), shape)


@infer_rule("MatMulNBitsQLoRA", "MatMulPacked", domain=MS)
def infer_packed_product(ctx: InferenceContext) -> None:
    """The last axis becomes N."""
    shape = ctx.shape_min_rank(0, 1)
    if shape is not None:
        ctx.set_shape(0, (*shape[:-1], ctx.int_of("N")))


@infer_rule("MoEPacked", domain=MS)
def infer_packed_experts(ctx: InferenceContext) -> None:
    """As the input."""
    ctx.set_shape(0, ctx.shape(0))


@infer_rule("MoEGroupRouter", domain=MS)
def infer_group_router(ctx: InferenceContext) -> None:
    """A row of experts for each token."""
    logits, bias = ctx.shape_min_rank(0, 2), ctx.shape_of_rank(1, 1)
    tokens: Dim = None if logits is None else product(logits[:-1])
    shape = (tokens, None if bias is None else bias[0])
    ctx.set_shape(0, shape)
    for index in (1, 2):
        ctx.set_output(index, DataType.FLOAT, shape)


@infer_rule("RouterGateUpProj", domain=MS)
def infer_router_projection(ctx: InferenceContext) -> None:
    """The columns of W are the router's, then two halves."""
    x, w, router = ctx.shape_min_rank(0, 1), ctx.shape_of_rank(1, 2), ctx.int_of("router_size")
    if x is None:
        return
    ctx.set_shape(0, (*x[:-1], router))
    inner = None if w is None else divide_dim(add_dims(w[1], -router), 2)
    ctx.set_shape(1, (*x[:-1], inner))


@infer_rule("SwiGLU", domain=MS)
def infer_swiglu(ctx: InferenceContext) -> None:
    """As the gate, or half of it where it holds both."""
    shape = ctx.shape_min_rank(0, 1)
    if shape is not None:
        ctx.set_shape(0, shape if ctx.has_input(1) else (*shape[:-1], divide_dim(shape[-1], 2)))


@infer_rule("HyperConnectionLowRankMix", domain=MS)
def infer_low_rank_mix(ctx: InferenceContext) -> None:
    """Streams (..., C * H) give (..., H), gates (..., C) and streams."""
    shape, branches = ctx.shape_min_rank(0, 1), ctx.int_of("num_branches")
    if branches < 1:
        ctx.refuse(f"num_branches must be positive, found {branches}")
    if shape is not None:
        ctx.set_shape(0, (*shape[:-1], divide_dim(shape[-1], branches)))
        ctx.set_shape(1, (*shape[:-1], branches))
        ctx.set_shape(2, shape)


@infer_rule("RMSNormRotary", domain=MS)
def infer_normalized_rotary(ctx: InferenceContext) -> None:
    """[B, S, heads, stride] gives [B, S, heads * width] or all rows in one batch, and the values before rotation."""
    ctx.set_output(0, DataType.FLOAT16 if ctx.int_of("output_fp16") else DataType.BFLOAT16, None)
    shape = ctx.shape_of_rank(0, 4)
    if shape is None:
        return
    batch, length, heads, stride = shape
    width: Dim = ctx.int_of("input_width") or add_dims(stride, -ctx.int_of("input_start"))
    rows = (1, product((batch, length))) if ctx.int_of("flatten_batch") else (batch, length)
    ctx.set_shape(0, (*rows, scale_dim(width, heads)))
    ctx.set_output(1, DataType.FLOAT, (batch, length, heads, width))


@infer_rule("PackedSparseAttentionIndexerMerge", domain=MS)
def infer_merged_selections(ctx: InferenceContext) -> None:
    """Indices [N, most], counts [N], status [N]."""
    rows = ctx.shape_of_rank(2, 1)
    count = None if rows is None else rows[0]
    ctx.set_output(0, DataType.INT32, (count, ctx.int_of("max_output_entries")))
    for index in (1, 2):
        ctx.set_output(index, DataType.INT32, (count,))


@infer_rule("Mamba2Verify", domain=MS)
def infer_mamba_verify(ctx: InferenceContext) -> None:
    """Rows of heads, snapshots as they came in, and what stands between."""
    projection, channels = ctx.shape_of_rank(0, 2), ctx.shape_of_rank(4, 1)
    rows = None if projection is None else projection[0]
    inner = ctx.int_of("heads") * ctx.int_of("head_dim", 64)
    ctx.set_shape(0, (rows, inner))
    ctx.set_shape(1, ctx.shape(1))
    ctx.set_output(2, DataType.FLOAT, ctx.shape(2))
    ctx.set_shape(3, (rows, None if channels is None else channels[0]))
    ctx.set_output(4, DataType.FLOAT, (rows, inner))


@infer_rule("SpeculativePrefixCommit", domain=MS)
def infer_prefix_commit(ctx: InferenceContext) -> None:
    """A length for each request; the state and the context as they came in."""
    control = ctx.shape(3)
    batch = None if control is None else divide_dim(product(control), 16)
    ctx.set_output(0, DataType.INT32, (batch,))
    ctx.set_output(1, DataType.INT64, control)
    ctx.set_output(2, DataType.INT64, ctx.shape(4))
