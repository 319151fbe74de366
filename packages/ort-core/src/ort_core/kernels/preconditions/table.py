"""Which operator has which preconditions, by domain and name."""

from __future__ import annotations

from ort_core.kernels.preconditions import (
    attention,
    layers,
    learning,
    packed,
    quantization,
    states,
    streams,
    tensors,
    windows,
)
from ort_core.kernels.preconditions.conditions import Precondition

_STANDARD: dict[str, Precondition] = {
    "AffineGrid": tensors.target_size, "Attention": attention.attention, "AveragePool": windows.pooling,
    "BatchNormalization": tensors.batch_normalization,
    "CausalConvWithState": layers.causal_convolution_with_state, "CenterCropPad": tensors.vector(1, "shape"),
    "Col2Im": windows.columns_to_image, "Compress": tensors.ranked("input", 1), "Conv": windows.convolution,
    "ConvInteger": windows.integer_convolution, "ConvTranspose": windows.transposed_convolution,
    "DeformConv": windows.deformable_convolution, "DequantizeLinear": quantization.linear,
    "QuantizeLinear": quantization.linear, "Expand": tensors.vector(1, "shape"), "GRU": layers.recurrent,
    "GlobalAveragePool": windows.pooling, "GlobalLpPool": windows.pooling, "GlobalMaxPool": windows.pooling,
    "GroupNormalization": tensors.grouped, "Hardmax": tensors.ranked("input", 1),
    "ImageDecoder": tensors.vector(0, "encoded_stream"),
    "InstanceNormalization": tensors.instance_normalization, "LRN": tensors.local_response, "LSTM": layers.recurrent,
    "LinearAttention": layers.linear_attention, "LogSoftmax": tensors.ranked("input", 1),
    "LpNormalization": tensors.ranked("input", 1), "LpPool": windows.pooling,
    "MatMulInteger": quantization.integer_product, "MaxPool": windows.pooling, "MaxUnpool": tensors.unpooling,
    "MeanVarianceNormalization": tensors.mean_variance,
    "MelWeightMatrix": tensors.singles(
        num_mel_bins=0, dft_length=1, sample_rate=2, lower_edge_hertz=3, upper_edge_hertz=4
    ),
    "OneHot": tensors.one_hot, "Slice": tensors.slice_bounds,
    "NonMaxSuppression": tensors.suppression, "Pad": tensors.pads,
    "QLinearConv": windows.quantized_convolution, "QLinearMatMul": quantization.quantized_product,
    "STFT": tensors.singles(frame_step=1, frame_length=3),
    "RNN": layers.recurrent, "Reshape": tensors.vector(1, "shape"), "RotaryEmbedding": attention.rotary,
    "Softmax": tensors.ranked("input", 1), "Split": tensors.split, "Squeeze": tensors.vector(1, "axes"),
    "EyeLike": tensors.matrix, "SwiGLU": tensors.gated,
    **dict.fromkeys((
        "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
        "ReduceSum", "ReduceSumSquare",
    ), tensors.reduced_axes),
    "TensorScatter": attention.scatter, "TfIdfVectorizer": tensors.ngrams, "TopK": tensors.top_k,
    "Trilu": layers.triangle,
    "Upsample": tensors.upsampling,
}  # fmt: skip
_CONTRIB: dict[str, Precondition] = {
    "Attention": attention.attention_of_com_microsoft, "AttnLSTM": layers.attention_lstm,
    "BiasGelu": layers.bias_activation, "BranchwiseRMSNorm": streams.normalized_branches,
    "BiasAdd": layers.bias_addition, "BiasSplitGelu": layers.split_gelu,
    "CausalConvWithState": layers.causal_convolution_of_com_microsoft,
    "ConvTransposeWithDynamicPads": windows.transposed_convolution_of_given_pads,
    "CropAndResize": tensors.region_crops,
    "DecoderMaskedMultiHeadAttention": attention.one_step,
    "DecoderMaskedSelfAttention": attention.attention_of_com_microsoft,
    "DequantizeLinear": quantization.contrib_linear,
    "DynamicQuantizeLSTM": layers.quantized_layer, "DynamicQuantizeMatMul": quantization.dynamic_product,
    "MatMulIntegerToFloat": quantization.product_to_float,
    "DynamicTimeWarping": layers.warping, "EngramGate": streams.engram_gate,
    "EmbedLayerNormalization": layers.embedding,
    "FastGelu": layers.bias_activation, "FusedConv": windows.convolution,
    "FusedMatMul": tensors.rotated_batches, "FusedMatMulActivation": tensors.rotated_batches,
    "GatedDeltaNet": states.gated_delta_network, "GatedRMSNorm": layers.gated_norm,
    "GatedRelativePositionBias": packed.gated_positions,
    "GatherBlockQuantized": quantization.gathered_blocks, "GemmFloat8": packed.small_float_product,
    "GemmaRotaryEmbedding": packed.turned_rows, "GridSample": layers.grid_sample,
    "GroupQueryAttention": attention.group_query, "LinearAttention": layers.linear_attention,
    "HyperConnectionLowRankMix": states.low_rank_streams,
    "HyperConnectionPostMix": streams.post_mix,
    "HyperConnectionPreMix": streams.pre_mix, "LinearAttentionGate": layers.linear_attention_gate,
    "MatMulBlockQuantizedFp4Weight": packed.block_scaled_product,
    "MatMulBlockQuantizedFp8Weight": packed.block_scaled_product, "MatMulNBits": quantization.n_bits_product,
    "MRotaryEmbedding": attention.multimodal_rotary, "MatMulNBitsMlp": quantization.gated_n_bits,
    "MatMulNBitsQkv": quantization.attended_n_bits, "NGramHashMapping": packed.hashes,
    "MatMulFpQ4": tensors.vector(1, "B"), "MatMulNBitsQLoRA": states.adapted_product,
    "MulInteger": quantization.integer_binary, "NGramRepeatBlock": packed.repeated_blocks,
    "PackedSparseAttentionIndexerMerge": packed.merged_selections,
    "PagedAttention": attention.paged,
    "MaxpoolWithMask": windows.masked_pooling, "MoE": layers.mixture_of_experts,
    "MultiHeadAttention": attention.multi_head,
    "NhwcConv": windows.convolution_channels_last, "NhwcFusedConv": windows.fused_convolution_channels_last,
    "NhwcMaxPool": windows.pooling_channels_last, "Pad": tensors.pads_of_com_microsoft,
    "QAttention": quantization.quantized_attention,
    "QEmbedLayerNormalization": layers.quantized_embedding,
    "QLinearAdd": quantization.quantized_binary,
    "QLinearAveragePool": windows.quantized_pooling, "QLinearConcat": quantization.quantized_concatenation,
    "QLinearGlobalAveragePool": windows.quantized_pooling,
    "QLinearLeakyRelu": quantization.quantized_unary,
    "QLinearReduceMean": quantization.quantized_mean,
    "QLinearWhere": quantization.quantized_choice, "QLinearMul": quantization.quantized_binary,
    "QLinearSigmoid": quantization.quantized_unary, "QLinearSoftmax": quantization.quantized_softmax,
    "QGemm": quantization.quantized_gemm, "QMoE": layers.quantized_experts,
    "QuantizeLinear": quantization.contrib_linear,
    "Range": tensors.singles(start=0, limit=1, delta=2),
    "RotaryEmbedding": attention.rotary_of_com_microsoft, "SkipLayerNormalization": layers.skip_normalization,
    "SparseAttention": attention.sparse,
    "SkipSimplifiedLayerNormalization": layers.skip_normalization, "Trilu": layers.triangle, "Unique": layers.vector,
    "WordConvEmbedding": layers.words_of_characters,
    "VarlenCausalConvWithState": packed.packed_convolution, "VarlenNGramHashMapping": packed.packed_hashes,
}  # fmt: skip
_ML: dict[str, Precondition] = {
    "FeatureVectorizer": learning.features, "Imputer": learning.columns, "Scaler": learning.columns,
    "Normalizer": learning.normalized_rows, "TreeEnsemble": learning.split_leaves,
    "TreeEnsembleClassifier": learning.trees, "TreeEnsembleRegressor": learning.trees,
}  # fmt: skip
_PREVIEW: dict[str, Precondition] = {"FlexAttention": attention.flexible_attention}
_DOMAINS = {"": _STANDARD, "ai.onnx.preview": _PREVIEW, "com.microsoft": _CONTRIB, "ai.onnx.ml": _ML}


_NEVER = (0, None)
_TWO_OPERANDS = ("Add", "And", "Div", "Equal", "Greater", "Less", "Mul", "Or", "Pow", "Sub", "Xor")
_EARLIER: dict[str, tuple[int, Precondition]] = {  # of versions below a number
    **dict.fromkeys(_TWO_OPERANDS, (7, tensors.fitted_operand)),
    **dict.fromkeys(("Max", "Mean", "Min", "Sum"), (8, tensors.of_one_shape)),
}
_EARLIEST_FITTING = max(version for version, _ in _EARLIER.values())


def find_precondition(domain: str, op_type: str, opset: int) -> Precondition | None:
    """Return what an operator requires of its inputs' shapes, ``None`` where nothing is stated."""
    if not domain:
        if opset < _EARLIEST_FITTING and opset < _EARLIER.get(op_type, _NEVER)[0]:
            return _EARLIER[op_type][1]
        return _STANDARD.get(op_type)
    return _DOMAINS.get(domain, {}).get(op_type)
