"""The table: which operators have a body, and who writes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ort_core.ir.model import Function
from ort_core.ir.nodes import Node
from ort_core.ir.rejection import Rejection
from ort_core.ir.types import ValueType
from ort_core.ops.bodies import (
    activations,
    attention_operators,
    block_quantized,
    convolution,
    embedding,
    experts,
    grouped_attention,
    normalization,
    products,
    quantization,
    rotary,
    tensors,
)
from ort_core.ops.bodies.writer import OLDEST_OPSET, BodyWriter, NoBody
from ort_core.ops.schema import BodyBuilder, OpSchema

Write = Callable[[BodyWriter], activations.Results]

MICROSOFT: Mapping[str, Write] = {
    "Attention": attention_operators.attention,
    "BiasAdd": activations.bias_add,
    "BiasDropout": tensors.bias_dropout,
    "BiasGelu": activations.bias_gelu,
    "BiasSoftmax": activations.bias_softmax,
    "BiasSplitGelu": activations.bias_split_gelu,
    "BranchwiseRMSNorm": normalization.branchwise_rms_norm,
    "CDist": tensors.pairwise_distance,
    "ComplexMul": tensors.complex_mul,
    "ComplexMulConj": tensors.complex_mul_conj,
    "DequantizeLinear": quantization.dequantize_linear,
    "DynamicQuantizeMatMul": quantization.dynamic_quantize_matmul,
    "EmbedLayerNormalization": embedding.embed_layer_normalization,
    "ExpandDims": tensors.expand_dims,
    "FastGelu": activations.fast_gelu,
    "FusedConv": convolution.fused_conv,
    "FusedGemm": products.fused_gemm,
    "FusedMatMul": products.fused_matmul,
    "FusedMatMulActivation": products.fused_matmul_activation,
    "GatedRMSNorm": normalization.gated_rms_norm,
    "GatherBlockQuantized": block_quantized.gather_block_quantized,
    "GatherND": tensors.gather_nd,
    "Gelu": activations.gelu,
    "GemmFastGelu": products.gemm_fast_gelu,
    "GroupNorm": normalization.group_norm,
    "GroupQueryAttention": grouped_attention.group_query_attention,
    "MatMulBnb4": block_quantized.matmul_bnb4,
    "MatMulInteger16": products.matmul_integer16,
    "MatMulIntegerToFloat": quantization.matmul_integer_to_float,
    "MatMulNBits": block_quantized.matmul_n_bits,
    "MoE": experts.mixture_of_experts,
    "MulInteger": quantization.mul_integer,
    "MultiHeadAttention": attention_operators.multi_head_attention,
    "NhwcConv": convolution.nhwc_conv,
    "NhwcFusedConv": convolution.nhwc_fused_conv,
    "NhwcMaxPool": convolution.nhwc_max_pool,
    "Pad": tensors.pad,
    "QAttention": attention_operators.quantized_attention,
    "QGemm": quantization.quantized_gemm,
    "QLinearAdd": quantization.qlinear_add,
    "QLinearAveragePool": quantization.qlinear_average_pool,
    "QLinearConcat": quantization.qlinear_concat,
    "QLinearConv": convolution.qlinear_conv,
    "QLinearGlobalAveragePool": quantization.qlinear_global_average_pool,
    "QLinearLeakyRelu": quantization.qlinear_leaky_relu,
    "QLinearMul": quantization.qlinear_mul,
    "QLinearReduceMean": quantization.qlinear_reduce_mean,
    "QLinearSigmoid": quantization.qlinear_sigmoid,
    "QLinearSoftmax": quantization.qlinear_softmax,
    "QLinearWhere": quantization.qlinear_where,
    "QMoE": experts.quantized_mixture_of_experts,
    "QuantizeLinear": quantization.quantize_linear,
    "QuickGelu": activations.quick_gelu,
    "Range": tensors.arithmetic_range,
    "ReduceSumInteger": quantization.reduce_sum_integer,
    "RotaryEmbedding": rotary.rotary_embedding,
    "SampleOp": tensors.sample_op,
    "ScaledSiLU": activations.scaled_silu,
    "SkipGroupNorm": normalization.skip_group_norm,
    "SkipLayerNormalization": normalization.skip_layer_normalization,
    "SkipSimplifiedLayerNormalization": normalization.skip_simplified_layer_normalization,
    "TorchEmbedding": tensors.torch_embedding,
    "TransposeMatMul": products.fused_matmul,
    "Trilu": tensors.trilu,
}
"""Bodies of operators of com.microsoft."""
EXPERIMENTAL: Mapping[str, Write] = {
    "SimplifiedLayerNormalization": normalization.simplified_layer_normalization,
}
"""Bodies of operators that onnxruntime adds to ai.onnx."""
_BY_DOMAIN = {"com.microsoft": MICROSOFT, "": EXPERIMENTAL}


def find_body(schema: OpSchema) -> BodyBuilder | None:
    """Return what builds the bodies of an operator, ``None`` where it is no composition."""
    write = _BY_DOMAIN.get(schema.domain, {}).get(schema.op_type)
    if write is None:
        return None

    def build(
        node: Node, input_types: Sequence[ValueType | None], opset: int, imports: Mapping[str, int]
    ) -> Function | Rejection:
        own = imports.get("", 0)
        if own < OLDEST_OPSET:
            return Rejection(
                f"{node.qualified_name} has a body from opset {OLDEST_OPSET} on, the model has {own}", node
            )
        try:
            return _written(write, BodyWriter(node, input_types, schema, own))
        except NoBody as reason:
            return Rejection(str(reason), node)

    return build


def _written(write: Write, writer: BodyWriter) -> Function:
    node = writer.node
    results = write(writer)
    outputs = []
    for index, wanted in enumerate(node.outputs):
        result = results[index] if index < len(results) else None
        if result is None and wanted is not None:
            raise NoBody(f"output {index} of {node.op_type} has no body")
        outputs.append(results[0] if result is None else result)  # an absent one: nobody reads it
    writer.graph.set_outputs([value for value in outputs if value is not None])
    return Function(node.domain, node.op_type, "", writer.graph, opset_imports={"": writer.opset})
