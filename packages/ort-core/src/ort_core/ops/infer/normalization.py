"""Normalizations and losses: the shape of the input, statistics per channel or per row, losses per element."""

from __future__ import annotations

from ort_core.ir.types import DataType
from ort_core.ops.infer_rule import infer_rule
from ort_core.ops.inference_context import InferenceContext


@infer_rule("BatchNormalization")
def infer_batch_normalization(ctx: InferenceContext) -> None:
    """The other outputs are statistics of one entry per channel."""
    shape = ctx.shape(0)
    ctx.set_shape(0, shape)
    channel = (None if shape is None or len(shape) < 2 else shape[1],)
    for index in range(1, ctx.output_count):
        ctx.set_shape(index, ctx.shape(index + 2) if ctx.opset >= 14 and ctx.shape(index + 2) is not None else channel)


@infer_rule("InstanceNormalization", "GroupNormalization", "RMSNormalization")
def infer_instance_normalization(ctx: InferenceContext) -> None:
    """The shape of the input."""
    ctx.set_shape(0, ctx.shape(0))


@infer_rule("LayerNormalization")
def infer_layer_normalization(ctx: InferenceContext) -> None:
    """Mean and deviation have size 1 from the axis on."""
    shape = ctx.shape(0)
    ctx.set_shape(0, shape)
    stash = ctx.data_type_of("stash_type", DataType.FLOAT)
    axis = -1 if shape is None else ctx.axis(ctx.int_of("axis", -1), len(shape))
    statistics = None if shape is None else (*shape[:axis], *((1,) * (len(shape) - axis)))
    for index in (1, 2):
        ctx.set_output(index, stash, statistics)


@infer_rule("SimplifiedLayerNormalization")
def infer_simplified_layer_normalization(ctx: InferenceContext) -> None:
    """As LayerNormalization, with one statistic; the output has the type of the scale."""
    shape = ctx.shape(0)
    ctx.set_output(0, ctx.dtype(1) or ctx.dtype(0), shape)
    if shape is not None:
        axis = ctx.axis(ctx.int_of("axis", -1), len(shape))
        ctx.set_output(1, DataType.FLOAT, (*shape[:axis], *((1,) * (len(shape) - axis))))


@infer_rule("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
def infer_loss(ctx: InferenceContext) -> None:
    """One number, or with ``reduction`` "none" one per target, of which there is one for each scores' place."""
    scores, target = ctx.shape(0), ctx.shape(1)
    if scores is not None and target is not None and len(scores) > 1:
        places = (scores[0], *scores[2:])
        stated = [pair for pair in zip(places, target, strict=False) if all(isinstance(size, int) for size in pair)]
        if len(places) != len(target) or any(left != right for left, right in stated):
            ctx.refuse(f"Input and target dimension value mismatch: classes of {target} do not fit scores of {scores}")
    if ctx.string_of("reduction", "mean") == "none":
        ctx.set_shape(0, ctx.shape(1))
    else:
        ctx.set_shape(0, ())
    ctx.set_shape(1, ctx.shape(0))
