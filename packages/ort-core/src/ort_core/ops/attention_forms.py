"""From each attention operator to the one record: which input is what, and what each attribute says.

A form reads what is given: shapes as far as they are known, and attributes, of a node or of a kernel's call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ort_core.frozen import frozen
from ort_core.ir.dims import Dim
from ort_core.ir.types import DataType, Shape
from ort_core.ops.attention import (
    DEFAULT_FILTER,
    AttentionRecord,
    Cache,
    Growth,
    HeadNorms,
    HeadSource,
    Layout,
    Lengths,
    PackedTokens,
    Pages,
    Projection,
    QuantizedCache,
    Rotary,
    ScoreStage,
)
from ort_core.ops.shape_arithmetic import add_dims, divide_dim, scale_dim
from ort_core.ops.typed_attributes import TypedAttributes

if TYPE_CHECKING:
    import numpy as np

    from ort_core.ir.nodes import Node

MS = "com.microsoft"
_SCORES = 3  # the output of scores, of all operators that have one


ShapeReader = Callable[..., "Shape | None"]  # of the number of an input and the ranks that it may have


@frozen
class Given(TypedAttributes):
    """What a form reads.

    Attributes:
        shape: returns the shape of an input if it is there, is known, and has one of the ranks that are named.
        present: which inputs are there.
        outputs: which outputs are asked for.
        attributes: returns the value of an attribute, ``None`` where it is absent.
    """

    shape: ShapeReader
    present: Sequence[bool]
    outputs: Sequence[bool]
    attributes: Callable[[str], object]

    def attribute(self, name: str) -> object:
        """Return the value of an attribute, ``None`` where it is absent."""
        return self.attributes(name)

    def input(self, index: int) -> int | None:
        """Return the number of an input that is there, ``None`` of one that is not."""
        return index if index < len(self.present) and self.present[index] else None

    def has_output(self, index: int) -> bool:
        """Return whether an output is asked for."""
        return index < len(self.outputs) and self.outputs[index]


def node_attention(
    node: Node, shape: ShapeReader | None = None, attribute: Callable[[str], object] | None = None
) -> AttentionRecord:
    """Return the record of a node of an operator that has one.

    Args:
        node: the attention.
        shape: reads the shapes of its inputs, as ``Given``; without it those of their types are read.
        attribute: reads its attributes, as ``Given``; without it they are read as they stand.
    """
    inputs, outputs = ([each is not None for each in values] for values in (node.inputs, node.outputs))
    if shape is None:
        shape = _reader([None if value is None else value.shape for value in node.inputs])
    return _FORMS[node.domain, node.op_type](Given(shape, inputs, outputs, attribute or node.attribute))


def call_attention(
    op_type: str, domain: str, inputs: Sequence[np.ndarray | None], outputs: Sequence[bool] = (), **attributes: object
) -> AttentionRecord:
    """Return the record of a call of a kernel with arrays (``None``: absent)."""
    shapes = [None if array is None else array.shape for array in inputs]
    given = Given(_reader(shapes), [array is not None for array in inputs], outputs, attributes.get)
    return _FORMS[domain, op_type](given)


def _reader(shapes: Sequence[Shape | None]) -> ShapeReader:
    def read(index: int, *ranks: int) -> Shape | None:
        found = shapes[index] if index < len(shapes) else None
        return found if found is not None and len(found) in ranks else None

    return read


def _standard(g: Given) -> AttentionRecord:
    """Attention of ai.onnx: inputs Q, K, V, a mask, past keys, past values, lengths."""
    query = _of_three_or_four_axes(g, 0, g.int_of("q_num_heads"))
    key, value = (_of_three_or_four_axes(g, index, g.int_of("kv_num_heads")) for index in (1, 2))
    left, right, is_causal = (
        g.int_of("left_window_size", -1),
        g.int_of("right_window_size", -1),
        g.int_of("is_causal") != 0,
    )
    lengths = g.input(6)
    return AttentionRecord(
        query, key, value, scale_dim(value.size, query.heads), g.optional_float_of("scale"), mask=g.input(3),
        is_mask_padded=True,
        is_causal=is_causal, left=left if left >= 0 else None, right=right if right >= 0 and not is_causal else None,
        cache=_cache(g, 4, 5), lengths=None if lengths is None else Lengths(lengths), softcap=_softcap(g),
        is_double=g.int_of("softmax_precision") == DataType.DOUBLE.value,
        scores=ScoreStage(g.int_of("qk_matmul_output_mode") % 4) if g.has_output(_SCORES) else None,
        presents=(g.has_output(1), g.has_output(2)),
    )  # fmt: skip


def _flexible(g: Given) -> AttentionRecord:
    """FlexAttention: inputs Q, K, V of four axes; its subgraphs are not part of the record."""
    query, key, value = (_of_three_or_four_axes(g, index, 0) for index in range(3))
    precision = g.int_of("softmax_precision") == DataType.DOUBLE.value
    return AttentionRecord(query, key, value, None, g.optional_float_of("scale"), is_double=precision)


def _multi_head(g: Given) -> AttentionRecord:
    """MultiHeadAttention: query, key, value, bias, padding, mask, past key and value, the past's length, beams."""
    start = g.input(8)
    return _of_given_heads(g, bias=3, padding=4, mask=5, past=6, start=start, is_buffer=start is not None, beams=9)


