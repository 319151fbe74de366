"""Which operator has which preconditions, by domain and name."""

from __future__ import annotations

from ort_core.kernels.preconditions import attention, layers, quantization, windows
from ort_core.kernels.preconditions.conditions import Precondition

_STANDARD: dict[str, Precondition] = {
    "Attention": attention.attention, "AveragePool": windows.pooling, "CausalConvWithState": layers.causal_convolution,
    "Col2Im": windows.columns_to_image, "Conv": windows.convolution, "ConvInteger": windows.integer_convolution,
    "ConvTranspose": windows.transposed_convolution, "DeformConv": windows.deformable_convolution,
    "GRU": layers.recurrent, "GlobalAveragePool": windows.pooling, "GlobalLpPool": windows.pooling,
    "GlobalMaxPool": windows.pooling, "LSTM": layers.recurrent, "LpPool": windows.pooling,
    "MatMulInteger": quantization.integer_product, "MaxPool": windows.pooling, "MaxUnpool": windows.unpooling,
    "QLinearConv": windows.quantized_convolution, "QLinearMatMul": quantization.quantized_product,
    "RNN": layers.recurrent, "RotaryEmbedding": attention.rotary, "TensorScatter": attention.scatter,
}  # fmt: skip
_CONTRIB: dict[str, Precondition] = {
    "Attention": attention.attention_of_com_microsoft, "AttnLSTM": layers.attention_lstm,
    "BiasGelu": layers.bias_activation, "CausalConvWithState": layers.causal_convolution_of_com_microsoft,
    "CropAndResize": layers.crop_and_resize, "DequantizeLinear": quantization.contrib_linear,
    "EmbedLayerNormalization": layers.embedding, "FastGelu": layers.bias_activation, "FusedConv": windows.convolution,
    "GatherBlockQuantized": quantization.gathered_blocks, "GridSample": layers.grid_sample,
    "GroupQueryAttention": attention.group_query, "LinearAttention": layers.linear_attention,
    "LinearAttentionGate": layers.linear_attention_gate, "MatMulNBits": quantization.n_bits_product,
    "MaxpoolWithMask": windows.pooling, "MoE": layers.mixture_of_experts, "MultiHeadAttention": attention.multi_head,
    "NhwcMaxPool": windows.pooling_channels_last, "Pad": layers.pads, "QAttention": quantization.quantized_attention,
    "QLinearAdd": quantization.quantized_binary, "QLinearAveragePool": windows.quantized_pooling,
    "QLinearGlobalAveragePool": windows.quantized_pooling, "QLinearMul": quantization.quantized_binary,
    "QLinearSigmoid": quantization.quantized_unary, "QLinearLeakyRelu": quantization.quantized_unary,
    "QLinearSoftmax": quantization.quantized_unary, "QMoE": layers.quantized_experts,
    "QuantizeLinear": quantization.contrib_linear, "RotaryEmbedding": attention.rotary_of_com_microsoft,
    "SkipLayerNormalization": layers.skip_normalization, "SkipSimplifiedLayerNormalization": layers.skip_normalization,
    "Trilu": layers.triangle, "Unique": layers.vector,
}  # fmt: skip
_ML: dict[str, Precondition] = {"Normalizer": attention.normalized_rows}
_DOMAINS = {"": _STANDARD, "com.microsoft": _CONTRIB, "ai.onnx.ml": _ML}


def find_precondition(domain: str, op_type: str) -> Precondition | None:
    """Return what an operator requires of its inputs' shapes, ``None`` where nothing is stated."""
    return _DOMAINS.get(domain, {}).get(op_type)
