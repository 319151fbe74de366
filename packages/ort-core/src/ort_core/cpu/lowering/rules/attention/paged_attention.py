"""PagedAttention: where tokens lie, once for all nodes that are told the same; then caches, and attention."""

from __future__ import annotations

from ort_core.cpu.codegen.attention.attention import AttentionFacts
from ort_core.cpu.codegen.attention.few_queries import FEW_QUERIES
from ort_core.cpu.codegen.attention.paged_append import ARGUMENTS as APPENDED
from ort_core.cpu.codegen.attention.paged_append import paged_append_text
from ort_core.cpu.codegen.attention.paged_attention import (
    ARGUMENTS,
    paged_attention_text,
    paged_scratch_count,
    partial_counts,
)
from ort_core.cpu.codegen.attention.paged_places import ARGUMENTS as PLACED
from ort_core.cpu.codegen.attention.paged_places import SEQUENCE, paged_places_text
from ort_core.cpu.codegen.attention.rotary import Positions
from ort_core.cpu.codegen.attention.stored_rows import ROW_TYPES, Scales
from ort_core.cpu.codegen.products.bfloat16_product import has_pair_products
from ort_core.cpu.lowering.images.layout_steps import text_kernel
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.products.product_panels import attention_table_buffer
from ort_core.cpu.lowering.rules.attention.attention_caches import StoredRows, cache_scales, rotated, stored_form
from ort_core.cpu.lowering.rules.attention.rotary import Rotation
from ort_core.cpu.lowering.sequences.attention_steps import dense_rows, split_heads
from ort_core.cpu.lowering.steps import Argument, NotLowered, Pointer, pointer
from ort_core.cpu.lowering.views import View, count_of
from ort_core.plugin import frozen
from ort_core.plugin.ir import DataType, KnownDim, Node
from ort_core.plugin.ops import AttentionFeature, AttentionRecord, HeadSource, Pages, node_attention

_GENERATED = (
    AttentionFeature.PACKED, AttentionFeature.PAST, AttentionFeature.TOKENS, AttentionFeature.PAGES,
    AttentionFeature.PRESENT, AttentionFeature.CAUSAL, AttentionFeature.WINDOW, AttentionFeature.SOFTCAP,
    AttentionFeature.ROTARY, AttentionFeature.QUANTIZED,
)  # fmt: skip


@frozen
class _Places:
    """What is told of the tokens of a run: views of int64 by sequence and by token, and the table of blocks.

    ``finished`` and ``partials`` are what threads share while they attend to parts of caches.
    """

    sequences: View
    positions: View
    rows: View
    table: View
    finished: View
    partials: View


def paged_attention(lowering: Lowering, node: Node) -> None:
    """PagedAttention in float32, of separate caches."""
    record = node_attention(node)
    _refuse(node, record)
    pages = record.pages
    assert pages is not None, "its form says so"
    query, key, value = _operands(lowering, node, record)
    places = _places(lowering, node, pages, query, lowering.view(node.input(4)).shape)
    if record.rotary is not None:
        if record.rotary.cos is None or record.rotary.sin is None:
            raise NotLowered("heads that turn without tables of angles are not generated")
        cos, sin = (lowering.contiguous(node.input(index)) for index in (record.rotary.cos, record.rotary.sin))
        rotation = Rotation(cos, sin, Positions.IDS, places.positions, record.rotary.is_interleaved)
        query, key = (rotated(lowering, each, rotation, node) for each in (query, key))
    is_kept = all(lowering.keeps(node.input(3 + which), node.outputs[1 + which]) for which in range(2))
    caches = [
        _appended(lowering, stored_form(lowering, node, record, which, new, is_kept), places, node)
        for which, new in ((0, key), (1, value))
    ]
    _attend(lowering, node, record, query, (caches[0], caches[1]), places)


def _refuse(node: Node, record: AttentionRecord) -> None:
    what = record.beyond(*_GENERATED)
    if what is not None:
        raise NotLowered(f"PagedAttention with {what} is not generated")
    if record.left is not None and record.ahead != 0:
        raise NotLowered("a window that is not causal is not generated")
    layout = node.attribute("kv_cache_layout")
    if layout not in (None, "SEPARATE") or node.input(4) is None:
        raise NotLowered("one cache for keys and values is not generated")
    if node.int_attribute("v_head_size", 0) or node.int_attribute("rotary_offset", 0):
        raise NotLowered("heads of values of another size, and heads that turn behind their start, are not generated")
    if len(node.outputs) < 3 or node.outputs[1] is None or node.outputs[2] is None:
        raise NotLowered("caches that are not given back are not generated")