def _decoder_masked(g: Given) -> AttentionRecord:
    """DecoderMaskedMultiHeadAttention: one new token; the beams matter where there are several."""
    return _of_given_heads(
        g, bias=10, padding=3, mask=4, past=5, start=g.input(7), is_buffer=g.int_of("past_present_share_buffer") != 0,
        beams=9, beam_width=8,
    )  # fmt: skip


def _of_given_heads(
    g: Given, *, bias: int, padding: int, mask: int, past: int, start: int | None, is_buffer: bool, beams: int,
    beam_width: int | None = None,
) -> AttentionRecord:  # fmt: skip
    heads = g.int_of("num_heads")
    query, key, value = _given_heads(g, heads)
    scores_are_asked = g.has_output(_SCORES) or (beam_width is not None and g.int_of("output_qk") != 0)
    return AttentionRecord(
        query, key, value, scale_dim(value.size, query.heads), _contributed_scale(g), bias=g.input(bias),
        mask=g.input(mask), padding=g.input(padding), filtered=_filter(g), last_sees_all=True,
        is_causal=g.int_of("unidirectional") != 0,
        cache=_cache(g, past, past + 1, Growth.BUFFER if is_buffer else Growth.APPENDED, start),
        scores=ScoreStage.MASKED if scores_are_asked else None,
        beams=g.input(beams) if beam_width is None or g.input(beam_width) is not None else None,
        beam_width=None if beam_width is None else g.input(beam_width), presents=(g.has_output(1), g.has_output(2)),
        is_hidden_nan=True,
    )  # fmt: skip


def _given_heads(g: Given, heads: int) -> tuple[HeadSource, HeadSource, HeadSource]:
    """Return queries, keys and values that are separate, packed in the first input, or keys packed with values."""
    first, second, third = g.shape(0, 3, 5), g.shape(1, 3, 4, 5), g.shape(2, 3, 4)
    batch, length = (None, None) if first is None else first[:2]
    if first is not None and len(first) == 5:
        q, k, v = (HeadSource(0, Layout.PARTS, batch, heads or None, length, first[4], part) for part in range(3))
        return q, k, v
    width = None if first is None else first[2]
    if g.input(1) is None:
        return _columns(0, batch, length, heads, (divide_dim(width, 3),) * 3)
    size = divide_dim(width, heads)
    query = HeadSource(0, None if first is None else Layout.ROWS, batch, heads or None, length, size)
    if second is not None and len(second) == 5:
        k, v = (HeadSource(1, Layout.PARTS, batch, heads or None, second[1], second[4], part) for part in range(2))
        return query, k, v
    new = None if second is None else second[2] if len(second) == 4 else second[1]
    key = HeadSource(1, _layout(second), batch, heads or None, new, size)
    value_size = size if g.input(2) is None else None
    if third is not None:
        value_size = third[3] if len(third) == 4 else divide_dim(third[2], heads)
    return query, key, HeadSource(g.input(2), _layout(third), batch, heads or None, new, value_size)


def _projecting(g: Given) -> AttentionRecord:
    """Attention of com.microsoft: inputs, weights, bias, mask, past, addend, the length of the past."""
    return _of_projection(g, Projection(0, 1, g.input(2), _widths(g)), padding=3, past=4, mask=5, start=6)


def _quantized(g: Given) -> AttentionRecord:
    """QAttention: input, weights, bias, scales of both, mask, zero points of both, past."""
    projection = Projection(0, 1, g.input(2), _widths(g), (3, 4), (6, 7))
    return _of_projection(g, projection, padding=5, past=8)


