"""Which rule lowers which operator: one literal table."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.rules.convolutions import convolution, pooling
from ort_core.cpu.lowering.rules.dynamic_quantization import dynamic_quantize_linear
from ort_core.cpu.lowering.rules.elementwise import elementwise
from ort_core.cpu.lowering.rules.indexing import gather
from ort_core.cpu.lowering.rules.integer_convolutions import integer_convolution, qlinear_convolution
from ort_core.cpu.lowering.rules.integer_products import (
    matmul_integer,
    matmul_integer_to_float,
    qlinear_matmul,
    quantized_gemm,
)
from ort_core.cpu.lowering.rules.nbits_products import matmul_nbits
from ort_core.cpu.lowering.rules.products import gemm, matmul
from ort_core.cpu.lowering.rules.quantization import dequantize_linear, quantize_linear
from ort_core.cpu.lowering.rules.quantized_elementwise import quantized_concat, quantized_elementwise
from ort_core.cpu.lowering.rules.rows import instance_normalization, layer_normalization, reduce, softmax
from ort_core.cpu.lowering.rules.views import concat, expand, identity, reshape, slice_, split, transpose
from ort_core.plugin.ir import Node
from ort_core.plugin.loops import MEANINGS

Rule = Callable[[Lowering, Node], None]

RULES: Mapping[tuple[str, str], Rule] = {
    **dict.fromkeys(MEANINGS, elementwise),
    ("", "Identity"): identity, ("", "Reshape"): reshape, ("", "Flatten"): reshape, ("", "Squeeze"): reshape,
    ("", "Unsqueeze"): reshape, ("", "Transpose"): transpose, ("", "Expand"): expand, ("", "Slice"): slice_,
    ("", "Split"): split, ("", "Concat"): concat, ("", "Gather"): gather,
    ("", "Softmax"): softmax, ("", "LogSoftmax"): softmax, ("", "LayerNormalization"): layer_normalization,
    ("", "InstanceNormalization"): instance_normalization,
    ("", "RMSNormalization"): layer_normalization, ("", "SimplifiedLayerNormalization"): layer_normalization,
    ("com.microsoft", "SkipLayerNormalization"): layer_normalization,
    ("com.microsoft", "SkipSimplifiedLayerNormalization"): layer_normalization,
    **{("", name): reduce for name in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceSumSquare",
                                       "ReduceL1", "ReduceL2", "GlobalAveragePool")},
    ("", "Conv"): convolution,
    **{("", name): pooling for name in ("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool")},
    ("", "MatMul"): matmul, ("com.microsoft", "FusedMatMul"): matmul, ("", "Gemm"): gemm,
    ("", "MatMulInteger"): matmul_integer, ("com.microsoft", "MatMulIntegerToFloat"): matmul_integer_to_float,
    ("", "QLinearMatMul"): qlinear_matmul, ("com.microsoft", "QGemm"): quantized_gemm,
    **{("com.microsoft", name): quantized_elementwise for name in ("QLinearAdd", "QLinearMul", "QLinearLeakyRelu",
                                                                   "QLinearSigmoid")},
    ("com.microsoft", "QLinearConcat"): quantized_concat, ("com.microsoft", "MatMulNBits"): matmul_nbits,
    ("", "DynamicQuantizeLinear"): dynamic_quantize_linear,
    ("", "QLinearConv"): qlinear_convolution, ("", "ConvInteger"): integer_convolution,
    ("", "QuantizeLinear"): quantize_linear, ("com.microsoft", "QuantizeLinear"): quantize_linear,
    ("", "DequantizeLinear"): dequantize_linear, ("com.microsoft", "DequantizeLinear"): dequantize_linear,
}  # fmt: skip

NARROW = frozenset(
    {
        "Concat", "ConvInteger", "DequantizeLinear", "DynamicQuantizeLinear", "Expand", "Flatten", "Gather", "Identity",
        "MatMulInteger", "MatMulIntegerToFloat", "MatMulNBits", "MaxPool", "QGemm", "QLinearAdd", "QLinearConcat",
        "QLinearConv", "QLinearLeakyRelu", "QLinearMatMul", "QLinearMul", "QLinearSigmoid", "QuantizeLinear", "Reshape",
        "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze",
    }
)  # fmt: skip
"""Operators whose rules also take integers of 8 and 16 bits."""
