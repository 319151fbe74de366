"""Products of matrices on tensor cores, written here: tiles of 64 x 64 results whose factors are unpacked as they load.

Four warps share a tile; each takes 32 x 32 results by the warp-wide product of 16 x 8 results (PTX ISA,
``mma.sync``): sixteen 16-bit floats, or thirty-two bytes, at once. Factors lie in shared memory as words, the right one
by columns, a row of 16 words followed by four more so that the lanes of a warp read from all banks. Devices before
sm_80 have smaller such products; those without the type, and the emulation, compute the same from words that lanes hand
one another, bytes by ``dp4a`` where it is (sm_61).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ort_ep_cuda.lowering.program import Kernel
from ort_ep_cuda.lowering.writing.writer import Worker, template, walk

TILE = 64  # rows and columns of a block's results
THREADS = 128

FUNCTIONS = """
#ifndef ORT_TENSOR_CORES
#define ORT_TENSOR_CORES
template <typename T> struct ort_pair {
  static __device__ __forceinline__ float dot(unsigned int a, unsigned int b, float sum) {
    T x[2], y[2];
    #pragma unroll
    for (int j = 0; j < 2; ++j) {
      x[j].bits = (unsigned short)(a >> (16 * j));
      y[j].bits = (unsigned short)(b >> (16 * j));
      sum += ort_load(x[j]) * ort_load(y[j]);
    }
    return sum;
  }
};
template <bool IS_SIGNED> __device__ __forceinline__ int ort_byte(unsigned int word, int j) {
  const int code = (int)((word >> (8 * j)) & 255u);
  return IS_SIGNED ? (code ^ 128) - 128 : code;
}
template <bool A, bool B> struct ort_bytes {
  static __device__ __forceinline__ int dot(unsigned int a, unsigned int b, int sum) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 610
    if (A && B) asm("dp4a.s32.s32 %0, %1, %2, %0;" : "+r"(sum) : "r"(a), "r"(b));
    if (A && !B) asm("dp4a.s32.u32 %0, %1, %2, %0;" : "+r"(sum) : "r"(a), "r"(b));
    if (!A && B) asm("dp4a.u32.s32 %0, %1, %2, %0;" : "+r"(sum) : "r"(a), "r"(b));
    if (!A && !B) asm("dp4a.u32.u32 %0, %1, %2, %0;" : "+r"(sum) : "r"(a), "r"(b));
    return sum;
#else
    unsigned int total = (unsigned int)sum;
    #pragma unroll
    for (int j = 0; j < 4; ++j) total += (unsigned int)(ort_byte<A>(a, j) * ort_byte<B>(b, j));
    return (int)total;
#endif
  }
};
template <typename DOT, typename T>
__device__ __forceinline__ void ort_tile_by_lanes(
    T (&sums)[4], const unsigned int (&a)[4], const unsigned int (&b)[2]) {
  const int lane = threadIdx.x % 32, group = lane / 4 * 4, first = lane % 4 * 2;
  #pragma unroll
  for (int place = 0; place < 8; ++place)
    #pragma unroll
    for (int j = 0; j < 2; ++j) {
      const unsigned int column = __shfl_sync(0xffffffffu, b[place / 4], (first + j) * 4 + place % 4);
      #pragma unroll
      for (int i = 0; i < 2; ++i) {
        const unsigned int row = __shfl_sync(0xffffffffu, a[place / 4 * 2 + i], group + place % 4);
        sums[i * 2 + j] = DOT::dot(row, column, sums[i * 2 + j]);
      }
    }
}
#define ORT_MMA_OF_4(form, out) \\
  asm volatile("mma.sync.aligned." form " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" \\
    : out(sums[0]), out(sums[1]), out(sums[2]), out(sums[3]) \\
    : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
__device__ __forceinline__ void ort_tile(
    ort_half, float (&sums)[4], const unsigned int (&a)[4], const unsigned int (&b)[2]) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  ORT_MMA_OF_4("m16n8k16.row.col.f32.f16.f16.f32", "+f");
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 750
  #pragma unroll
  for (int half = 0; half < 2; ++half)
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[2 * half]), "r"(a[2 * half + 1]), "r"(b[half]));
#else
  ort_tile_by_lanes<ort_pair<ort_half>>(sums, a, b);
#endif
}
__device__ __forceinline__ void ort_tile(
    ort_bfloat, float (&sums)[4], const unsigned int (&a)[4], const unsigned int (&b)[2]) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  ORT_MMA_OF_4("m16n8k16.row.col.f32.bf16.bf16.f32", "+f");
#else
  ort_tile_by_lanes<ort_pair<ort_bfloat>>(sums, a, b);
