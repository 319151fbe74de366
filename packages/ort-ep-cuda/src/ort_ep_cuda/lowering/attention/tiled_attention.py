"""Attention of many queries in one kernel that never stores the scores: tiles of 32 queries by 32 keys, in float32.

A block takes 32 queries of one head, a warp eight of them. Of each tile of keys a lane takes one key: its scores with
the warp's queries are capped and masked, the largest and the sum of each query are kept and raised as scores come
(online softmax, Milakov and Gimelshein 2018), and the weights meet the values in shared memory. That serves what no
library takes: float32 with bounded scores or with masks, and 16-bit floats with masks of more digits.
"""

from __future__ import annotations

from ort_core.plugin.ir import DataType
from ort_ep_cuda.lowering.attention.few_row_attention import TYPES, FewRows
from ort_ep_cuda.lowering.builder import ProgramBuilder
from ort_ep_cuda.lowering.values.growing import grows
from ort_ep_cuda.lowering.values.views import TensorView
from ort_ep_cuda.lowering.writing.preamble import STORAGE
from ort_ep_cuda.lowering.writing.writer import Worker, blocks_for, launched, numbers, pointers, template, walk

TILE = 32  # queries of a block, and keys at once
THREADS = 128
MAXIMUM_SIZE = 128  # elements of a head: queries and one tile of keys or values lie in 48 KiB of shared memory
LEAST_KEYS = 64  # below it scores take little memory, and products of matrices less time

_PARAMETERS = (
    "const @Q@* q, const @T@* k, const @T@* v, const @M@* mask, @T@* out, float scale, float cap, long long heads, "
    "long long group, long long rows, long long columns, long long q_batch, long long q_head, long long q_row, "
    "long long k_batch, long long k_head, long long k_row, long long v_batch, long long v_head, long long v_row, "
    "long long m_batch, long long m_head, long long m_row, long long m_column, long long o_batch, long long o_head, "
    "long long o_row, long long count"
)
_BODY = """
alignas(16) __shared__ float queries[32][@DEPTH@];
alignas(16) __shared__ float tile[32 * @STRIDE@];
alignas(16) __shared__ float shares[4][8][32];
const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
const float lowest = -__int_as_float(0x7f800000);
@WALK@
  const long long down = (rows + 31) / 32;
  const long long row0 = piece % down * 32, head = piece / down % heads, batch = piece / down / heads;
  const @Q@* wanted = q + batch * q_batch + head * q_head;
  const @T@* keys = k + batch * k_batch + head / group * k_head;
  const @T@* values = v + batch * v_batch + head / group * v_head;
  #pragma unroll 2
  for (int place = threadIdx.x; place < 32 * @DEPTH@; place += 128) {
    const int r = place / @DEPTH@, e = place % @DEPTH@;
    queries[r][e] = row0 + r < rows && e < @SIZE@ ? ort_load(wanted[(row0 + r) * q_row + e]) * scale : 0.0f;
  }
  float top[8], total[8], sums[8][@VN@];
  #pragma unroll
  for (int r = 0; r < 8; ++r) {
    top[r] = lowest; total[r] = 0.0f;
    #pragma unroll
    for (int c = 0; c < @VN@; ++c) sums[r][c] = 0.0f;
  }
  const long long last = @LAST@;
  for (long long first = 0; first < last; first += 32) {
    __syncthreads();
    #pragma unroll 2
    for (int place = threadIdx.x; place < 32 * @DEPTH@; place += 128) {
      const int r = place / @DEPTH@, e = place % @DEPTH@;
      tile[r * @PITCH@ + e] = first + r < columns && e < @SIZE@ ? ort_load(keys[(first + r) * k_row + e]) : 0.0f;
    }
    __syncthreads();
    float scores[8];
    #pragma unroll
    for (int r = 0; r < 8; ++r) scores[r] = 0.0f;
    #pragma unroll 1
    for (int e = 0; e < @DEPTH@; e += 4) {
      const ort_chunk<float, 4> key = *(const ort_chunk<float, 4>*)&tile[lane * @PITCH@ + e];
      #pragma unroll
      for (int r = 0; r < 8; ++r) {
        const ort_chunk<float, 4> query = *(const ort_chunk<float, 4>*)&queries[warp * 8 + r][e];
        #pragma unroll
        for (int n = 0; n < 4; ++n) scores[r] += query.elements[n] * key.elements[n];
      }
    }
    const long long column = first + lane;
    #pragma unroll
    for (int r = 0; r < 8; ++r) {
      const long long row = row0 + warp * 8 + r;
      float score = scores[r];
      if (row < rows && column < columns@CAUSAL@) {
        @CAP@
        @MASK@
      } else {
        score = lowest;
      }
      float higher = score;
      #pragma unroll
      for (int step = 16; step > 0; step /= 2) higher = fmaxf(higher, __shfl_xor_sync(0xffffffffu, higher, step));
      higher = fmaxf(higher, top[r]);
      const float weight = score == lowest ? 0.0f : expf(score - higher);
      const float before = top[r] == higher ? 1.0f : expf(top[r] - higher);
      float sum = weight;
      #pragma unroll
      for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
      total[r] = total[r] * before + sum;
      top[r] = higher;
      #pragma unroll
      for (int c = 0; c < @VN@; ++c) sums[r][c] *= before;
      shares[warp][r][lane] = weight;
    }
    __syncthreads();
    #pragma unroll 2
    for (int place = threadIdx.x; place < 32 * 32 * @VN@; place += 128) {
      const int r = place / (32 * @VN@), e = place % (32 * @VN@);
      tile[place] = first + r < columns && e < @WIDTH@ ? ort_load(values[(first + r) * v_row + e]) : 0.0f;
    }
    __syncthreads();
    #pragma unroll 1
    for (int j = 0; j < 32; j += 4) {
      #pragma unroll
      for (int c = 0; c < @VN@; ++c) {
        float value[4];
        #pragma unroll
        for (int n = 0; n < 4; ++n) value[n] = tile[(j + n) * 32 * @VN@ + lane + 32 * c];
        #pragma unroll
        for (int r = 0; r < 8; ++r) {
          const ort_chunk<float, 4> share = *(const ort_chunk<float, 4>*)&shares[warp][r][j];
          #pragma unroll
          for (int n = 0; n < 4; ++n) sums[r][c] += share.elements[n] * value[n];
        }
      }
    }
  }
  #pragma unroll
  for (int r = 0; r < 8; ++r)
    #pragma unroll
    for (int c = 0; c < @VN@; ++c) {
      const long long row = row0 + warp * 8 + r;
      const int e = lane + 32 * c;
      if (row < rows && e < @WIDTH@)
        out[batch * o_batch + head * o_head + row * o_row + e] =
          ort_store<@T@>::of(total[r] == 0.0f ? (@HIDDEN@) : sums[r][c] / total[r]);
    }
  __syncthreads();
}
"""


