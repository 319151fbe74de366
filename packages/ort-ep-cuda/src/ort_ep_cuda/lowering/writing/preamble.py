"""The text before every kernel: 16-bit floats, which are computed in float32, and the check of indices.

No header is included, so that NVRTC needs no folder of the toolkit, and a C++ compiler can run the same text.
"""

from __future__ import annotations

from ort_core.plugin.ir import DataType
from ort_core.plugin.loops import PREAMBLE as LOOP_PREAMBLE

NARROW = {
    DataType.INT4: "ort_int4", DataType.UINT4: "ort_uint4",
    DataType.FLOAT8E4M3FN: "ort_e4m3", DataType.FLOAT8E5M2: "ort_e5m2",
    DataType.FLOAT8E4M3FNUZ: "ort_e4m3_unsigned_zero", DataType.FLOAT8E5M2FNUZ: "ort_e5m2_unsigned_zero",
}  # fmt: skip
"""Types of weights, a byte for each element: DequantizeLinear reads them, nothing is computed in them."""

STORAGE = {
    **NARROW,
    DataType.FLOAT: "float", DataType.DOUBLE: "double", DataType.INT32: "int", DataType.INT64: "long long",
    DataType.BOOL: "bool", DataType.UINT8: "unsigned char", DataType.INT8: "signed char",
    DataType.FLOAT16: "ort_half", DataType.BFLOAT16: "ort_bfloat",
}  # fmt: skip
"""How elements lie in memory."""

COMPUTED = frozenset(STORAGE) - frozenset(NARROW)
"""The element types of this provider."""

PREAMBLE = (
    LOOP_PREAMBLE
    + """\
template <typename T, int COUNT> struct alignas(sizeof(T) * COUNT) ort_chunk { T elements[COUNT]; };
struct ort_half { unsigned short bits; };
struct ort_bfloat { unsigned short bits; };
template <typename T> __device__ __forceinline__ T ort_load(T v) { return v; }
__device__ __forceinline__ float ort_load(ort_bfloat v) { return __int_as_float((int)((unsigned int)v.bits << 16)); }
__device__ __forceinline__ float ort_load(ort_half v) {
#if defined(__CUDA_ARCH__)
  float r; asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(v.bits)); return r;
#else
  const int sign = (v.bits & 0x8000) << 16, rest = (v.bits & 0x7fff) << 13;
  if (rest >= 0x0f800000) return __int_as_float(sign | rest | 0x7f800000);
  return __int_as_float(sign | __float_as_int(__int_as_float(rest) * __int_as_float(0x77800000)));
#endif
}
template <typename T> struct ort_store { template <typename V> static __device__ T of(V v) { return (T)v; } };
template <> struct ort_store<ort_bfloat> {
  static __device__ ort_bfloat of(float v) {
    const unsigned int u = (unsigned int)__float_as_int(v);
    ort_bfloat r;
    if ((u & 0x7fffffffu) > 0x7f800000u) r.bits = (unsigned short)((u >> 16) | 0x40u);
    else r.bits = (unsigned short)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
    return r;
  }
};
template <> struct ort_store<ort_half> {
  static __device__ ort_half of(float v) {
    ort_half r;
#if defined(__CUDA_ARCH__)
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r.bits) : "f"(v));
#else
    const unsigned int u = (unsigned int)__float_as_int(v), sign = (u >> 16) & 0x8000u;
    unsigned int a = u & 0x7fffffffu;
    if (a > 0x7f800000u) a = 0x7e00u;
    else if (a >= 0x477ff000u) a = 0x7c00u;
    else if (a < 0x38800000u) a = (unsigned int)__float_as_int(__int_as_float((int)a) + 0.5f) - 0x3f000000u;
    else a = (a + 0xc8000fffu + ((a >> 13) & 1u)) >> 13;
    r.bits = (unsigned short)(sign | a);
#endif
    return r;
  }
};
struct ort_int4 { unsigned char bits; };
struct ort_uint4 { unsigned char bits; };
struct ort_e4m3 { unsigned char bits; };
struct ort_e5m2 { unsigned char bits; };
struct ort_e4m3_unsigned_zero { unsigned char bits; };
struct ort_e5m2_unsigned_zero { unsigned char bits; };
__device__ __forceinline__ int ort_load(ort_int4 v) { return ((v.bits & 15) ^ 8) - 8; }
__device__ __forceinline__ int ort_load(ort_uint4 v) { return v.bits & 15; }
template <int MANTISSA, int BIAS> __device__ __forceinline__ float ort_of_byte(unsigned char bits) {
  const int sign = (bits & 0x80) << 24, rest = bits & 0x7f;
  const float magnitude = __int_as_float((rest << (23 - MANTISSA)) + ((127 - BIAS) << 23));
  const float least = __int_as_float((128 - BIAS) << 23);  // what a number below it has is its mantissa alone
  const float found = rest >> MANTISSA ? magnitude : (float)rest * least / (float)(1 << MANTISSA);
  return __int_as_float(sign | __float_as_int(found));
}
__device__ __forceinline__ float ort_load(ort_e4m3 v) {
  return (v.bits & 0x7f) == 0x7f ? __int_as_float(0x7fc00000) : ort_of_byte<3, 7>(v.bits);
}
__device__ __forceinline__ float ort_load(ort_e5m2 v) {
  ort_half half; half.bits = (unsigned short)(v.bits << 8); return ort_load(half);
}
__device__ __forceinline__ float ort_load(ort_e4m3_unsigned_zero v) {
  return v.bits == 0x80 ? __int_as_float(0x7fc00000) : ort_of_byte<3, 8>(v.bits);
}
__device__ __forceinline__ float ort_load(ort_e5m2_unsigned_zero v) {
  return v.bits == 0x80 ? __int_as_float(0x7fc00000) : ort_of_byte<2, 16>(v.bits);
}
__device__ __forceinline__ long long ort_index(long long index, long long size, int* status, int node) {
  const long long found = index < 0 ? index + size : index;
  if (found >= 0 && found < size) return found;
  *status = node;
  return 0;
}
"""
)
"""Device functions of all kernels. ``ort_chunk`` is read at once: at most 16 bytes.
``ort_index`` counts negative indices from the end; it notes one that is outside."""


def compute_type(dtype: DataType) -> DataType:
    """Return the type in which elements are computed: float32 for floats of 16 and 8 bits, int32 for integers of 4."""
    if dtype in (DataType.INT4, DataType.UINT4):
        return DataType.INT32
    return DataType.FLOAT if dtype in NARROW or dtype in (DataType.FLOAT16, DataType.BFLOAT16) else dtype
