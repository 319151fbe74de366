"""The step of an attention: views of heads, whatever operator they come from, to one kernel call."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace

from ort_core.cpu.codegen.attention.attention import ARGUMENTS, AttentionFacts, attention_text, scratch_count
from ort_core.cpu.codegen.attention.attention_pairs import pair_attention_text, pair_scratch_count
from ort_core.cpu.codegen.attention.attention_rows import ScoreMask
from ort_core.cpu.codegen.attention.attention_tiles import tile_attention_text, tile_scratch_count
from ort_core.cpu.codegen.attention.few_queries import FEW_QUERIES
from ort_core.cpu.codegen.attention.stored_rows import ROW_TYPES, Scales
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.codegen.products.bfloat16_product import has_pair_products, rounds_both
from ort_core.cpu.lowering.images.layout_steps import text_kernel
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.pending import PendingElementwise
from ort_core.cpu.lowering.products.product_panels import (
    attention_table_buffer,
    attention_tiles_buffer,
    tile_table_buffer,
)
from ort_core.cpu.lowering.steps import Argument, NotLowered, Operators, Pointer, pointer
from ort_core.cpu.lowering.views import Buffer, View
from ort_core.plugin import frozen
from ort_core.plugin.ir import DataType, KnownDim
from ort_core.plugin.loops import element

LEAST_QUERIES = 1024  # of a piece of an attention in tiles


@frozen
class Heads:
    """Operands of an attention with the axes (batch, heads, length, size).

    ``mask`` broadcasts to (batch, query heads, queries, keys); ``lengths`` (batch,) says how many keys count;
    ``offset`` is the position of the first query among the keys. Keys and values may be of a type of ``ROW_TYPES``;
    integers have ``scales``: dense floats, one, or (key heads, size).
    """

    query: View
    key: View
    value: View
    out: View
    mask: View | None = None
    lengths: View | None = None
    offset: KnownDim = 0
    scales: tuple[View, View] | None = None


def split_heads(view: View, heads: int) -> View:
    """Return (batch, length, heads * size) as (batch, heads, length, size)."""
    batch, length, hidden = view.shape
    if not isinstance(hidden, int):
        raise NotLowered(f"the size of the heads is not known: {hidden} is not a number")
    if heads < 1 or hidden % heads:
        raise NotLowered(f"{heads} heads do not divide {hidden}")
    size = hidden // heads
    step = view.strides[2]
    strides = (view.strides[0], size * step, view.strides[1], step)
    return View(view.buffer, (batch, heads, length, size), strides, view.offset)


def dense_rows(lowering: Lowering, view: View) -> View:
    """Return the view, copied if the elements of its rows do not lie side by side."""
    return view if view.strides[-1] == 1 or view.shape[-1] == 1 else lowering.copied(view)


def copy_into(lowering: Lowering, source: View, target: View, operators: Operators) -> None:
    """Copy elements into a view of the same shape."""
    pending = PendingElementwise(element(0, source.dtype), (source,), target.shape, operators)
    lowering.stores.store_elementwise(pending, target)


def append(lowering: Lowering, past: View, new: View, target: View, operators: Operators) -> None:
    """Write a cache (batch, heads, length, size) and what is new behind it into ``target``."""
    lowering.require_equal(past.shape[2] + new.shape[2], target.shape[2])
    parts = ((past, target.offset), (new, target.offset + past.shape[2] * target.strides[2]))
    for part, offset in parts:
        for axis in (0, 1, 3):
            lowering.require_equal(part.shape[axis], target.shape[axis])
        copy_into(lowering, part, View(target.buffer, part.shape, target.strides, offset), operators)


def emit_attention(lowering: Lowering, heads: Heads, facts: AttentionFacts, operators: Operators) -> None:
    """Write the step that attends with heads into ``heads.out``.

    Raises:
        NotLowered: numbers of heads or sizes are not known, or the mask does not fit the scores.
    """
    batch, query_heads, queries, depth = heads.query.shape
    key_heads, keys, width = heads.key.shape[1], heads.key.shape[2], heads.value.shape[3]
    if not isinstance(query_heads, int) or not isinstance(key_heads, int):
        raise NotLowered("the number of heads is not known")
    if key_heads < 1 or query_heads % key_heads:
        raise NotLowered(f"{key_heads} key heads do not divide {query_heads} query heads")
    stored = heads.key.dtype
    is_generated = heads.query.dtype is DataType.FLOAT and stored in ROW_TYPES and heads.value.dtype is stored
    if not is_generated or (stored is DataType.INT8) != (heads.scales is not None):
        types = ", ".join(view.dtype.text for view in (heads.query, heads.key, heads.value))
        raise NotLowered(f"attention of {types} is not generated")
    group = query_heads // key_heads
    form = _form(lowering)
    may_be_few = form.reads_few and not (isinstance(queries, int) and group * queries > FEW_QUERIES)
    facts = replace(facts, stored=stored, scales=_scales_of(heads.scales), may_be_few=may_be_few)
    agreed = (
        (heads.key.shape, (batch, key_heads, keys, depth)),
        (heads.value.shape, (batch, key_heads, keys, width)),
        (heads.out.shape, (batch, query_heads, queries, width)),
    )
    for found, expected in agreed:
        for left, right in zip(found, expected, strict=True):
            lowering.require_equal(left, right)
    mask = _mask(lowering, heads.mask, (batch, query_heads, queries, keys), facts)
    kernel = lowering.kernel(
        (form.prefix, mask.facts),
        lambda: text_kernel(form.prefix, lambda name: form.text(name, lowering.target, mask.facts), is_vectorized=True),
    )
    count = form.scratch_count(lowering.target, group * queries, depth, width, stored)
    scratch = lowering.scratch(DataType.FLOAT, count)
    error = lowering.error_buffer()
    lengths = Pointer(error) if heads.lengths is None else pointer(heads.lengths)
    table = form.table(lowering.target)
    views = tuple(dense_rows(lowering, view) for view in (heads.query, heads.key, heads.value))
    words: list[Argument] = [
        *(pointer(view) for view in views), pointer(heads.out), mask.pointer or Pointer(error), lengths,
        Pointer(error), Pointer(scratch), count * 4, Pointer(table), batch, key_heads, group, queries, keys, depth,
        width, heads.offset,
    ]  # fmt: skip
    for view in (*views, heads.out):
        words.extend(view.strides[:3])
    words.extend(mask.strides)
    scales = heads.scales or ()
    words.extend(pointer(each) for each in scales or (heads.query, heads.query))
    words.extend((depth, width) if facts.scales is Scales.CHANNEL else (0, 0))
    words.append(mask.facts.scale_word)
    assert len(words) == ARGUMENTS.count
    reads = [view.buffer for view in (*views, *scales, mask.view, heads.lengths) if view is not None]
    flops = batch * query_heads * queries * keys * (depth + width) * 2
    divisor = 32 if may_be_few else 32 * form.speed
    least_flops = keys * (depth + width) * (2 * form.least_queries)
    least_piece = least_flops // divisor if isinstance(least_flops, int) and not may_be_few else 0
    lowering.emit(
        kernel, words, reads, [heads.out.buffer, scratch], flops // divisor + 1, operators, flops,
        least_piece=least_piece,
    )  # fmt: skip


@frozen
class _Form:
    """How the products of an attention are computed."""

    prefix: str
    text: Callable[[str, Target, AttentionFacts], str]
    scratch_count: Callable[[Target, KnownDim, KnownDim, KnownDim, DataType], KnownDim]
    table: Callable[[Target], Buffer]
    reads_few: bool  # keys where they are, for few queries
    speed: int = 1  # about so many times that of float32, for more queries
    least_queries: int = 0  # of a piece, which packs keys that others pack, too; packing takes as long as 200 of them


_FLOATS = _Form("attention", attention_text, scratch_count, tile_table_buffer, reads_few=True)


def _form(lowering: Lowering) -> _Form:
    if not lowering.uses_bfloat16 or not rounds_both(lowering.target):
        return _FLOATS
    if has_pair_products(lowering.target):
        table = functools.partial(attention_table_buffer, in_pairs=True)
        return _Form("attention_bfloat16", pair_attention_text, pair_scratch_count, table, reads_few=False)
    return _Form(
        "attention_tiles", tile_attention_text, tile_scratch_count, attention_tiles_buffer, reads_few=True, speed=4,
        least_queries=LEAST_QUERIES,
    )  # fmt: skip


def _scales_of(scales: tuple[View, View] | None) -> Scales:
    if scales is None:
        return Scales.NONE
    return Scales.CHANNEL if len(scales[0].shape) == 2 else Scales.TENSOR


@frozen
class _Mask:
    facts: AttentionFacts
    view: View | None
    pointer: Pointer | None
    strides: Sequence[KnownDim]


def _mask(lowering: Lowering, view: View | None, shape: Sequence[KnownDim], facts: AttentionFacts) -> _Mask:
    if view is None:
        return _Mask(facts, None, None, (0, 0, 0, 0))
    kinds = {DataType.FLOAT: ScoreMask.ADDED, DataType.BOOL: ScoreMask.ALLOWED}
    if view.dtype not in kinds:
        raise NotLowered(f"a mask of {view.dtype.text} is not generated")
    if len(view.shape) > len(shape):
        raise NotLowered(f"a mask of {len(view.shape)} axes is not generated")
    missing = len(shape) - len(view.shape)
    if view.shape and view.shape[-1] != 1 and view.strides[-1] not in (0, 1):
        view = lowering.copied(view)  # moved about, or expanded along the keys by a size that only run time knows
    strides: list[KnownDim] = [0] * missing
    for size, stride, wanted in zip(view.shape, view.strides, shape[missing:], strict=True):
        if size != 1:  # a size that only run time knows is taken for the whole axis; a 1 there runs by the kernels
            lowering.require_equal(size, wanted)
        strides.append(0 if size == 1 else stride)
    return _Mask(replace(facts, mask=kinds[view.dtype], mask_is_dense=strides[3] == 1), view, pointer(view), strides)
