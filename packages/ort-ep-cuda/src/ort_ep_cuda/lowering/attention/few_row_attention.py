"""Attention of few queries in one kernel: one token by all keys so far, as each step of a decoder asks.

A warp takes one query of one head: eight lanes take one key, four keys at once. Scores are never stored: each four
lanes keep the largest score so far, the sum of weights below it and the weighted values, and raise them where a larger
score comes (online softmax, Milakov and Gimelshein 2018). Where keys are many and queries few, several warps share the
keys of one query, and a second kernel joins what they found.
"""

from __future__ import annotations

from dataclasses import dataclass

from ort_core.plugin.ir import DataType
from ort_ep_cuda.lowering.builder import ProgramBuilder
from ort_ep_cuda.lowering.values.growing import grows, largest
from ort_ep_cuda.lowering.values.views import TensorView
from ort_ep_cuda.lowering.writing.preamble import STORAGE
from ort_ep_cuda.lowering.writing.writer import Worker, blocks_for, launched, numbers, pointers, template, walk

MAXIMUM_ROWS = 16  # beyond it products of matrices read keys less often
MAXIMUM_SIZE = 256  # elements of a head: a lane keeps an eighth of the query and of the result
TYPES = frozenset({DataType.FLOAT, DataType.FLOAT16, DataType.BFLOAT16})
WARPS = 4  # of one block
_KEYS_OF_ONE = 64  # a warp that takes fewer keys costs more than it saves
_WARPS_AT_ONCE = 512  # about as many as keep a device busy
_MAXIMUM_SPLITS = 32


@dataclass(frozen=True, slots=True)
class Lengths:
    """How many keys count: ``counts[batch] + 1``, int32; the new ones are the last of them.

    ``left`` is how many keys before its own place a query sees (``None``: all); ``is_causal`` whether it sees none
    behind it.
    """

    counts: TensorView
    is_causal: bool
    left: int | None


@dataclass(frozen=True, slots=True)
class FewRows:
    """What is attended with: ``q`` ``[batch, heads, rows, size]``, ``k`` and ``v`` ``[batch, shared, columns, size]``.

    ``mask`` ``[batch, heads, rows, columns]`` is added, or says what counts; ``sink`` ``[heads]`` is one more score.
    ``columns`` is how many keys there are at most. ``has_zero_sink`` adds a score of zero in place of a sink.
    """

    q: TensorView
    k: TensorView
    v: TensorView
    columns: int
    scale: float
    cap: float = 0.0
    is_causal: bool = False
    is_hidden_nan: bool = False
    mask: TensorView | None = None
    lengths: Lengths | None = None
    sink: TensorView | None = None
    has_zero_sink: bool = False


def takes_few_rows(q: TensorView, k: TensorView, v: TensorView, dtype: DataType) -> bool:
    """Return whether the kernel attends with these operands: few queries, elements of a head side by side."""
    rows, size, width = q.shape[2], q.shape[3], v.shape[3]
    if grows(rows) or grows(size) or grows(width) or rows > MAXIMUM_ROWS:
        return False
    is_dense = all(view.strides[3] == 1 or view.shape[3] == 1 for view in (q, k, v))
    return is_dense and 0 < size <= MAXIMUM_SIZE and 0 < width <= MAXIMUM_SIZE and dtype in TYPES


def attend_few_rows(builder: ProgramBuilder, form: FewRows, out: TensorView) -> None:
    """Store the attention in a view ``[batch, heads, rows, size]`` whose elements of a head lie side by side."""
    splits = _splits(form)
    if splits == 1:
        _launch(builder, form, out, splits)
        return
    parts = builder.temporary(DataType.FLOAT, (*out.shape[:3], splits, out.shape[3] + 2))
    _launch(builder, form, parts, splits)
    _join(builder, form, parts, out)