def _decoder_masked_self(g: Given) -> AttentionRecord:
    """DecoderMaskedSelfAttention: as Attention for one new token, with beams."""
    projection = Projection(0, 1, g.input(2), _widths(g))
    return _of_projection(g, projection, padding=3, past=4, mask=5, start=6, beams=8, beam_width=7)


def _of_projection(
    g: Given, projection: Projection, *, padding: int, past: int, mask: int = -1, start: int = -1, beams: int = -1,
    beam_width: int = -1,
) -> AttentionRecord:  # fmt: skip
    heads, shape = g.int_of("num_heads"), g.shape(0, 3)
    batch, length = (None, None) if shape is None else shape[:2]
    query, key, value = _columns(None, batch, length, heads, projection.widths)
    numbers = [None if index < 0 else g.input(index) for index in (mask, start, beams, beam_width)]
    growth = Growth.BUFFER if g.int_of("past_present_share_buffer") else Growth.APPENDED
    rotary = Rotary(size=g.int_of("rotary_embedding_dim")) if g.int_of("do_rotary") else None
    return AttentionRecord(
        query, key, value, projection.widths[2], _contributed_scale(g), projection, mask=numbers[0],
        padding=g.input(padding), filtered=_filter(g), last_sees_all=True,
        is_causal=g.int_of("unidirectional") != 0, cache=_cache(g, past, past, growth, numbers[1]), rotary=rotary,
        beams=None if numbers[3] is None else numbers[2], beam_width=numbers[3],
        presents=(g.has_output(1), g.has_output(1)), is_hidden_nan=True,
    )  # fmt: skip


def _widths(g: Given) -> tuple[Dim, Dim, Dim]:
    """Return the columns of queries, keys and values: as stated, or a third of the weights' or the bias' each."""
    stated = g.attribute("qkv_hidden_sizes")
    if isinstance(stated, tuple) and len(stated) == 3:
        return stated
    weights, bias = g.shape(1, 2), g.shape(2, 1)
    return (divide_dim(weights[1] if weights else bias[0] if bias else None, 3),) * 3


def _grouped_query(g: Given) -> AttentionRecord:
    """GroupQueryAttention: several query heads for each head of keys, and lengths for each entry of the batch."""
    lengths, k_scale, v_scale = g.input(5), g.input(12), g.input(13)
    kinds = (g.string_of("k_quant_type", "NONE"), g.string_of("v_quant_type", "NONE"))
    quantized = None
    if kinds != ("NONE", "NONE") or k_scale is not None or v_scale is not None:
        quantized = QuantizedCache((k_scale, v_scale), kinds, g.int_of("kv_cache_bit_width"))
    query, key, value, width = _grouped_heads(g)
    window, stage = g.int_of("local_window_size", -1), g.int_of("qk_output")
    return AttentionRecord(
        query, key, value, width, _contributed_scale(g), mask=g.input(10),
        left=window - 1 if window >= 0 else None, is_causal=g.int_of("causal", 1) != 0,
        cache=_cache(g, 3, 4, Growth.FILLED), lengths=None if lengths is None else Lengths(lengths, 1, g.input(6)),
        softcap=_softcap(g), scores=_grouped_scores(stage, g.has_output(_SCORES)),
        rotary=_rotary(g, 7, g.input(9)), norms=_norms(g), sink=g.input(11),
        has_zero_sink=g.int_of("smooth_softmax", -1) == 1, slides=g.int_of("sliding_window_cache") != 0,
        quantized=quantized, presents=(g.has_output(1), g.has_output(2)),
    )  # fmt: skip


def _sparse(g: Given) -> AttentionRecord:
    """SparseAttention: as GroupQueryAttention; which blocks each head sees is not part of the record."""
    query, key, value, width = _grouped_heads(g)
    lengths = g.input(8)
    return AttentionRecord(
        query, key, value, width, _contributed_scale(g), is_causal=True, cache=_cache(g, 3, 4, Growth.BUFFER),
        lengths=None if lengths is None else Lengths(lengths, 0, g.input(7)), rotary=_rotary(g, 9, None),
        presents=(g.has_output(1), g.has_output(2)),
    )  # fmt: skip


def _dynamic_sparse(g: Given) -> AttentionRecord:
    """DynamicSparseAttention, as far as shapes go; what it selects is not part of the record."""
    query, key, value, width = _grouped_heads(g)
    lengths = g.input(9)
    return AttentionRecord(
        query, key, value, width, _contributed_scale(g), cache=_cache(g, 3, 4, Growth.FILLED),
        lengths=None if lengths is None else Lengths(lengths, 1, g.input(10)),
        presents=(g.has_output(1), g.has_output(2)),
    )  # fmt: skip


