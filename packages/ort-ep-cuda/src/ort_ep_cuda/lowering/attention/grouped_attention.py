"""GroupQueryAttention: queries and new keys are turned, caches go on with what is new, and all is attended at once.

One kernel makes the present of the past and the new rows, and turns the queries; a second one attends (few rows), or a
mask and products do (many rows). A present that lies where its past does is written where it is new, and only there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ort_core.plugin import InvalidArgument
from ort_core.plugin.ir import DataType, Node
from ort_core.plugin.loops import cast, lift, select
from ort_core.plugin.ops import AttentionFeature, AttentionRecord, HeadSource, Layout, Rotary, node_attention
from ort_ep_cuda.lowering.attention.attention import AttentionForm, attend
from ort_ep_cuda.lowering.attention.few_row_attention import TYPES, FewRows, Lengths, attend_few_rows, takes_few_rows
from ort_ep_cuda.lowering.builder import element_type
from ort_ep_cuda.lowering.node_facts import LoweredNode
from ort_ep_cuda.lowering.values.growing import larger, plain, smaller
from ort_ep_cuda.lowering.values.tensors import LazyTensor, combine
from ort_ep_cuda.lowering.values.views import Shape, TensorView
from ort_ep_cuda.lowering.writing.preamble import STORAGE
from ort_ep_cuda.lowering.writing.writer import (
    Worker,
    blocks_for,
    filled,
    launch_elements,
    launched,
    numbers,
    pointers,
    template,
    walk,
)

_GENERATED = (
    AttentionFeature.PACKED, AttentionFeature.MASK, AttentionFeature.PAST, AttentionFeature.PRESENT,
    AttentionFeature.LENGTHS, AttentionFeature.CAUSAL, AttentionFeature.WINDOW, AttentionFeature.SOFTCAP,
    AttentionFeature.ROTARY, AttentionFeature.POSITIONS, AttentionFeature.SINK, AttentionFeature.SMOOTH,
    AttentionFeature.NORMALIZED,
)  # fmt: skip
_TOTAL, _LENGTHS, _SEQUENCES = 6, 5, 16  # inputs
_FLOATS = (1, 2, 3, 4, 7, 8, 10, 11, 14, 15)  # inputs
TOO_LONG = "a length in seqlens_k is not one of the present cache"
TOO_FAR = "a position is out of range for rotary cache dimension 0"
_WARPS = 8  # of one block


def refuse_grouped_attention(node: Node) -> str | None:
    """Return why GroupQueryAttention is not generated as a whole; its body may be."""
    record = node_attention(node)
    what = record.beyond(*_GENERATED)
    if what is not None:
        return f"GroupQueryAttention with {what} is not generated"
    if node.input(_SEQUENCES) is not None:
        return "GroupQueryAttention of packed queries is not generated"
    dtype = element_type(node.output)
    floats = [*(node.input(k) for k in _FLOATS), *node.outputs[1:3]]
    others = {element_type(value) for value in floats if value is not None} - {dtype}
    if dtype not in TYPES or others:
        return f"GroupQueryAttention of {', '.join(sorted(each.text for each in {dtype, *others}))} is not generated"
    if record.rotary is not None and (record.rotary.cos is None or record.rotary.sin is None):
        return "GroupQueryAttention that turns heads without tables of angles is not generated"
    return _refuse_heads(record)


def _refuse_heads(record: AttentionRecord) -> str | None:
    query, key, value = record.query, record.key, record.value
    if any(source.layout is not Layout.ROWS for source in (query, key, value)):
        return "GroupQueryAttention without new keys and values is not generated"
    if query.length is None or (key.length, value.length) != (query.length,) * 2:
        return "GroupQueryAttention whose new keys are not known to be as many as its queries is not generated"
    if not isinstance(query.heads, int) or not isinstance(key.heads, int) or query.heads % key.heads:
        return "GroupQueryAttention whose heads are not known to share keys evenly is not generated"
    if any(not isinstance(number, int) for source in (query, key, value) for number in (source.size, source.first)):
        return "GroupQueryAttention of heads of unknown size is not generated"
    if record.left is not None and not record.is_causal:
        return "GroupQueryAttention with a window that is not causal is not generated"
    return None


def lower_grouped_attention(facts: LoweredNode) -> None:
    """Store the attention and both caches with the new rows behind the valid ones."""
    record = node_attention(facts.node)
    counts = facts.builder.dense(facts.value(_LENGTHS))
    q, k, v = _continued(facts, record, counts)
    batch, heads, rows, size = q.shape
    mask = None if record.mask is None else facts.tensor(record.mask)
    columns = k.shape[2] if mask is None else smaller(k.shape[2], mask.shape[3])
    lengths = Lengths(counts, record.is_causal, record.left)
    if not takes_few_rows(q, k, v, k.dtype):
        _attend_many_rows(facts, record, (q, k, v), lengths, columns)
        return
    out = facts.builder.result(facts.output, (batch, rows, heads * size))
    if not out.size:
        return
    sink = None if record.sink is None else facts.builder.dense(facts.value(record.sink))
    bias = None if mask is None else _columns_of(mask.view or facts.builder.stored(mask), columns)
    form = FewRows(
        q, k, v, columns, record.factor(size), record.softcap, mask=bias, lengths=lengths, sink=sink,
        has_zero_sink=record.has_zero_sink,
    )  # fmt: skip
    heads_of_out = TensorView.dense(out.buffer, out.dtype, (batch, rows, heads, size)).permuted((0, 2, 1, 3))
    attend_few_rows(facts.builder, form, heads_of_out)


def _continued(
    facts: LoweredNode, record: AttentionRecord, counts: TensorView
) -> tuple[TensorView, TensorView, TensorView]:
    """Return queries, turned, with all keys and values behind the cached ones, which are stored as the presents."""
    builder, node = facts.builder, facts.node
    q, k, v = (_heads(facts, source) for source in (record.query, record.key, record.value))
    pasts = tuple(builder.dense(facts.value(index)) for index in (3, 4) if facts.has(index))
    total = facts.known(_TOTAL)
    assert total is not None, "the schema requires it"
    longest = plain(total.reshape(-1)[0])
    _check_sizes(facts, record, (q, k, v), pasts, longest)
    _check_counts(facts, counts, q.shape[0])
    shape = (*k.shape[:2], larger(pasts[0].shape[2] if pasts else 0, longest), q.shape[3])
    turned = builder.temporary(DataType.FLOAT if takes_few_rows(q, k, v, q.dtype) else q.dtype, q.shape)
    wanted = [node.outputs[index] if index < len(node.outputs) else None for index in (1, 2)]
    key, value = (builder.temporary(k.dtype, shape) if out is None else builder.result(out, shape) for out in wanted)
    outs = (turned, key, value)
    _continue_caches(facts, record, (q, k, v), pasts, outs, counts)
    if pasts and turned.dtype is DataType.FLOAT:  # products of many rows read what no run has written
        builder.continues(key, pasts[0])
        builder.continues(value, pasts[1])
    return outs


def _heads(facts: LoweredNode, source: HeadSource) -> TensorView:
    """Return an operand as ``[batch, heads, rows, size]``: columns of its tensor, maybe beside those of others."""
    assert source.input is not None, "refuse_grouped_attention was asked"
    assert isinstance(source.heads, int), "refuse_grouped_attention was asked"
    assert isinstance(source.size, int), "refuse_grouped_attention was asked"
    assert isinstance(source.first, int), "refuse_grouped_attention was asked"
    dense = facts.builder.dense(facts.value(source.input))
    batch, rows, columns = dense.shape
    shape, strides = (batch, source.heads, rows, source.size), (rows * columns, source.size, columns, 1)
    return TensorView(dense.buffer, dense.dtype, shape, strides, dense.offset + source.first)


def _check_sizes(
    facts: LoweredNode,
    record: AttentionRecord,
    news: tuple[TensorView, TensorView, TensorView],
    pasts: Sequence[TensorView],
    longest: int,
) -> None:
    """Raise ``InvalidArgument`` where inputs do not belong together: kernels read what their sizes say."""
    (batch, heads, rows, size), (*_, groups_of_k, _, _), _ = (view.shape for view in news)
    node, capacity = facts.node, pasts[0].shape[2] if pasts else 0
    wanted = (batch, groups_of_k, capacity, size)
    if any(view.shape != wanted for view in pasts) or any(view.shape[::2] != (batch, rows) for view in news):
        found = ", ".join(str(list(view.shape)) for view in (*news, *pasts))
        raise InvalidArgument(f"{node.describe()}: queries, keys, values and caches {found} do not belong together")
    if longest <= 0 or (longest > capacity and longest != capacity + rows):
        raise InvalidArgument(
            f"{node.describe()}: total_sequence_length is {int(longest)}, expected the past's {int(capacity)} rows and "
            f"{int(rows)} new ones, or fewer rows than the past has"
        )
    bias = (1,) * 4 if record.mask is None else facts.tensor(record.mask).shape
    if len(bias) != 4 or any(
        found not in (1, wanted) for found, wanted in zip(bias, (batch, heads, rows), strict=False)
    ):
        raise InvalidArgument(
            f"{node.describe()}: attention_bias is {list(bias)}, expected {[batch, heads, rows]} keys"
        )
    norms = () if record.norms is None else (record.norms.query, record.norms.key)
    rotary = () if record.rotary is None else (record.rotary.cos, record.rotary.sin)
    vectors = [*((index, size) for index in norms), *(() if record.sink is None else ((record.sink, heads),))]
    for index, count in vectors:
        if facts.tensor(index).shape != (count,):
            raise InvalidArgument(f"{node.describe()}: input {index} is not {count} numbers")
    tables = [facts.tensor(index).shape for index in rotary if index is not None]
    if tables and (tables[0] != tables[1] or len(tables[0]) != 2 or 2 * tables[0][1] > size):
        raise InvalidArgument(
            f"{node.describe()}: angles {list(map(list, tables))} do not fit heads of {size} elements"
        )


def _check_counts(facts: LoweredNode, counts: TensorView, batch: int) -> None:
    if counts.size != batch or len(counts.shape) > 2 or (len(counts.shape) == 2 and 1 not in counts.shape):
        raise InvalidArgument(
            f"{facts.node.describe()}: seqlens_k has unexpected shape {list(counts.shape)}: it has {counts.size} "
            f"elements, expected {batch}"
        )


def _columns_of(mask: TensorView, columns: int) -> TensorView:
    return mask.sliced(len(mask.shape) - 1, 0, 1, columns)


_PARAMETERS = (
    "const @T@* query, const @T@* key, const @T@* value, const @T@* past_key, const @T@* past_value, "
    "const int* counts, const @T@* cosines, const @T@* sines, const long long* positions, const @T@* query_weight, "
    "const @T@* key_weight, @Q@* turned, @T@* present_key, @T@* present_value, int* status, int too_long, int too_far, "
    "long long heads, long long groups, long long rows, long long capacity, long long length, long long angles, "
    "long long q_batch, long long q_row, long long k_batch, long long k_row, long long v_batch, long long v_row, "
    "float query_epsilon, float key_epsilon, long long queries, long long caches, long long count"
)
_BODY = """
@WALK@
  const bool is_query = piece < queries, is_value = piece >= queries + caches;
  const long long rest = is_query ? piece : (piece - queries) % caches;
  const long long width = is_query ? rows : length, many = is_query ? heads : groups;
  const long long place = rest % width, head = rest / width % many, batch = rest / width / many;
  const long long valid = (long long)counts[batch] + 1, past = valid > rows ? valid - rows : 0;
  if (valid < 1 || valid > length) { *status = too_long; continue; }
  const long long fresh = is_query ? place : place - past;
  @T@* cached = (is_value ? present_value : present_key) + rest * @SIZE@;
  if (!is_query && (fresh < 0 || fresh >= rows)) {
    const @T@* before = is_value ? past_value : past_key;
    if (before == (is_value ? present_value : present_key)) continue;
    before += ((batch * groups + head) * capacity + place) * @SIZE@;
    for (int e = threadIdx.x; e < @SIZE@; e += 32)
      cached[e] = place < past && place < capacity ? before[e] : ort_store<@T@>::of(0.0f);
    continue;
  }
  const @T@* row = is_query ? query + batch * q_batch + fresh * q_row
                 : is_value ? value + batch * v_batch + fresh * v_row : key + batch * k_batch + fresh * k_row;
  row += head * @SIZE@;
  if (is_value) {
    for (int e = threadIdx.x; e < @SIZE@; e += 32) cached[e] = row[e];
    continue;
  }
  @Q@* wanted = turned + rest * @SIZE@;
  @NORM@
  @TURN@
  for (int e = 2 * @PAIRS@ + threadIdx.x; e < @SIZE@; e += 32) {
    const float found = @LOAD@;
    @STORE@
  }
}
"""
_NORM = """const @T@* weight = is_query ? query_weight : key_weight;
  float factor = 0.0f;
  for (int e = threadIdx.x; e < @SIZE@; e += 32) factor += ort_load(row[e]) * ort_load(row[e]);
  for (int step = 16; step > 0; step /= 2) factor += __shfl_xor_sync(0xffffffffu, factor, step);
  factor = 1.0f / sqrtf(factor / @SIZE@ + (is_query ? query_epsilon : key_epsilon));"""
_TURN = """const long long position = @POSITION@;
  if (position < 0 || position >= angles) { *status = too_far; continue; }
  for (int pair = threadIdx.x; pair < @PAIRS@; pair += 32) {
    const float c = ort_load(cosines[position * @PAIRS@ + pair]), s = ort_load(sines[position * @PAIRS@ + pair]);
    int e = @FIRST@;
    const float a = @LOAD@;
    e = @SECOND@;
    const float b = @LOAD@;
    float found = a * s + b * c;
    @STORE@
    e = @FIRST@;
    found = a * c - b * s;
    @STORE@
  }"""


def _continue_caches(
    facts: LoweredNode,
    record: AttentionRecord,
    news: tuple[TensorView, TensorView, TensorView],
    pasts: Sequence[TensorView],
    outs: tuple[TensorView, TensorView, TensorView],
    counts: TensorView,
) -> None:
    """Store turned queries, and presents: the valid rows of the past, the new rows, zeros."""
    q, k, _ = news
    batch, heads, rows, size = q.shape
    groups, length = k.shape[1], outs[1].shape[2]
    tables, positions, pairs = _angles(facts, record.rotary, (batch, rows))
    norms = record.norms
    weights = [] if norms is None else [facts.builder.dense(facts.value(k)) for k in (norms.query, norms.key)]
    epsilons = (0.0, 0.0) if norms is None else norms.epsilons
    texts = {
        "WALK": walk(Worker.WARP, "piece", "count"), "NORM": "" if norms is None else _NORM,
        "TURN": _TURN if pairs else "",
        "LOAD": "ort_load(row[e])" + (" * factor * ort_load(weight[e])" if weights else ""),
        "STORE": "if (is_query) wanted[e] = ort_store<@Q@>::of(found); else cached[e] = ort_store<@T@>::of(found);",
        "POSITION": "positions[batch * rows + fresh]" if positions else "past + fresh",
        "FIRST": "2 * pair" if _is_interleaved(record) else "pair",
        "SECOND": "2 * pair + 1" if _is_interleaved(record) else "pair + @PAIRS@",
        "PAIRS": str(pairs), "SIZE": str(size), "T": STORAGE[k.dtype], "Q": STORAGE[outs[0].dtype],
    }  # fmt: skip
    kernel = template("continue_caches", _PARAMETERS, _BODY, texts)
    unread = counts  # stands where there is nothing to read
    past = tuple(pasts) or (k, k)  # not read where there is none
    read = [*news, *past, counts, *(tables or (unread,) * 2), positions or unread, *(weights or (unread,) * 2)]
    queries, caches = batch * heads * rows, batch * groups * length
    strides = [stride for view in news for stride in (view.strides[0], view.strides[2])]
    sizes = numbers(
        heads, groups, rows, pasts[0].shape[2] if pasts else 0, length, tables[0].shape[0] if tables else 0, *strides
    )
    floats = tuple(np.float32(epsilon) for epsilon in epsilons)
    checks = (*facts.builder.check(facts.node, TOO_LONG), facts.builder.check(facts.node, TOO_FAR)[1])
    arguments = (*pointers(*read, *outs), *checks, *sizes, *floats, *numbers(queries, caches, queries + 2 * caches))
    grid = blocks_for(queries + 2 * caches, _WARPS)
    facts.builder.add(launched(kernel, grid, (32, _WARPS, 1), arguments, read, outs))


def _is_interleaved(record: AttentionRecord) -> bool:
    return record.rotary is not None and record.rotary.is_interleaved


def _angles(
    facts: LoweredNode, rotary: Rotary | None, tokens: Shape
) -> tuple[tuple[TensorView, TensorView] | None, TensorView | None, int]:
    """Return cosines and sines, where positions are if they are given, and how many pairs of a head turn."""
    if rotary is None:
        return None, None, 0
    assert rotary.cos is not None, "refuse_grouped_attention was asked"
    assert rotary.sin is not None, "refuse_grouped_attention was asked"
    cosines, sines = (facts.builder.dense(facts.value(index)) for index in (rotary.cos, rotary.sin))
    positions = None if rotary.positions is None else facts.builder.dense(facts.value(rotary.positions))
    if positions is not None and positions.shape != tokens:
        positions = None  # as onnxruntime: those of other tokens are not read
    return (cosines, sines), positions, int(cosines.shape[1])


_VISIBLE = """
const long long column = i % columns, row = i / columns % rows, batch = i / columns / rows;
const long long length = (long long)counts[batch] + 1, past = length > rows ? length - rows : 0;
const long long own = past + row < length - 1 ? past + row : length - 1;
out[i] = column < length@CAUSAL@;
"""


def _attend_many_rows(
    facts: LoweredNode,
    record: AttentionRecord,
    operands: tuple[TensorView, TensorView, TensorView],
    lengths: Lengths,
    columns: int,
) -> None:
    """Attend by products, under a mask that is computed from the lengths."""
    q, k, v = operands
    batch, _, rows, size = q.shape
    visible = facts.builder.temporary(DataType.BOOL, (batch, 1, rows, columns))
    causal = " && column <= own" if lengths.is_causal else ""
    if lengths.left is not None:
        causal += f" && column >= own - {lengths.left}"
    parameters = "const int* counts, bool* out, long long rows, long long columns, long long count"
    kernel = filled("visible_keys", parameters, _VISIBLE, {"CAUSAL": causal})
    arguments = (*pointers(lengths.counts, visible), *numbers(rows, columns))
    facts.builder.add(launch_elements(kernel, visible.size, arguments, [lengths.counts], [visible]))
    mask = LazyTensor.of(visible)
    if record.mask is not None:
        mask = _with_bias(facts.tensor(record.mask), mask, q.shape[1])
    form = AttentionForm(
        q, k.sliced(2, 0, 1, columns), v.sliced(2, 0, 1, columns), record.factor(size), mask, cap=record.softcap,
        sink=_sink(facts, record),
    )  # fmt: skip
    attend(facts, form, is_merged=True)


def _with_bias(bias: LazyTensor, visible: LazyTensor, heads: int) -> LazyTensor:
    """Return the bias with minus infinity where no key is seen."""
    batch, _, rows, columns = visible.shape
    shape = (batch, heads if bias.shape[1] != 1 else 1, rows, columns)
    columns_only = bias.moved(lambda view: _columns_of(view, columns), (*bias.shape[:3], columns))
    tensors = [visible.broadcast_to(shape), columns_only.broadcast_to(shape)]
    lowest = lift(-math.inf, DataType.FLOAT)
    return combine(tensors, lambda roots: select(roots[0], cast(roots[1], DataType.FLOAT), lowest), DataType.FLOAT)


def _sink(facts: LoweredNode, record: AttentionRecord) -> LazyTensor | None:
    if record.sink is None:
        return LazyTensor(lift(0.0, DataType.FLOAT), (), (), DataType.FLOAT) if record.has_zero_sink else None
    sink = facts.builder.dense(facts.value(record.sink))
    return LazyTensor.of(sink.regrouped((1, sink.shape[0], 1, 1)))
