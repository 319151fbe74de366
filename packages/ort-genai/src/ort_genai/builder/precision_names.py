"""Names of precisions and of methods that find numbers of few bits; importing them costs nothing."""

from __future__ import annotations

import enum


class Precision(enum.StrEnum):
    """Of weights, caches and what flows between nodes."""

    FP32 = "fp32"
    FP16 = "fp16"
    BF16 = "bf16"
    INT8 = "int8"
    INT4 = "int4"


class CacheType(enum.StrEnum):
    """Of keys and values that a decoder keeps."""

    FP32 = "fp32"
    FP16 = "fp16"
    BF16 = "bf16"
    INT8 = "int8"


class Method(enum.StrEnum):
    """How numbers of few bits are found.

    ``real``: zero points are floats, so that a block's least and greatest values are met exactly, and what was
    quantized so before (GGUF's Q4_1) keeps its values. The others have integer zero points: ``default`` is
    onnxruntime's rounding, ``rtn`` its tool's, ``k_quant`` searches.
    """

    REAL = "real"
    K_QUANT = "k_quant"
    RTN = "rtn"
    DEFAULT = "default"