def _operands(lowering: Lowering, node: Node, record: AttentionRecord) -> tuple[View, View, View]:
    """Return queries, keys and values as (1, heads, tokens, size)."""
    query, key, value = (_heads(lowering, node, each) for each in (record.query, record.key, record.value))
    return query, key, value


def _heads(lowering: Lowering, node: Node, source: HeadSource) -> View:
    first, heads, size = source.first, source.heads, source.size
    if source.input is None or not isinstance(heads, int) or not isinstance(size, int) or first is None:
        raise NotLowered("how many heads of which size there are is not known")
    view = lowering.view(node.input(source.input))
    tokens, step = view.shape[0], view.strides
    offset = view.offset + first * step[1]
    return split_heads(View(view.buffer, (1, tokens, heads * size), (tokens * step[0], *step), offset), heads)


def _places(lowering: Lowering, node: Node, pages: Pages, query: View, values: tuple[KnownDim, ...]) -> _Places:
    """Return where the tokens of a run lie; nodes that are told the same share what is found."""
    told = tuple(
        None if each is None else node.input(each) for each in (pages.ends, pages.past, pages.table, pages.slots)
    )
    key = ("paged places", told, query.shape[1:3], values)
    return lowering.remembered(key, lambda: _found_places(lowering, node, pages, query, values))


