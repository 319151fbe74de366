"""Powers of two that are rounded to bfloat16: a short polynomial between two instructions of AVX-512.

``2**x = 2**floor(x) * 2**r`` with r in [0, 1). One instruction gives r, one multiplies by the power of the whole part;
they take any x, infinities and what underflows too, so that nothing is compared.
"""

from __future__ import annotations

from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, float32

MAX_ERROR = 1.1e-4
"""The greatest relative error, a 35th of what rounding to bfloat16 may add."""

_CUBIC = (0.07826797017231392, 0.22630768227869663, 0.6954243475489894, 1.0)  # least error with p(0) = 1, p(1) = 2
_BELOW = 0b1001  # rest above the nearest integer below, no exceptions
_AS_SET = 4  # the rounding that the thread has
_LANES = 16


def rounded_power(e: Emitter, x: IRValue) -> IRValue:
    """Return ``2**x`` of a vector of 16 floats: 1 for 0, 0 for minus infinity, NaN for NaN."""
    every = IRValue("i16", "-1")
    rest = e.call(
        x.type, "llvm.x86.avx512.mask.reduce.ps.512", x, IRValue("i32", str(_BELOW)), x, every,
        IRValue("i32", str(_AS_SET)),
    )  # fmt: skip
    value = e.splat(float32(_CUBIC[0]), _LANES)
    for coefficient in _CUBIC[1:]:
        value = e.fma(value, rest, e.splat(float32(coefficient), _LANES))
    scale = "llvm.x86.avx512.mask.scalef.ps.512"
    return e.call(x.type, scale, value, x, value, every, IRValue("i32", str(_AS_SET)))
