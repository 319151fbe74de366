"""Attention: one call of the library where it takes it, or a product, one kernel for mask and softmax, a product.

Query heads that share a head of keys and values are rows of one product, so that keys are never repeated in memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ort_core.plugin import InvalidArgument
from ort_core.plugin.ir import DataType, Dim, Node
from ort_core.plugin.ir import Shape as ValueShape
from ort_core.plugin.loops import (
    Scalar,
    binary,
    cast,
    lift,
    masked_softmax,
    row_max,
    row_sum,
    select,
    softmax,
    tanh,
    unary,
)
from ort_core.plugin.ops import AttentionFeature, HeadSource, Layout, node_attention
from ort_ep_cuda.lowering.attention.few_row_attention import TYPES, FewRows, attend_few_rows, takes_few_rows
from ort_ep_cuda.lowering.attention.tiled_attention import attend_in_tiles, takes_tiles
from ort_ep_cuda.lowering.builder import element_type
from ort_ep_cuda.lowering.libraries.anchors import NOWHERE
from ort_ep_cuda.lowering.libraries.library_steps import ScaledAttention
from ort_ep_cuda.lowering.node_facts import LoweredNode
from ort_ep_cuda.lowering.products.products import PRODUCT_TYPES, multiply
from ort_ep_cuda.lowering.values.tensors import LazyTensor, combine, join
from ort_ep_cuda.lowering.values.views import Shape, TensorView
from ort_ep_cuda.lowering.writing.double_math import ROW_FUNCTIONS
from ort_ep_cuda.lowering.writing.row_kernel import launch_rows


@dataclass(frozen=True, slots=True)
class Room:
    """Where a type has the addends of a row: the largest at ``least_top`` or above, what is masked ``depth`` below it.

    Scores lie within ``depth`` of each other, and the least addend times log2(e) is finite in float32.
    """

    least_top: float
    depth: float


ROOM = {DataType.FLOAT16: Room(-2.0e3, 6.0e4)}  # float16 reaches -65504, and has all integers down to -2048
WIDE_ROOM = Room(-1.0e37, 9.0e37)  # of the other types; beside the least top every score is nothing, as in the model
_GENERATED = {
    "": (
        AttentionFeature.MASK, AttentionFeature.CAUSAL, AttentionFeature.SOFTCAP, AttentionFeature.PRESENT,
        AttentionFeature.DOUBLE,
    ),
    "com.microsoft": (AttentionFeature.MASK, AttentionFeature.PAST, AttentionFeature.PRESENT),
}  # fmt: skip


def refuse_attention(node: Node) -> str | None:
    """Return why an attention is not generated: what its record asks for, types, or a mask of fewer keys."""
    value, record = node.input(0), node_attention(node)
    assert value is not None
    if element_type(value) not in PRODUCT_TYPES:
        return f"{node.op_type} of {element_type(value).text} is not generated"
    what = record.beyond(*_GENERATED[node.domain])
    if what is not None:
        return f"{node.op_type} with {what} is not generated"
    if any(source.layout is None for source in (record.query, record.key, record.value)):
        return f"{node.op_type} without keys or values, or of unknown rank, is not generated"
    if node.domain and record.presents != (record.has_past,) * 2:
        return f"{node.op_type} with one of past and present is not generated"
    mask = None if record.mask is None else node.input(record.mask)
    if mask is not None and element_type(mask) not in (*PRODUCT_TYPES, DataType.BOOL):
        return f"{node.op_type} with a mask of {element_type(mask).text} is not generated"
    if mask is not None and record.is_mask_padded and not _has_all_keys(mask.shape, record.total):
        return f"{node.op_type} whose mask is not known to be as long as the keys is not generated"
    return None


def _has_all_keys(mask: ValueShape | None, keys: Dim) -> bool:
    return mask is not None and mask != () and mask[-1] is not None and mask[-1] == keys


@dataclass(frozen=True, slots=True)
class AttentionForm:
    """An attention over queries ``[batch, heads, rows, size]``, keys and values ``[batch, shared, columns, size]``.

    ``mask`` broadcasts to the scores; it is added, or says which count. ``cap`` bounds scores by ``tanh`` (0: not).
    ``is_hidden_nan``: a query whose scores are all minus infinity has no number as result; else zeros.
    ``sink`` broadcasts to the scores of one key: one more score of each row, which takes weight and gives no value.
    """

    q: TensorView
    k: TensorView
    v: TensorView
    scale: float
    mask: LazyTensor | None = None
    is_causal: bool = False
    cap: float = 0.0
    is_hidden_nan: bool = False
    sink: LazyTensor | None = None

    @property
    def scores(self) -> Shape:
        """The shape of the scores."""
        return (*self.q.shape[:3], self.k.shape[2])


def lower_attention(facts: LoweredNode) -> None:
    """Store softmax(scale * q k' + mask) v; keys and values, behind their cache, are outputs if they are asked for."""
    node = facts.node
    record = node_attention(node)
    q, k, v = (_heads(facts, source) for source in (record.query, record.key, record.value))
    if record.has_past and record.cache is not None:
        pasts = (record.cache.key, record.cache.value)
        k, v = (_behind_cache(facts, 1 + n, past, new) for n, (past, new) in enumerate(zip(pasts, (k, v), strict=True)))
    mask = None if record.mask is None else facts.tensor(record.mask)
    form = AttentionForm(
        q, k, v, record.factor(q.shape[3]), mask, record.is_causal, record.softcap, record.is_hidden_nan
    )
    attend(facts, form, is_merged=record.is_merged)
    for value, view in zip(node.outputs[1:3], (k, v), strict=False):
        if value is not None and not record.has_past:
            facts.builder.stored(LazyTensor.of(view), facts.builder.result(value, view.shape))


def _behind_cache(facts: LoweredNode, output: int, index: int | None, new: TensorView) -> TensorView:
    """Return keys or values with the cached ones in front; both are stored in the node's output."""
    builder, value = facts.builder, facts.node.outputs[output]
    assert index is not None, "refuse_attention was asked"
    assert value is not None, "refuse_attention was asked"
    past = facts.tensor(index)
    before, added = past.shape[2], new.shape[2]
    joined = builder.result(value, (*new.shape[:2], before + added, new.shape[3]))
    builder.stored(past, joined.sliced(2, 0, 1, before))
    builder.stored(LazyTensor.of(new), joined.sliced(2, before, 1, added))
    return joined


def attend(facts: LoweredNode, form: AttentionForm, *, is_merged: bool) -> None:
    """Store an attention as the node's first output; heads are merged to ``[batch, rows, heads * size]`` if asked.

    The library does it in one call where it can; a kernel of ours does it for few rows, else products and a kernel.
    """
    _check_sizes(facts, form)
    batch, heads, rows, _ = form.q.shape
    size = form.v.shape[3]
    shape = (batch, rows, heads, size) if is_merged else (batch, heads, rows, size)
    order = (0, 2, 1, 3) if is_merged else (0, 1, 2, 3)
    step = _as_one_call(facts, form, TensorView.dense(NOWHERE, form.v.dtype, shape).permuted(order))
    merged = facts.builder.result(facts.output, (batch, rows, heads * size) if is_merged else shape)
    out = TensorView.dense(merged.buffer, merged.dtype, shape).permuted(order)
    if not out.size:
        return
    if step is not None:
        facts.builder.add(step.placed(out))
        if form.mask is not None:
            _replace_masked_rows(facts, form, out)
        return
    if _has_few_rows(form):
        attend_few_rows(facts.builder, _few_rows(facts, form), out)
        return
    if _has_tiles(form):
        attend_in_tiles(facts.builder, _few_rows(facts, form), out)
        return
    weights = _weights(facts, form, _scores(facts, form))
    target = facts.builder.temporary(out.dtype, out.shape) if is_merged else out
    shared = form.k.shape[1]
    multiply(facts, _grouped(facts, weights, shared), form.v, _grouped(facts, target, shared))
    if is_merged:
        facts.builder.stored(LazyTensor.of(target), out)


def _check_sizes(facts: LoweredNode, form: AttentionForm) -> None:
    """Raise ``InvalidArgument`` where operands do not belong together: kernels read what their sizes say."""
    q, k, v = form.q.shape, form.k.shape, form.v.shape
    fits = q[0] == k[0] == v[0] and k[1:3] == v[1:3] and q[3] == k[3] and k[1] and q[1] % k[1] == 0
    sizes = form.mask.shape if form.mask is not None else ()
    scores = form.scores[4 - len(sizes) :] if len(sizes) <= 4 else ()
    fits_mask = len(sizes) <= 4 and all(size in (1, wanted) for size, wanted in zip(sizes, scores, strict=True))
    if not (fits and fits_mask):
        mask = f" and a mask {list(sizes)}" if form.mask is not None else ""
        raise InvalidArgument(
            f"{facts.node.describe()}: queries {list(q)}, keys {list(k)}, values {list(v)}{mask} do not belong together"
        )


def _is_read(form: AttentionForm) -> bool:
    """Return whether kernels of ours add the mask."""
    return form.sink is None and (form.mask is None or form.mask.dtype in (*TYPES, DataType.BOOL))


def _has_few_rows(form: AttentionForm) -> bool:
    return _is_read(form) and takes_few_rows(form.q, form.k, form.v, form.q.dtype)


def _has_tiles(form: AttentionForm) -> bool:
    has_mask = form.mask is not None
    return _is_read(form) and takes_tiles(
        form.q, form.k, form.v, is_bounded=bool(form.cap) or form.is_causal or has_mask
    )


def _few_rows(facts: LoweredNode, form: AttentionForm) -> FewRows:
    mask = None if form.mask is None else form.mask.view or facts.builder.stored(form.mask)
    return FewRows(
        form.q, form.k, form.v, form.k.shape[2], form.scale, form.cap, form.is_causal, form.is_hidden_nan, mask
    )


def _as_one_call(facts: LoweredNode, form: AttentionForm, out: TensorView) -> ScaledAttention | None:
    """Return the attention as one call of the library, if that computes the same and the library takes it.

    A row of which all is masked is zero; the library makes no such promise: there what is masked gets a large finite
    addend, and rows without any key are replaced behind the call. Masks of more digits than the queries stay with the
    kernels, which add them in float32.
    """
    libraries, read = facts.builder.libraries, (form.q, form.k, form.v)
    if not libraries.fuses or form.cap or form.sink is not None:
        return None
    if any(view.strides[3] != 1 or min(view.strides) < 0 or not view.size for view in read):
        return None
    if form.mask is None:
        bias = None
    elif form.mask.dtype in (DataType.BOOL, out.dtype) or out.dtype is DataType.FLOAT:
        bias = TensorView.dense(NOWHERE, out.dtype, _mask_shape(form))
    else:
        return None
    step = ScaledAttention(out, *read, form.scale, bias, form.is_causal)
    if libraries.refuse(step) is not None:
        return None
    return step if bias is None else replace(step, bias=_bias(facts, form, out.dtype))


def _bias(facts: LoweredNode, form: AttentionForm, dtype: DataType) -> TensorView:
    """Return a mask as an addend of finite numbers, broadcast over batch and heads, with rows and columns of its own.

    The numbers of a row keep their distances to its largest, as far as they matter: where that lies lower than the type
    leaves room below, all are raised, which changes no weight. What is masked lies so far below that it weighs nothing.
    """
    assert form.mask is not None
    shape, room = _mask_shape(form), ROOM.get(dtype, WIDE_ROOM)
    if form.mask.dtype is DataType.BOOL:
        zero, least = lift(0.0, DataType.FLOAT), lift(-room.depth, DataType.FLOAT)
        return facts.builder.stored(
            combine([form.mask.broadcast_to(shape)], lambda roots: select(roots[0], zero, least), dtype)
        )
    roots, operands = join(_masks(facts, form, shape))
    masks = [root if root.dtype is DataType.BOOL else cast(root, DataType.FLOAT) for root in roots]
    largest = row_max(_masked(lift(0.0, DataType.FLOAT), masks))
    found = select(binary("eq", largest, -math.inf), lift(0.0, DataType.FLOAT), largest)
    top = binary("max", found, room.least_top)
    addend = binary("min", binary("max", masks[-1] + (top - found), top - room.depth), top)
    out = facts.builder.temporary(dtype, shape)
    facts.builder.add(launch_rows([addend], operands, [out], 3))
    return out


def _mask_shape(form: AttentionForm) -> Shape:
    assert form.mask is not None
    lifted = (1,) * (4 - len(form.mask.shape)) + form.mask.shape
    return (*lifted[:2], *form.scores[2:])


def _replace_masked_rows(facts: LoweredNode, form: AttentionForm, out: TensorView) -> None:
    """Store zeros, or no numbers, in the rows that may read no key."""
    hidden = math.nan if form.is_hidden_nan else 0.0
    shape = _mask_shape(form)
    roots, operands = join(_masks(facts, form, shape))
    dtype = next((root.dtype for root in roots if root.dtype is not DataType.BOOL), DataType.FLOAT)
    rows = facts.builder.temporary(DataType.BOOL, shape[:3])
    is_masked = binary("eq", row_max(_masked(lift(0.0, dtype), roots)), -math.inf)
    facts.builder.add(launch_rows([is_masked], operands, [rows], 3))
    flags = LazyTensor.of(rows.regrouped((*shape[:3], 1))).broadcast_to(out.shape)

    def meaning(roots: Sequence[Scalar]) -> Scalar:
        return select(roots[1], lift(hidden, roots[0].dtype), roots[0])

    facts.builder.stored(combine([LazyTensor.of(out), flags], meaning, out.dtype), out)


def _heads(facts: LoweredNode, source: HeadSource) -> TensorView:
    """Return an operand with an axis of heads; ``[batch, rows, heads * size]`` is split."""
    assert source.input is not None, "refuse_attention was asked"
    value = facts.value(source.input)
    if source.layout is Layout.HEADS:
        return facts.builder.view(value)
    heads, dense = source.heads, facts.builder.dense(value)
    batch, rows, channels = dense.shape
    if not isinstance(heads, int) or channels % heads:
        raise InvalidArgument(f"{facts.node.describe()}: {channels} channels cannot be split into {heads} heads")
    return dense.regrouped((batch, rows, heads, channels // heads)).permuted((0, 2, 1, 3))


def _grouped(facts: LoweredNode, view: TensorView, shared: int) -> TensorView:
    """Return ``[batch, heads, rows, size]`` as ``[batch, shared, heads / shared * rows, size]``."""
    batch, heads, rows, size = view.shape
    if heads == shared:
        return view
    shape = (batch, shared, heads // shared * rows, size)
    found = view.reshaped(shape)
    if found is not None:
        return found
    stored = facts.builder.stored(LazyTensor.of(view))
    return stored.regrouped(shape)


def _scores(facts: LoweredNode, form: AttentionForm) -> TensorView:
    scores = facts.builder.temporary(form.q.dtype, form.scores)
    shared = form.k.shape[1]
    queries = _grouped(facts, form.q, shared)
    multiply(facts, queries, form.k.permuted((0, 1, 3, 2)), _grouped(facts, scores, shared), form.scale)
    return scores


def _weights(facts: LoweredNode, form: AttentionForm, scores: TensorView) -> TensorView:
    """Store the softmax of the scores, capped and masked; a row that is masked whole is zero, or no number."""
    masks = _masks(facts, form, form.scores)
    sinks = [] if form.sink is None else [form.sink.broadcast_to(form.scores)]
    roots, operands = join([LazyTensor.of(scores), *masks, *sinks])
    x = _masked(_capped(roots[0], form.cap), roots[1 : 1 + len(masks)])
    out = facts.builder.temporary(scores.dtype, scores.shape)
    if out.size:
        function = softmax if form.is_hidden_nan else masked_softmax
        weights = _with_sink(x, roots[-1]) if sinks else function(x, ROW_FUNCTIONS)
        facts.builder.add(launch_rows([weights], operands, [out], 3))
    return out


def _with_sink(x: Scalar, sink: Scalar) -> Scalar:
    """Return the softmax of a row that has one more score, of which no weight is kept."""
    largest = binary("max", row_max(x), cast(sink, x.dtype))
    e = ROW_FUNCTIONS.exp(x - largest)
    return e / (row_sum(e) + ROW_FUNCTIONS.exp(cast(sink, x.dtype) - largest))


def _masks(facts: LoweredNode, form: AttentionForm, shape: Shape) -> list[LazyTensor]:
    found = []
    if form.is_causal:
        allowed = np.tril(np.ones(form.scores[2:], bool))
        found.append(LazyTensor.of(facts.builder.table("causal", allowed)).broadcast_to(shape))
    if form.mask is not None:
        found.append(form.mask.broadcast_to(shape))
    return found


def _capped(x: Scalar, cap: float) -> Scalar:
    if not cap:
        return x
    return (unary("tanh", x / cap) if x.dtype is DataType.DOUBLE else tanh(x / cap)) * cap


def _masked(x: Scalar, masks: Sequence[Scalar]) -> Scalar:
    for mask in masks:
        x = select(mask, x, -math.inf) if mask.dtype is DataType.BOOL else x + cast(mask, x.dtype)
    return x