#endif
}
#define ORT_MMA_OF_BYTES(A, B, types) \\
  __device__ __forceinline__ void ort_tile( \\
      ort_bytes<A, B>, int (&sums)[4], const unsigned int (&a)[4], const unsigned int (&b)[2]) { \\
    ORT_MMA_BODY(A, B, types) \\
  }
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define ORT_MMA_BODY(A, B, types) ORT_MMA_OF_4("m16n8k32.row.col.s32." types ".s32", "+r");
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 750
#define ORT_MMA_BODY(A, B, types) \\
  _Pragma("unroll") \\
  for (int half = 0; half < 2; ++half) \\
    _Pragma("unroll") \\
    for (int i = 0; i < 2; ++i) \\
      asm volatile("mma.sync.aligned.m8n8k16.row.col.s32." types ".s32 {%0,%1}, {%2}, {%3}, {%0,%1};" \\
        : "+r"(sums[2 * i]), "+r"(sums[2 * i + 1]) : "r"(a[2 * half + i]), "r"(b[half]));
#else
#define ORT_MMA_BODY(A, B, types) ort_tile_by_lanes<ort_bytes<A, B>>(sums, a, b);
#endif
ORT_MMA_OF_BYTES(true, true, "s8.s8")
ORT_MMA_OF_BYTES(true, false, "s8.u8")
ORT_MMA_OF_BYTES(false, true, "u8.s8")
ORT_MMA_OF_BYTES(false, false, "u8.u8")
#endif
"""

_BODY = """
alignas(16) __shared__ unsigned int tile_a[64][20];
alignas(16) __shared__ unsigned int tile_b[64][20];
const int lane = threadIdx.x % 32, group = lane / 4, place = lane % 4;
const int warp_row = threadIdx.x / 64 * 32, warp_column = threadIdx.x / 32 % 2 * 32;
@TILES@
  const long long across = (columns + 63) / 64, down = (rows + 63) / 64;
  const long long column0 = tile % across * 64, row0 = tile / across % down * 64, batch = tile / across / down;
  @SUM@ sums[2][4][4];
  #pragma unroll
  for (int i = 0; i < 2; ++i)
    #pragma unroll
    for (int j = 0; j < 4; ++j)
      #pragma unroll
      for (int n = 0; n < 4; ++n) sums[i][j][n] = 0;
  @BEFORE@
  for (long long first = 0; first < inner; first += @DEPTH@) {
    @LOAD_A@
    @LOAD_B@
    __syncthreads();
    #pragma unroll
    for (int step = 0; step < 16; step += 8) {
      unsigned int left[2][4], right[4][2];
      #pragma unroll
      for (int i = 0; i < 2; ++i)
        #pragma unroll
        for (int n = 0; n < 4; ++n)
          left[i][n] = tile_a[warp_row + 16 * i + group + n % 2 * 8][step + place + n / 2 * 4];
      #pragma unroll
      for (int j = 0; j < 4; ++j)
        #pragma unroll
        for (int n = 0; n < 2; ++n) right[j][n] = tile_b[warp_column + 8 * j + group][step + place + n * 4];
      #pragma unroll
      for (int i = 0; i < 2; ++i)
        #pragma unroll
        for (int j = 0; j < 4; ++j) ort_tile(@KIND@(), sums[i][j], left[i], right[j]);
      @STEP@
    }
    __syncthreads();
  }
  @BEHIND@
  #pragma unroll
  for (int i = 0; i < 2; ++i)
    #pragma unroll
    for (int j = 0; j < 4; ++j)
      #pragma unroll
      for (int n = 0; n < 4; ++n) {
        const long long row = row0 + warp_row + 16 * i + group + n / 2 * 8;
        const long long column = column0 + warp_column + 8 * j + place * 2 + n % 2;
        if (row < rows && column < columns) out[(batch * rows + row) * columns + column] = @RESULT@;
      }
}
"""


def tiled_product(prefix: str, parameters: str, texts: Mapping[str, str]) -> Kernel:
    """Return a kernel of 128 threads for each of ``tiles`` tiles of ``[batch, rows, columns]``, sums over ``inner``.

    Args:
        prefix: how its name begins.
        parameters: with ``out``, and ``rows``, ``columns``, ``inner``, ``tiles`` as ``long long``.
        texts: ``LOAD_A``, ``LOAD_B``: lines by which all threads store ``DEPTH`` elements from ``first`` on of 64 rows
            from ``row0`` and 64 columns from ``column0`` as words, nothing as zeros; ``KIND`` what ``ort_tile`` takes,
            ``SUM`` the type of sums, ``RESULT`` what is stored of ``sums[i][j][n]``; ``BEFORE``, ``STEP`` and
            ``BEHIND`` stand around (empty: nothing).
    """
    given = {"BEFORE": "", "STEP": "", "BEHIND": "", "TILES": walk(Worker.BLOCK, "tile", "tiles"), **texts}
    kernel = template(prefix, parameters, _BODY, given)
    return replace(kernel, source=FUNCTIONS + kernel.source)
