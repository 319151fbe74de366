"""Attention as one formula over heads: of ONNX, and of com.microsoft; rotary embeddings.

Queries, keys and values are [batch, heads, length, size]; scores are computed in their type, the softmax in float32.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from ort_core.plugin.ir import Node
from ort_core.plugin.ops import AttentionFeature, HeadSource, Layout, ScoreStage, node_attention
from ort_ep_coreml.lowering.attention_masks import MASKED, attention_bias, forbids_as_lowered, may_forbid_all
from ort_ep_coreml.lowering.conditions import known_attributes, only_outputs
from ort_ep_coreml.lowering.emission import EmissionState
from ort_ep_coreml.lowering.indexing import from_the_front, indices_in_bounds
from ort_ep_coreml.lowering.lowering_context import LoweringContext, rank_of, sizes_of
from ort_ep_coreml.lowering.normalization import narrowed, widened
from ort_ep_coreml.lowering.rule import BOOL, FLOATS, INTS, Rule
from ort_ep_coreml.lowering.terms import Term, chosen, first, joined, term
from ort_ep_coreml.mil import Operand


def merged(x: Term, heads: int, size: int) -> Term:
    """Return [batch, heads, length, size] as [batch, length, heads * size]."""
    return _rows(x.transposed(0, 2, 1, 3), heads * size)


def _rows(x: Term, width: int) -> Term:
    """Return [batch, length, a, b] as [batch, length, a * b], the first two sizes read from the value."""
    sizes = x.to.emit("shape", x=x.operand)
    kept = x.to.emit("slice_by_index", x=sizes, begin=np.array([0], np.int32), end=np.array([2], np.int32))
    return x.do("reshape", shape=x.to.emit("concat", values=(kept, np.array([width], np.int32)), axis=0))


def split_rows(x: Term, heads: int, size: int) -> Term:
    """Return [batch, length, heads * size] as [batch, heads, length, size]."""
    sizes = x.to.emit("shape", x=x.operand)
    kept = x.to.emit("slice_by_index", x=sizes, begin=np.array([0], np.int32), end=np.array([2], np.int32))
    shape = x.to.emit("concat", values=(kept, np.array([heads, size], np.int32)), axis=0)
    return x.do("reshape", shape=shape).transposed(0, 2, 1, 3)


def repeated(x: Term, heads: int, times: int) -> Term:
    """Return keys or values of some heads once for each head of the queries that shares them."""
    if times == 1:
        return x
    places = np.repeat(np.arange(heads), times).astype(np.int32)
    return x.do("gather", indices=places, axis=1, validate_indices=False)


def attended(q: Term, k: Term, v: Term, scale: float, bias: Term | None, softcap: float = 0.0) -> Term:
    """Return softmax(scale * q k' + bias) v."""
    return weighted(q, k, scale, bias, softcap)[-1] @ v


def weighted(
    q: Term, k: Term, scale: float, bias: Term | None, softcap: float = 0.0, *, may_forbid_all: bool = False
) -> tuple[Term, Term, Term, Term]:
    """Return the scores, those that are capped, those with the bias, and their softmax.

    Args:
        q: queries.
        k: keys.
        scale: of the products.
        bias: what is added to the scores.
        softcap: the bound of the scores; 0: none.
        may_forbid_all: whether the bias may forbid a query all keys: its weights are zeros then.
    """
    root = math.sqrt(abs(scale))
    scores = (q * math.copysign(root, scale)) @ (k * root).transposed(0, 1, 3, 2)
    capped = (scores / softcap).do("tanh") * softcap if softcap else scores
    biased = capped if bias is None else capped + bias
    wide = widened(biased)
    weights = wide.do("softmax", axis=-1)
    if bias is not None and may_forbid_all:
        weights = chosen(widened(bias).reduced("reduce_max", -1).with_("greater", MASKED), weights, 0, wide)
    return scores, capped, biased, narrowed(weights, scores)


def _heads(to: EmissionState, node: Node, source: HeadSource) -> Term:
    """Return an operand as [batch, heads, length, size]."""
    assert source.input is not None, "_attends_as_lowered was asked"
    x = term(to, node.input(source.input))
    if source.layout is Layout.HEADS:
        return x
    return split_rows(x, *counts(source))


def counts(source: HeadSource) -> tuple[int, int]:
    """Return how many heads there are, and their size."""
    assert isinstance(source.heads, int), "_attends_as_lowered was asked"
    assert isinstance(source.size, int), "_attends_as_lowered was asked"
    return source.heads, source.size


def _attention(to: EmissionState, node: Node) -> list[Operand]:
    """Lower Attention of ai.onnx; outputs are Y, present key, present value, scores."""
    record = node_attention(node)
    q, k, v = (_heads(to, node, source) for source in (record.query, record.key, record.value))
    (heads, size), (groups, value_size) = counts(record.query), counts(record.value)
    if record.has_past and record.cache is not None:
        pasts = ((record.cache.key, k), (record.cache.value, v))
        k, v = (joined([term(to, node.input(place)), new], 2) for place, new in pasts if place is not None)
    bias, times = attention_bias(to, node, record, q), heads // groups
    forbids = may_forbid_all(record)
    shown = weighted(q, repeated(k, groups, times), record.factor(size), bias, record.softcap, may_forbid_all=forbids)
    found = shown[-1] @ repeated(v, groups, times)
    y = merged(found, heads, value_size) if record.is_merged else found
    return [y.operand, k.operand, v.operand, shown[(record.scores or ScoreStage.RAW).value].operand]


def _attends_as_lowered(context: LoweringContext, node: Node) -> str | None:
    record = node_attention(node)
    sources = (record.query, record.key, record.value)
    heads, groups = record.query.heads, record.key.heads
    if not isinstance(heads, int) or not isinstance(groups, int) or not heads or not groups or heads % groups:
        return f"how many heads {node.op_type} has is not known beforehand"
    if any(not isinstance(source.size, int) for source in sources):
        return f"the size of {node.op_type}'s heads is not known beforehand"
    if record.is_double:
        return "Attention with a softmax in float64 is not lowered: Core ML has none"
    return forbids_as_lowered(context, node, record)


def _rotary(to: EmissionState, node: Node) -> Operand:
    """Lower ai.onnx.RotaryEmbedding: X, cosines, sines, positions."""
    x, rank = first(to, node), rank_of(node.input(0))
    heads = node.int_attribute("num_heads", 0)
    width = sizes_of(node.inputs[0])[-1]  # type: ignore[arg-type]  # required
    assert isinstance(width, int), "_rotates_as_lowered was asked"
    size = width if rank == 4 else width // heads
    x = x if rank == 4 else split_rows(x, heads, size)
    cos, sin = (_angles(to, node, place) for place in (1, 2))
    interleaved = bool(node.int_attribute("interleaved", 0))
    found = rotated(x, cos, sin, size, node.int_attribute("rotary_embedding_dim", 0) or size, interleaved)
    return (found if rank == 4 else merged(found, heads, size)).operand


def _angles(to: EmissionState, node: Node, place: int) -> Term:
    """Return cosines or sines as [batch, 1, length, half]."""
    table, positions = term(to, node.input(place)), node.input(3)
    if positions is not None:
        rows = sizes_of(node.inputs[place])[0]  # type: ignore[arg-type]  # required
        indices = from_the_front(to, positions, (rows,))
        table = table.do("gather", indices=indices, axis=0, validate_indices=False)
    return table.do("expand_dims", axes=np.array([1], np.int32))


def rotated(x: Term, cos: Term, sin: Term, size: int, turned: int, interleaved: bool) -> Term:
    """Return [batch, heads, length, size] with pairs of its first ``turned`` elements turned by angles."""
    half = turned // 2
    head = x if turned == size else x.cut(3, 0, turned, 4)
    if interleaved:
        places = (np.arange(at, turned, 2, dtype=np.int32) for at in (0, 1))
        left, right = (head.do("gather", indices=each, axis=3, validate_indices=False) for each in places)
    else:
        left, right = head.cut(3, 0, half, 4), head.cut(3, half, None, 4)
    real, imaginary = left * cos - right * sin, left * sin + right * cos
    found = joined([real, imaginary], 3)
    if interleaved:
        order = np.arange(turned).reshape(2, half).T.reshape(-1).astype(np.int32)
        found = found.do("gather", indices=order, axis=3, validate_indices=False)
    return found if turned == size else joined([found, x.cut(3, turned, None, 4)], 3)


def _rotates_as_lowered(context: LoweringContext, node: Node) -> str | None:
    rank, width = rank_of(node.input(0)), sizes_of(node.inputs[0])[-1]  # type: ignore[arg-type]  # required
    if not isinstance(width, int) or (rank == 3 and not node.int_attribute("num_heads", 0)):
        return "the size of the heads of RotaryEmbedding is not known beforehand"
    positions = node.input(3)
    if positions is None:
        return None
    return _positions_in_bounds(context, node)


_positions_in_bounds = indices_in_bounds(lambda node: sizes_of(node.inputs[1])[:1], position=3)  # type: ignore[arg-type]  # required


def _multi_head(to: EmissionState, node: Node) -> list[Operand]:
    """Lower MultiHeadAttention of separate queries, keys and values with a bias that is added to the scores."""
    record = node_attention(node)
    sources = (record.query, record.key, record.value)
    parts = [term(to, node.input(place)) for place in range(3)]
    if record.bias is not None:
        widths = [heads * size for heads, size in map(counts, sources)]
        ends = np.cumsum([0, *widths])
        bias = term(to, node.input(record.bias))
        parts = [x + bias.cut(0, int(a), int(b), 1) for x, a, b in zip(parts, ends[:-1], ends[1:], strict=True)]
    q, k, v = (split_rows(x, *counts(source)) for x, source in zip(parts, sources, strict=True))
    added = None if record.mask is None else term(to, node.input(record.mask))
    heads, size = counts(record.value)
    return [merged(attended(q, k, v, record.factor(counts(record.query)[1]), added), heads, size).operand]


def _multi_head_as_lowered(context: LoweringContext, node: Node) -> str | None:
    record = node_attention(node)
    sources = (record.query, record.key, record.value)
    if any(source.layout is not Layout.ROWS or source.is_part for source in sources):
        return "MultiHeadAttention is lowered of queries, keys and values of three dimensions each"
    what = record.beyond(AttentionFeature.BIAS, AttentionFeature.MASK)
    if what is not None:
        return f"MultiHeadAttention with {what} is not lowered"
    if any(not isinstance(source.size, int) or not isinstance(source.heads, int) for source in sources):
        return "the size of the heads of MultiHeadAttention is not known beforehand"
    return None


_KNOWN = known_attributes(
    "q_num_heads", "kv_num_heads", "scale", "is_causal", "softcap", "softmax_precision", "qk_matmul_output_mode",
    "left_window_size", "right_window_size",
)  # fmt: skip

ATTENTION: Mapping[str, Rule] = {
    "Attention": Rule(
        _attention,
        FLOATS,
        ports={3: FLOATS | BOOL, 6: INTS},
        conditions=(_KNOWN, _attends_as_lowered),
        required=3,
        outputs=4,
        oldest=23,
    ),
    "RotaryEmbedding": Rule(_rotary, FLOATS, ports={3: INTS}, conditions=(_rotates_as_lowered,), required=3),
}
"""Rules by operator of ``ai.onnx``."""

CONTRIBUTED_ATTENTION: Mapping[str, Rule] = {
    "MultiHeadAttention": Rule(
        _multi_head,
        FLOATS,
        conditions=(only_outputs(0), _multi_head_as_lowered),
        required=3,
    ),
}
"""Rules by operator of ``com.microsoft``."""
