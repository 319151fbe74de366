"""The text before every kernel: 16-bit floats, which are computed in float32, and the check of indices.

No header is included, so that NVRTC needs no folder of the toolkit, and a C++ compiler can run the same text.
"""

from __future__ import annotations

from ort_core.plugin.ir import DataType
from ort_core.plugin.loops import PREAMBLE as LOOP_PREAMBLE

STORAGE = {
    DataType.FLOAT: "float", DataType.DOUBLE: "double", DataType.INT32: "int", DataType.INT64: "long long",
    DataType.BOOL: "bool", DataType.UINT8: "unsigned char", DataType.INT8: "signed char",
    DataType.FLOAT16: "ort_half", DataType.BFLOAT16: "ort_bfloat",
}  # fmt: skip
"""How elements lie in memory: the element types of this provider."""

PREAMBLE = (
    LOOP_PREAMBLE
    + """\
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
__device__ __forceinline__ long long ort_index(long long index, long long size, int* status, int node) {
  const long long found = index < 0 ? index + size : index;
  if (found >= 0 && found < size) return found;
  *status = node;
  return 0;
}
"""
)
"""Device functions of all kernels. ``ort_index`` counts negative indices from the end; it notes one that is outside."""


def compute_type(dtype: DataType) -> DataType:
    """Return the type in which elements are computed: float32 for 16-bit floats, their own for others."""
    return DataType.FLOAT if dtype in (DataType.FLOAT16, DataType.BFLOAT16) else dtype
