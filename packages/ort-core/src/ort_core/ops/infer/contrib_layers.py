"""com.microsoft layers: activations, normalizations, dropout, embeddings and hyper-connections."""

from __future__ import annotations

from ort_core.ir.dims import product
from ort_core.ir.types import DataType, Shape
from ort_core.ops.infer_rule import infer_rule
from ort_core.ops.inference_context import InferenceContext
from ort_core.ops.shape_arithmetic import add_dims, broadcast, divide_dim

MS = "com.microsoft"
SAME_SHAPE = (
    "BiasAdd", "BiasGelu", "BiasSoftmax", "BranchwiseRMSNorm", "FastGelu", "GatedAdd", "GatedRMSNorm", "Gelu",
    "GroupNorm", "HyperConnectionPostMix", "Inverse", "LongformerAttention", "MoE", "MRotaryEmbedding", "QMoE",
    "QOrderedGelu", "QOrderedLayerNormalization", "QOrderedLongformerAttention", "QLinearLeakyRelu", "QLinearSigmoid",
    "QLinearSoftmax", "QuantizeWithOrder", "QuickGelu", "RotaryEmbedding", "SampleOp", "ScaledSiLU", "Trilu",
)  # fmt: skip


@infer_rule(*SAME_SHAPE, domain=MS)
def infer_same_shape(ctx: InferenceContext) -> None:
    """Every output element comes from the input row at its place."""
    ctx.set_shape(0, ctx.shape(0))


@infer_rule("SkipGroupNorm", "EngramGate", "LinearAttentionGate", domain=MS)
def infer_all_same_shape(ctx: InferenceContext) -> None:
    """All outputs have the shape of the first input."""
    for index in range(ctx.output_count):
        ctx.set_shape(index, ctx.shape(0))


@infer_rule("GemmaRotaryEmbedding", domain=MS)
def infer_gemma_rotary_embedding(ctx: InferenceContext) -> None:
    """Queries and keys keep their shapes."""
    ctx.set_shape(0, ctx.shape(1))
    ctx.set_shape(1, ctx.shape(3))


@infer_rule("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", domain=MS)
def infer_skip_layer_normalization(ctx: InferenceContext) -> None:
    """Result and sum have the shape of the input, the statistics one entry per row."""
    shape = ctx.shape(0)
    ctx.set_shape(0, shape)
    if shape:
        for index in (1, 2):
            ctx.set_output(index, DataType.FLOAT, (*shape[:-1], 1))
    ctx.set_shape(3, shape)


@infer_rule("EmbedLayerNormalization", domain=MS)
def infer_embed_layer_normalization(ctx: InferenceContext) -> None:
    """[batch, length, hidden], a mask index per batch, and the sum before normalizing."""
    _set_embedded(ctx, 2)
    if ctx.found and ctx.has_output(2):
        ctx.set_output(2, ctx.dtype(2), _embedded(ctx, 2))


@infer_rule("QEmbedLayerNormalization", domain=MS)
def infer_quantized_embed_layer_normalization(ctx: InferenceContext) -> None:
    """As EmbedLayerNormalization, without the sum."""
    _set_embedded(ctx, 2)


def _set_embedded(ctx: InferenceContext, words: int) -> None:
    ids = ctx.shape_of_rank(0, 2)
    ctx.set_shape(0, _embedded(ctx, words))
    ctx.set_output(1, DataType.INT32, (None if ids is None else ids[0],))


def _embedded(ctx: InferenceContext, words: int) -> Shape | None:
    ids, table = ctx.shape_of_rank(0, 2), ctx.shape_of_rank(words, 2)
    return None if ids is None else (*ids, None if table is None else table[1])


@infer_rule("BiasDropout", domain=MS)
def infer_bias_dropout(ctx: InferenceContext) -> None:
    """Result and mask have the shape of the data."""
    ctx.set_shape(0, ctx.shape(0))
    ctx.set_output(1, DataType.BOOL, ctx.shape(0))


@infer_rule("BitmaskDropout", "BitmaskBiasDropout", domain=MS)
def infer_bitmask_dropout(ctx: InferenceContext) -> None:
    """The mask has 32 elements in each of its numbers."""
    shape = ctx.shape(0)
    ctx.set_shape(0, shape)
    total = None if shape is None else product(shape)
    ctx.set_output(1, DataType.UINT32, (divide_dim(add_dims(total, 31), 32),))


@infer_rule("BiasSplitGelu", domain=MS)
def infer_bias_split_gelu(ctx: InferenceContext) -> None:
    """The last axis is halved."""
    shape = ctx.shape_min_rank(0, 1)
    if shape is not None:
        ctx.set_shape(0, (*shape[:-1], divide_dim(shape[-1], 2)))


@infer_rule("HyperConnectionPreMix", domain=MS)
def infer_hyper_connection_pre_mix(ctx: InferenceContext) -> None:
    """The branches, parts of the last axis where their number is given, else an axis of their own, are summed up."""
    shape, branches = ctx.shape_min_rank(0, 2), ctx.int_of("num_branches")
    if shape is None:
        return
    if branches > 0:
        ctx.set_shape(0, (*shape[:-1], divide_dim(shape[-1], branches)))
    else:
        ctx.set_shape(0, (*shape[:-2], shape[-1]))


@infer_rule("ComplexMul", "ComplexMulConj", domain=MS)
def infer_complex_mul(ctx: InferenceContext) -> None:
    """The inputs broadcast."""
    ctx.set_shape(0, broadcast(ctx, (ctx.shape(0), ctx.shape(1))))


@infer_rule("IsAllFinite", domain=MS)
def infer_is_all_finite(ctx: InferenceContext) -> None:
    """A scalar."""
    ctx.set_output(0, DataType.BOOL, ())


@infer_rule("MurmurHash3", domain=MS)
def infer_murmur_hash(ctx: InferenceContext) -> None:
    """One hash per element, unsigned if positive."""
    dtype = DataType.UINT32 if ctx.int_of("positive", 1) == 1 else DataType.INT32
    ctx.set_output(0, dtype, ctx.shape(0))