def _splits(form: FewRows) -> int:
    """Return how many warps share the keys of a query; sizes that grow are taken at their largest."""
    queries = largest(form.q.shape[0]) * largest(form.q.shape[1]) * form.q.shape[2]
    wanted = min(largest(form.columns) // _KEYS_OF_ONE, _WARPS_AT_ONCE // max(queries, 1))
    return max(1, min(wanted, _MAXIMUM_SPLITS))


_PARAMETERS = (
    "const @Q@* q, const @T@* k, const @T@* v, const @M@* mask, const int* counts, const @S@* sink, @T@* out, "
    "float* parts, float scale, float cap, long long heads, long long group, long long rows, long long columns, "
    "long long q_batch, long long q_head, long long q_row, long long k_batch, long long k_head, long long k_row, "
    "long long v_batch, long long v_head, long long v_row, long long m_batch, long long m_head, long long m_row, "
    "long long m_column, long long o_batch, long long o_head, long long o_row, long long left, long long splits, "
    "long long count"
)
_BODY = """
const int lane = threadIdx.x % 8, slot = threadIdx.x / 8;
const float lowest = -__int_as_float(0x7f800000);
@WALK@
  const long long split = piece % splits, query = piece / splits;
  const long long row = query % rows, head = query / rows % heads, batch = query / rows / heads;
  const @T@* keys = k + batch * k_batch + head / group * k_head;
  const @T@* values = v + batch * v_batch + head / group * v_head;
  const @Q@* wanted = q + batch * q_batch + head * q_head + row * q_row;
  float x[@QN@], sums[@VN@], top = lowest, total = 0.0f;
  for (int j = 0; j < @QN@; ++j) x[j] = @QPLACE@ < @SIZE@ ? ort_load(wanted[@QPLACE@]) * scale : 0.0f;
  for (int j = 0; j < @VN@; ++j) sums[j] = 0.0f;
  long long first = 0, last = columns;
  @BOUNDS@
  const long long each = (last - first + splits - 1) / splits, start = first + split * each;
  const long long end = start + each < last ? start + each : last;
  for (long long base = start; base < end; base += 4) {
    const long long column = base + slot;
    float score = 0.0f;
    if (column < end)
      for (int j = 0; j < @QN@; j += @QCHUNK@)
        if (@QPLACE@ < @SIZE@) {
          const ort_chunk<@T@, @QCHUNK@> read = *(const ort_chunk<@T@, @QCHUNK@>*)(keys + column * k_row + @QPLACE@);
          for (int i = 0; i < @QCHUNK@; ++i) score += x[j + i] * ort_load(read.elements[i]);
        }
    for (int step = 4; step > 0; step /= 2) score += __shfl_xor_sync(0xffffffffu, score, step);
    if (column < end) {
      @CAP@
      @MASK@
      const float higher = fmaxf(top, score), before = top == higher ? 1.0f : expf(top - higher);
      const float weight = score == lowest ? 0.0f : expf(score - higher);
      total = total * before + weight;
      for (int j = 0; j < @VN@; j += @VCHUNK@)
        if (@VPLACE@ < @WIDTH@) {
          const ort_chunk<@T@, @VCHUNK@> read = *(const ort_chunk<@T@, @VCHUNK@>*)(values + column * v_row + @VPLACE@);
          for (int i = 0; i < @VCHUNK@; ++i) sums[j + i] = sums[j + i] * before + weight * ort_load(read.elements[i]);
        }
      top = higher;
    }
  }
  for (int step = 8; step < 32; step *= 2) {
    const float other = __shfl_xor_sync(0xffffffffu, top, step), higher = fmaxf(top, other);
    const float mine = top == higher ? 1.0f : expf(top - higher);
    const float theirs = other == higher ? 1.0f : expf(other - higher);
    total = total * mine + __shfl_xor_sync(0xffffffffu, total, step) * theirs;
    for (int j = 0; j < @VN@; ++j)
      sums[j] = sums[j] * mine + __shfl_xor_sync(0xffffffffu, sums[j], step) * theirs;
    top = higher;
  }
  @END@
}
"""
_OF_LENGTHS = """const long long length = (long long)counts[batch] + 1, past = length > rows ? length - rows : 0;
  const long long own = past + row < length - 1 ? past + row : length - 1;
  last = length < last ? length : last;"""
_WHOLE = """float scaled = 1.0f;
  @SINK@
  for (int j = 0; j < @VN@; ++j)
    if (slot == 0 && @VPLACE@ < @WIDTH@)
      out[batch * o_batch + head * o_head + row * o_row + @VPLACE@] =
        ort_store<@T@>::of(total == 0.0f ? (@HIDDEN@) : sums[j] * scaled / total);"""
_PART = """float* part = parts + piece * (@WIDTH@ + 2);
  if (threadIdx.x == 0) { part[0] = top; part[1] = total; }
  for (int j = 0; j < @VN@; ++j)
    if (slot == 0 && @VPLACE@ < @WIDTH@) part[2 + @VPLACE@] = sums[j];"""
_WITH_SINK = """const float more = @SCORE@, largest = fmaxf(top, more);
  scaled = top == largest ? 1.0f : expf(top - largest);
  total = total * scaled + (more == largest ? 1.0f : expf(more - largest));"""


def _launch(builder: ProgramBuilder, form: FewRows, out: TensorView, splits: int) -> None:
    batch, heads, rows, size = form.q.shape
    width = form.v.shape[3]
    mask, sink = form.mask, form.sink
    lengths, chunks = form.lengths, (_chunk(form.k), _chunk(form.v))
    texts = {
        "WALK": walk(Worker.WARP, "piece", "count"), "END": _PART if splits > 1 else _WHOLE,
        "BOUNDS": _bounds(form), "CAP": "score = cap * tanhf(score / cap);" if form.cap else "",
        "MASK": _mask_text(mask), "SINK": _sink_text(form), "HIDDEN": _hidden(form),
        "Q": STORAGE[form.q.dtype], "T": STORAGE[form.k.dtype], "M": "bool" if mask is None else STORAGE[mask.dtype],
        "S": "float" if sink is None else STORAGE[sink.dtype], "SIZE": str(size), "WIDTH": str(width),
        "QPLACE": _place(chunks[0]), "VPLACE": _place(chunks[1]), "QCHUNK": str(chunks[0]), "VCHUNK": str(chunks[1]),
        "QN": str(-(-size // (8 * chunks[0])) * chunks[0]), "VN": str(-(-width // (8 * chunks[1])) * chunks[1]),
    }  # fmt: skip
    kernel = template("attend_few_rows", _PARAMETERS, _BODY, texts)
    views = [
        view
        for view in (form.q, form.k, form.v, mask, sink, None if lengths is None else lengths.counts)
        if view is not None
    ]
    unread = form.q  # stands where there is nothing to read
    counts = unread if lengths is None else lengths.counts
    operands = (form.q, form.k, form.v, mask or unread, counts, sink or unread)
    steps = (0,) * 4 if mask is None else mask.broadcast_to((batch, heads, rows, form.columns)).strides
    places = (0,) * 3 if splits > 1 else out.strides[:3]
    left = -1 if lengths is None or lengths.left is None else lengths.left
    sizes = numbers(
        heads, heads // form.k.shape[1], rows, form.columns, *form.q.strides[:3], *form.k.strides[:3],
        *form.v.strides[:3], *steps, *places, left, splits, batch * heads * rows * splits,
    )  # fmt: skip
    factors = (DataType.FLOAT.numpy.type(form.scale), DataType.FLOAT.numpy.type(form.cap))
    arguments = (*pointers(*operands, out, out), *factors, *sizes)
    grid = blocks_for(batch * heads * rows * splits, WARPS)
    builder.add(launched(kernel, grid, (32, WARPS, 1), arguments, views, [out]))


def _chunk(view: TensorView) -> int:
    """Return how many elements of a head are read at once: 16 bytes where heads and rows begin at multiples of it."""
    count = 16 // view.dtype.numpy.itemsize
    is_even = view.shape[3] % count == 0 and view.strides[3] == 1 and view.offset % count == 0
    return count if is_even and all(stride % count == 0 for stride in view.strides[:3]) else 1


def _place(chunk: int) -> str:
    """Return which element of a head a lane's element ``j`` is: eight lanes read chunks side by side."""
    return "lane + 8 * j" if chunk == 1 else f"(lane + 8 * (j / {chunk})) * {chunk} + j % {chunk}"


def _bounds(form: FewRows) -> str:
    if form.lengths is None:
        return "last = row + 1 < last ? row + 1 : last;" if form.is_causal else ""
    text = _OF_LENGTHS
    if form.lengths.is_causal:
        text += "\n  last = own + 1 < last ? own + 1 : last;"
        if form.lengths.left is not None:
            text += "\n  first = own - left > 0 ? own - left : 0;"
    return text


def _mask_text(mask: TensorView | None) -> str:
    if mask is None:
        return ""
    place = "mask[batch * m_batch + head * m_head + row * m_row + column * m_column]"
    return f"if (!{place}) score = lowest;" if mask.dtype is DataType.BOOL else f"score += ort_load({place});"


def _sink_text(form: FewRows) -> str:
    if form.sink is None and not form.has_zero_sink:
        return ""
    score = "0.0f" if form.sink is None else "ort_load(sink[head])"
    return _WITH_SINK.replace("@SCORE@", score)


def _hidden(form: FewRows) -> str:
    return "columns ? __int_as_float(0x7fc00000) : 0.0f" if form.is_hidden_nan else "0.0f"


_JOIN_PARAMETERS = (
    "const float* parts, const @S@* sink, @T@* out, long long heads, long long rows, long long columns, "
    "long long splits, long long o_batch, long long o_head, long long o_row, long long count"
)
_JOIN = """
const float lowest = -__int_as_float(0x7f800000);
@WALK@
  const long long row = query % rows, head = query / rows % heads, batch = query / rows / heads;
  const float* found = parts + query * splits * (@WIDTH@ + 2);
  float top = lowest, total = 0.0f, scaled = 1.0f;
  for (long long split = 0; split < splits; ++split) top = fmaxf(top, found[split * (@WIDTH@ + 2)]);
  for (long long split = 0; split < splits; ++split) {
    const float* part = found + split * (@WIDTH@ + 2);
    total += part[1] * (part[0] == top ? 1.0f : expf(part[0] - top));
  }
  @SINK@
  for (int place = threadIdx.x; place < @WIDTH@; place += 32) {
    float sum = 0.0f;
    for (long long split = 0; split < splits; ++split) {
      const float* part = found + split * (@WIDTH@ + 2);
      sum += part[2 + place] * (part[0] == top ? 1.0f : expf(part[0] - top));
    }
    out[batch * o_batch + head * o_head + row * o_row + place] =
      ort_store<@T@>::of(total == 0.0f ? (@HIDDEN@) : sum * scaled / total);
  }
}
"""


def _join(builder: ProgramBuilder, form: FewRows, parts: TensorView, out: TensorView) -> None:
    batch, heads, rows, splits, _ = parts.shape
    texts = {
        "WALK": walk(Worker.WARP, "query", "count"), "SINK": _sink_text(form),
        "HIDDEN": _hidden(form), "T": STORAGE[out.dtype],
        "S": "float" if form.sink is None else STORAGE[form.sink.dtype], "WIDTH": str(out.shape[3]),
    }  # fmt: skip
    kernel = template("join_few_rows", _JOIN_PARAMETERS, _JOIN, texts)
    operands = [parts] if form.sink is None else [parts, form.sink]
    sizes = numbers(heads, rows, form.columns, splits, *out.strides[:3], batch * heads * rows)
    arguments = (*pointers(parts, form.sink or parts, out), *sizes)
    builder.add(launched(kernel, blocks_for(batch * heads * rows, WARPS), (32, WARPS, 1), arguments, operands, [out]))