def _grouped_heads(g: Given) -> tuple[HeadSource, HeadSource, HeadSource, Dim]:
    """Return queries, keys and values, separate or side by side in the first input, and the width of the result."""
    heads, groups, shape = g.int_of("num_heads"), g.int_of("kv_num_heads"), g.shape(0, 3)
    batch, length, columns = (None, None, None) if shape is None else shape
    if g.input(1) is None:
        size = divide_dim(columns, heads + 2 * groups)
        widths = (scale_dim(size, heads), scale_dim(size, groups), scale_dim(size, groups))
        query, key, value = _columns(0, batch, length, (heads, groups, groups), widths, size=size)
        return query, key, value, widths[0]
    size = divide_dim(columns, heads)
    query = HeadSource(0, None if shape is None else Layout.ROWS, batch, heads or None, length, size)
    shapes = (g.shape(1, 3, 4), g.shape(2, 3, 4))
    news = [None if each is None else each[2] if len(each) == 4 else each[1] for each in shapes]
    key, value = (
        HeadSource(g.input(1 + i), _layout(shapes[i]), batch, groups or None, news[i], size) for i in range(2)
    )
    return query, key, value, columns


def _grouped_scores(stage: int, is_output: bool) -> ScoreStage | None:
    """Return which scores ``qk_output`` asks for."""
    if stage == 0:
        return ScoreStage.MASKED if is_output else None
    return ScoreStage.MASKED if stage == 1 else ScoreStage.WEIGHTS


def _norms(g: Given) -> HeadNorms | None:
    query, key = g.input(14), g.input(15)
    if query is None or key is None:
        return None
    both = g.optional_float_of("qk_norm_epsilon")
    both = 9.999999974752427e-07 if both is None else both
    own = (g.optional_float_of("q_norm_epsilon"), g.optional_float_of("k_norm_epsilon"))
    return HeadNorms(query, key, (both if own[0] is None else own[0], both if own[1] is None else own[1]))


def _rotary(g: Given, cos: int, positions: int | None) -> Rotary | None:
    if not g.int_of("do_rotary"):
        return None
    return Rotary(g.input(cos), g.input(cos + 1), positions, g.int_of("rotary_interleaved") != 0)


def _packed(g: Given) -> AttentionRecord:
    """PackedAttention: as Attention over tokens of all sequences, one behind the other."""
    projection, shape = Projection(0, 1, g.input(2), _widths(g)), g.shape(0, 2)
    tokens = None if shape is None else shape[0]
    query, key, value = _columns(None, None, tokens, g.int_of("num_heads"), projection.widths)
    return AttentionRecord(
        query, key, value, projection.widths[2], _contributed_scale(g), projection, mask=g.input(5),
        tokens=PackedTokens(3, 4),
    )  # fmt: skip


def _packed_multi_head(g: Given) -> AttentionRecord:
    """PackedMultiHeadAttention: as MultiHeadAttention over tokens of all sequences, one behind the other."""
    heads, shapes = g.int_of("num_heads"), [g.shape(0, 2, 4), g.shape(1, 2), g.shape(2, 2)]
    first = shapes[0]
    tokens = None if first is None else first[0]
    sources: list[HeadSource] = []
    for number, shape in enumerate(shapes):
        if first is not None and len(first) == 4:
            sources.append(HeadSource(0, Layout.PARTS, None, first[1], tokens, first[3], number))
        else:
            size = None if shape is None else divide_dim(shape[1], heads)
            layout = None if shape is None else Layout.ROWS
            sources.append(HeadSource(g.input(number), layout, None, heads or None, tokens, size))
    value = shapes[2]
    width = None if value is None else value[1]
    if first is not None and len(first) == 4:
        width = scale_dim(first[1], first[3])
    return AttentionRecord(
        sources[0], sources[1], sources[2], width, _contributed_scale(g), bias=g.input(3), mask=g.input(6),
        tokens=PackedTokens(4, 5),
    )  # fmt: skip


