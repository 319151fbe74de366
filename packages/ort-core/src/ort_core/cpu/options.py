"""Options of the CPU provider."""

from __future__ import annotations

from typing import Literal

from ort_core.plugin import frozen


@frozen
class CpuOptions:
    """Options of the CPU provider.

    Attributes:
        use_arena: as onnxruntime has it; numpy owns the memory of kernels, so it has no effect on results.
        precision: what attention, and products and convolutions with constant weights, of float32 models are computed
            in. ``bfloat16`` rounds both operands to it (to 8 significant bits: a relative error of 2**-8 each) and
            sums in float32; everything else stays float32. A processor without dot products of bfloat16, or whose are
            slower than multiply-adds of float32 (Intel's with AMX), rounds the weights of products alone.
    """

    use_arena: bool = True
    precision: Literal["float32", "bfloat16"] = "float32"
