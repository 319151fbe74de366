"""Strings: concatenation, splitting, normalizing, matching, TF-IDF."""

from __future__ import annotations

from ort_core.ir.dims import Dim
from ort_core.ir.types import DataType
from ort_core.ops.infer_rule import infer_rule
from ort_core.ops.inference_context import InferenceContext
from ort_core.ops.shape_arithmetic import broadcast


@infer_rule("StringConcat")
def infer_string_concat(ctx: InferenceContext) -> None:
    """The inputs broadcast."""
    ctx.set_shape(0, broadcast(ctx, (ctx.shape(0), ctx.shape(1))))


@infer_rule("RegexFullMatch")
def infer_regex_full_match(ctx: InferenceContext) -> None:
    """One truth value per string."""
    ctx.set_output(0, DataType.BOOL, ctx.shape(0))


@infer_rule("StringSplit")
def infer_string_split(ctx: InferenceContext) -> None:
    """A new last axis for the parts, as long as the longest; and the number of parts of each string."""
    shape = ctx.shape(0)
    ctx.set_output(0, DataType.STRING, None if shape is None else (*shape, None))
    ctx.set_output(1, DataType.INT64, shape)


@infer_rule("StringNormalizer")
def infer_string_normalizer(ctx: InferenceContext) -> None:
    """A vector [C] or one row [1, C]; stopwords may leave fewer."""
    shape = ctx.shape_of_rank(0, 1, 2)
    if shape is None:
        return
    size = None if ctx.items_of("stopwords") else shape[-1]
    if len(shape) == 2 and isinstance(shape[0], int) and shape[0] != 1:
        ctx.refuse(f"Input shape must have either [C] or [1,C] dimensions, not {shape}")
    ctx.set_output(0, DataType.STRING, (size,) if len(shape) == 1 else (1, size))


@infer_rule("TfIdfVectorizer")
def infer_tf_idf(ctx: InferenceContext) -> None:
    """The last axis becomes the largest n-gram index plus one."""
    shape = ctx.shape_of_rank(0, 1, 2)
    indexes = ctx.ints_of("ngram_indexes")
    size: Dim = max(indexes) + 1 if indexes else None
    if shape is not None:
        ctx.set_output(0, DataType.FLOAT, (*shape[:-1], size))