def _paged(g: Given) -> AttentionRecord:
    """PagedAttention: as GroupQueryAttention over packed tokens, with caches of blocks."""
    heads, groups, shape = g.int_of("num_heads"), g.int_of("kv_num_heads"), g.shape(0, 2)
    tokens, columns = (None, None) if shape is None else shape
    is_packed = g.input(1) is None
    size = divide_dim(columns, heads + 2 * groups if is_packed else heads)
    if is_packed:
        widths = (scale_dim(size, heads), scale_dim(size, groups), scale_dim(size, groups))
        query, key, value = _columns(0, None, tokens, (heads, groups, groups), widths, size=size)
    else:
        layout = None if shape is None else Layout.ROWS
        query, key, value = (
            HeadSource(index, layout, None, count or None, tokens, size)
            for index, count in enumerate((heads, groups, groups))
        )
    kinds = (g.string_of("k_quant_type", "NONE"), g.string_of("v_quant_type", "NONE"))
    scales, epsilon = (g.input(14), g.input(15)), g.optional_float_of("qk_norm_epsilon")
    of_query, of_key, window = g.input(12), g.input(13), g.int_of("local_window_size", -1)
    norms = None
    if of_query is not None and of_key is not None:
        norms = HeadNorms(of_query, of_key, (1e-6 if epsilon is None else epsilon,) * 2)
    return AttentionRecord(
        query, key, value, scale_dim(size, heads), _contributed_scale(g), left=window - 1 if window > 0 else None,
        is_causal=g.int_of("is_causal", 1) != 0, cache=_cache(g, 3, 4, Growth.PAGED), pages=Pages(5, 6, 7, g.input(10)),
        softcap=_softcap(g), rotary=_rotary(g, 8, None), norms=norms, sink=g.input(11),
        quantized=None if kinds == ("NONE", "NONE") and scales == (None, None) else QuantizedCache(scales, kinds, 8),
        presents=(g.has_output(1), g.has_output(2)),
    )  # fmt: skip


def _of_three_or_four_axes(g: Given, index: int, heads: int) -> HeadSource:
    shape = g.shape(index, 3, 4)
    if shape is None:
        return HeadSource(g.input(index), None, None, heads or None, None, None)
    if len(shape) == 4:
        return HeadSource(index, Layout.HEADS, *shape)
    return HeadSource(index, Layout.ROWS, shape[0], heads or None, shape[1], divide_dim(shape[2], heads))


def _columns(
    index: int | None, batch: Dim, length: Dim, heads: int | tuple[int, int, int], widths: Sequence[Dim],
    size: Dim = None,
) -> tuple[HeadSource, HeadSource, HeadSource]:  # fmt: skip
    """Return queries, keys and values as columns side by side."""
    counts = heads if isinstance(heads, tuple) else (heads,) * 3
    starts = (0, widths[0], add_dims(widths[0], widths[1]))
    q, k, v = (
        HeadSource(
            index, Layout.ROWS, batch, count or None, length, size or divide_dim(width, count), start, is_part=True
        )
        for count, width, start in zip(counts, widths, starts, strict=True)
    )
    return q, k, v


def _layout(shape: Shape | None) -> Layout | None:
    return None if shape is None else Layout.HEADS if len(shape) == 4 else Layout.ROWS


def _cache(g: Given, key: int, value: int, growth: Growth = Growth.APPENDED, start: int | None = None) -> Cache:
    """Return the cache; of one tensor for both the rows are its fourth axis."""
    is_one = key == value
    shape = g.shape(key, 5 if is_one else 4)
    return Cache(g.input(key), g.input(value), is_one, None if shape is None else shape[-2], growth, start)


def _softcap(g: Given) -> float:
    return max(g.optional_float_of("softcap") or 0.0, 0.0)


def _contributed_scale(g: Given) -> float | None:
    """Return a stated scale; to com.microsoft 0 is none."""
    return g.optional_float_of("scale") or None


def _filter(g: Given) -> float:
    stated = g.optional_float_of("mask_filter_value")
    return DEFAULT_FILTER if stated is None else stated


_FORMS: dict[tuple[str, str], Callable[[Given], AttentionRecord]] = {
    ("", "Attention"): _standard,
    ("ai.onnx.preview", "FlexAttention"): _flexible,
    (MS, "Attention"): _projecting,
    (MS, "DecoderMaskedMultiHeadAttention"): _decoder_masked,
    (MS, "DecoderMaskedSelfAttention"): _decoder_masked_self,
    (MS, "DynamicSparseAttention"): _dynamic_sparse,
    (MS, "GroupQueryAttention"): _grouped_query,
    (MS, "MultiHeadAttention"): _multi_head,
    (MS, "PackedAttention"): _packed,
    (MS, "PackedMultiHeadAttention"): _packed_multi_head,
    (MS, "PagedAttention"): _paged,
    (MS, "QAttention"): _quantized,
    (MS, "SparseAttention"): _sparse,
}