def takes_tiles(q: TensorView, k: TensorView, v: TensorView, *, is_bounded: bool) -> bool:
    """Return whether the kernel attends with these operands, whose scores are capped or masked (``is_bounded``)."""
    size, width, columns = q.shape[3], v.shape[3], k.shape[2]
    if not is_bounded or any(grows(number) for number in (size, width, columns)) or columns < LEAST_KEYS:
        return False
    is_dense = all(view.strides[3] == 1 or view.shape[3] == 1 for view in (q, k, v))
    fits = 0 < size <= MAXIMUM_SIZE and 0 < width <= MAXIMUM_SIZE
    return is_dense and fits and {q.dtype, k.dtype, v.dtype} <= TYPES


def attend_in_tiles(builder: ProgramBuilder, form: FewRows, out: TensorView) -> None:
    """Store the attention in a view ``[batch, heads, rows, size]`` whose elements of a head lie side by side."""
    batch, heads, rows, size = form.q.shape
    width, mask = form.v.shape[3], form.mask
    depth, across = -(-size // 4) * 4, -(-width // 32)
    causal = " && column <= row" if form.is_causal else ""
    texts = {
        "WALK": walk(Worker.BLOCK, "piece", "count"), "CAUSAL": causal,
        "LAST": "row0 + 32 < columns ? row0 + 32 : columns" if form.is_causal else "columns",
        "CAP": "score = cap * tanhf(score / cap);" if form.cap else "", "MASK": _mask_text(mask),
        "HIDDEN": "columns ? __int_as_float(0x7fc00000) : 0.0f" if form.is_hidden_nan else "0.0f",
        "Q": STORAGE[form.q.dtype], "T": STORAGE[out.dtype], "M": "bool" if mask is None else STORAGE[mask.dtype],
        "SIZE": str(size), "WIDTH": str(width), "DEPTH": str(depth), "PITCH": str(depth + 4), "VN": str(across),
        "STRIDE": str(max(depth + 4, 32 * across)),
    }  # fmt: skip
    kernel = template("attend_tiles", _PARAMETERS, _BODY, texts)
    unread = form.q  # stands where there is nothing to read
    steps = (0,) * 4 if mask is None else mask.broadcast_to((batch, heads, rows, form.columns)).strides
    count = batch * heads * ((rows + TILE - 1) // TILE)
    sizes = numbers(
        heads, heads // form.k.shape[1], rows, form.columns, *form.q.strides[:3], *form.k.strides[:3],
        *form.v.strides[:3], *steps, *out.strides[:3], count,
    )  # fmt: skip
    factors = (DataType.FLOAT.numpy.type(form.scale), DataType.FLOAT.numpy.type(form.cap))
    arguments = (*pointers(form.q, form.k, form.v, mask or unread, out), *factors, *sizes)
    reads = [form.q, form.k, form.v, *([] if mask is None else [mask])]
    builder.add(launched(kernel, blocks_for(count), (THREADS, 1, 1), arguments, reads, [out]))


def _mask_text(mask: TensorView | None) -> str:
    if mask is None:
        return ""
    place = "mask[batch * m_batch + head * m_head + row * m_row + column * m_column]"
    return f"if (!{place}) score = lowest;" if mask.dtype is DataType.BOOL else f"score += ort_load({place});"