def _found_places(lowering: Lowering, node: Node, pages: Pages, query: View, values: tuple[KnownDim, ...]) -> _Places:
    ends, past, table = (lowering.contiguous(node.input(each)) for each in (pages.ends, pages.past, pages.table))
    slots = None if pages.slots is None else lowering.contiguous(node.input(pages.slots))
    if any(each.dtype is not DataType.INT32 for each in (ends, past, table, slots) if each is not None):
        raise NotLowered("lengths and tables of other integers than int32 are not generated")
    (batch, width), (_, heads, tokens, _), (blocks, rows, groups, size) = table.shape, query.shape, values
    assert isinstance(heads, int), "the schema requires it"
    assert isinstance(groups, int), "the schema requires it"
    lowering.require_equal(ends.shape[0], batch + 1)
    lowering.require_equal(past.shape[0], batch)
    if slots is not None:
        lowering.require_equal(slots.shape[0], tokens)
    partials, tiles = partial_counts(lowering.target, batch, groups, heads // groups, width * rows, size)
    shapes = ((batch, SEQUENCE), (1, tokens), (tokens,), (tiles,))
    sequences, positions, token_rows, finished = found = [lowering.new_view(DataType.INT64, shape) for shape in shapes]
    error = lowering.error_buffer()
    kernel = lowering.kernel("paged_places", lambda: text_kernel("paged_places", paged_places_text))
    words: list[Argument] = [
        pointer(ends), pointer(past), pointer(table), Pointer(error) if slots is None else pointer(slots),
        Pointer(error), *(pointer(each) for each in found[:3]), batch, tokens, width, rows, blocks,
        0 if slots is None else 1, pointer(finished), tiles,
    ]  # fmt: skip
    assert len(words) == PLACED.words
    reads = [each.buffer for each in (ends, past, table, slots) if each is not None]
    work = tokens * 2 + batch * 8 + tiles
    lowering.emit(kernel, words, reads, [each.buffer for each in found], work, (node,), is_divisible=False)
    shared = lowering.new_view(DataType.FLOAT, (partials,))
    return _Places(sequences, positions, token_rows, table, finished, shared)


def _appended(lowering: Lowering, stored: StoredRows, places: _Places, node: Node) -> View:
    """Write the step that puts new keys or values into the blocks of a cache; return the cache."""
    new, target = stored.new, stored.target
    if stored.past is None:
        raise NotLowered("PagedAttention without a cache is not generated")
    past = stored.past if stored.past.is_contiguous else lowering.copied(stored.past)
    blocks, rows, heads, size = target.shape
    for left, right in zip((*past.shape, *new.shape[1::2]), (*target.shape, heads, size), strict=True):
        lowering.require_equal(left, right)
    lowering.require_equal(new.shape[2], places.rows.shape[0])
    kernel = lowering.kernel(
        ("paged_append", target.dtype),
        lambda: text_kernel("paged_append", lambda name: paged_append_text(name, lowering.target, target.dtype)),
    )
    words: list[Argument] = [
        pointer(target), pointer(past), pointer(new), pointer(places.rows), new.shape[2], blocks * rows, heads, size,
        new.strides[2], new.strides[1],
    ]  # fmt: skip
    assert len(words) == APPENDED.count
    reads = [past.buffer, new.buffer, places.rows.buffer]
    lowering.emit(
        kernel, words, reads, [target.buffer], count_of(new.shape) * 2, (node,), in_place=(past.buffer, target.buffer)
    )
    lowering.set(stored.present, target)
    return target


def _attend(
    lowering: Lowering, node: Node, record: AttentionRecord, query: View, caches: tuple[View, View], places: _Places
) -> None:
    """Write the step that attends through the table, into the output."""
    _, heads, tokens, depth = query.shape
    _, rows, groups, width = caches[1].shape
    target = lowering.result_view(node.output)
    whole = View(target.buffer, (1, *target.shape), (count_of(target.shape), *target.strides), target.offset)
    assert isinstance(heads, int), "the schema requires it"
    assert isinstance(groups, int), "the schema requires it"
    assert isinstance(depth, int), "asked before"
    out = split_heads(whole, heads)
    scales = cache_scales(lowering, node, record)
    stored = caches[0].dtype
    is_generated = query.dtype is DataType.FLOAT and stored in ROW_TYPES and caches[1].dtype is stored
    if not is_generated or (stored is DataType.INT8) != (scales is not None):
        types = ", ".join(view.dtype.text for view in (query, *caches))
        raise NotLowered(f"attention of {types} is not generated")
    group = heads // groups
    in_pairs = lowering.uses_bfloat16 and has_pair_products(lowering.target)
    kind = Scales.NONE if scales is None else Scales.CHANNEL if len(scales[0].shape) == 2 else Scales.TENSOR
    facts = AttentionFacts(
        record.factor(depth), is_causal=record.ahead == 0, window=0 if record.left is None else record.left + 1,
        softcap=record.softcap, stored=stored, scales=kind, may_be_few=not in_pairs and group <= FEW_QUERIES,
    )  # fmt: skip
    query = dense_rows(lowering, query)
    prefix = "paged_attention_bfloat16" if in_pairs else "paged_attention"
    kernel = lowering.kernel(
        (prefix, facts),
        lambda: text_kernel(
            prefix, lambda name: paged_attention_text(name, lowering.target, facts, in_pairs=in_pairs),
            is_vectorized=True,
        ),
    )  # fmt: skip
    count = paged_scratch_count(lowering.target, group, groups, tokens, depth, width)
    scratch = lowering.scratch(DataType.FLOAT, count)
    batch, table_width = places.table.shape
    words: list[Argument] = [
        pointer(query), pointer(caches[0]), pointer(caches[1]), pointer(out), pointer(places.sequences),
        pointer(places.table), Pointer(scratch), count * 4,
        Pointer(attention_table_buffer(lowering.target, in_pairs=in_pairs)), batch, groups, group, depth, width, rows,
        table_width, *query.strides[1:3], *out.strides[1:3], groups * depth, depth, groups * width, width,
        *(pointer(each) for each in scales or (query, query)),
        *((depth, width) if kind is Scales.CHANNEL else (0, 0)), pointer(places.partials), pointer(places.finished),
        facts.scale_word,
    ]  # fmt: skip
    assert len(words) == ARGUMENTS.count
    views = [query, *caches, places.sequences, places.table, places.finished, *(scales or ())]
    written = [out.buffer, scratch, places.finished.buffer, places.partials.buffer]
    flops = tokens * heads * table_width * rows * (depth + width) * 2  # as if all blocks of the table were full
    lowering.emit(
        kernel, words, [each.buffer for each in views], written, flops // 32 + 1, (node,), flops,
        is_divisible=False,
    )  # fmt: skip
    lowering.set(node.output, target)
