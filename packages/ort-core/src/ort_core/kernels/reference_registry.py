"""The reference registry: every numpy kernel of ``kernels/reference``, from one literal table of families.

A session needs the kernels of its own operators only: a family's module is imported when one of them is asked for.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

from ort_core.kernels.registry import KernelRegistry

PACKAGE = "ort_core.kernels.reference"
FAMILIES: Mapping[str, str] = {
    "attention.attention": "Attention ai.onnx.preview:FlexAttention",
    "attention.contrib_attention": (
        "com.microsoft:Attention com.microsoft:DecoderMaskedMultiHeadAttention "
        "com.microsoft:DecoderMaskedSelfAttention com.microsoft:MultiHeadAttention"
    ),
    "attention.contrib_delta_network": "com.microsoft:GatedDeltaNet",
    "attention.contrib_group_query_attention": "com.microsoft:GroupQueryAttention",
    "attention.contrib_linear_attention": (
        "com.microsoft:CausalConvWithState com.microsoft:LinearAttention com.microsoft:LinearAttentionGate"
    ),
    "attention.contrib_normalized_rotary": "com.microsoft:RMSNormRotary",
    "attention.contrib_packed_sequences": (
        "com.microsoft:PackedAttention com.microsoft:PackedMultiHeadAttention com.microsoft:RemovePadding "
        "com.microsoft:RestorePadding com.microsoft:VarlenCausalConvWithState"
    ),
    "attention.contrib_paged_attention": "com.microsoft:PagedAttention",
    "attention.contrib_quantized_attention": "com.microsoft:QAttention",
    "attention.contrib_relative_position": "com.microsoft:GatedRelativePositionBias com.microsoft:RelativePositionBias",
    "attention.contrib_rotary": (
        "com.microsoft:GemmaRotaryEmbedding com.microsoft:MRotaryEmbedding com.microsoft:RotaryEmbedding"
    ),
    "attention.contrib_sparse_attention": "com.microsoft:SparseAttention",
    "attention.contrib_state_replay": (
        "com.microsoft:ConvStateReplay com.microsoft:GatedDeltaNetStateReplay "
        "com.microsoft:PackedSparseAttentionIndexerMerge"
    ),
    "attention.contrib_state_space": "com.microsoft:Mamba2Verify",
    "attention.position_and_cache": "LinearAttention RotaryEmbedding TensorScatter",
    "elementwise.activations": (
        "Celu Elu Gelu HardSigmoid HardSwish LeakyRelu Mish PRelu Relu Selu Shrink Sigmoid Softplus Softsign SwiGLU "
        "Swish ThresholdedRelu"
    ),
    "elementwise.arithmetic": "Add BitShift Clip Div Max Mean Min Mod Mul Pow Sub Sum",
    "elementwise.cast": "BitCast Cast CastLike",
    "elementwise.contrib_activation": (
        "com.microsoft:BiasAdd com.microsoft:BiasGelu com.microsoft:BiasSoftmax com.microsoft:BiasSplitGelu "
        "com.microsoft:FastGelu com.microsoft:Gelu com.microsoft:QuickGelu com.microsoft:ScaledSiLU"
    ),
    "elementwise.cumulative": "CumProd CumSum",
    "elementwise.legacy_experimental": "Affine Crop DynamicSlice ImageScaler ParametricSoftplus Scale ScaledTanh",
    "elementwise.logic": (
        "And BitwiseAnd BitwiseOr BitwiseXor Equal Greater GreaterOrEqual Less LessOrEqual Or Where Xor"
    ),
    "elementwise.losses": "NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss",
    "elementwise.training": (
        "ai.onnx.preview.training:Adagrad ai.onnx.preview.training:Adam ai.onnx.preview.training:Gradient "
        "ai.onnx.preview.training:Momentum"
    ),
    "elementwise.unary_math": (
        "Abs Acos Acosh Asin Asinh Atan Atanh BitwiseNot Ceil Cos Cosh Erf Exp Floor IsInf IsNaN Log Neg Not "
        "Reciprocal Round Sign Sin Sinh Sqrt Tan Tanh"
    ),
    "generation.contrib_generation": (
        "com.microsoft:BeamSearch com.microsoft:GreedySearch com.microsoft:Sampling com.microsoft:WhisperBeamSearch"
    ),
    "generators.contrib_dropout": (
        "com.microsoft:BiasDropout com.microsoft:BitmaskBiasDropout com.microsoft:BitmaskDropout "
        "com.microsoft:IsAllFinite"
    ),
    "generators.dropout": "Dropout",
    "generators.generators": "Constant ConstantOfShape EyeLike Range",
    "generators.random_numbers": "Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike",
    "generators.window_functions": "BlackmanWindow HammingWindow HannWindow",
    "images.contrib_convolution": (
        "com.microsoft:ConvTransposeWithDynamicPads com.microsoft:FusedConv com.microsoft:NhwcConv "
        "com.microsoft:NhwcFusedConv com.microsoft:QLinearConv"
    ),
    "images.contrib_image": "com.microsoft:CropAndResize com.microsoft:GridSample",
    "images.contrib_pooling": (
        "com.microsoft:MaxpoolWithMask com.microsoft:NhwcMaxPool com.microsoft:QLinearAveragePool"
    ),
    "images.convolution": "CausalConvWithState Col2Im Conv ConvTranspose",
    "images.deformable": "DeformConv",
    "images.detection": "NonMaxSuppression",
    "images.grid_sample": "AffineGrid GridSample",
    "images.image_decoder": "ImageDecoder",
    "images.pooling": "AveragePool GlobalAveragePool GlobalLpPool GlobalMaxPool LpPool MaxPool MaxUnpool",
    "images.quantized_convolution": "ConvInteger QLinearConv",
    "images.regions": "MaxRoiPool RoiAlign",
    "images.resize": "Resize Upsample",
    "machine_learning.ml_features": (
        "ai.onnx.ml:ArrayFeatureExtractor ai.onnx.ml:Binarizer ai.onnx.ml:FeatureVectorizer ai.onnx.ml:Imputer "
        "ai.onnx.ml:Normalizer ai.onnx.ml:OneHotEncoder ai.onnx.ml:Scaler"
    ),
    "machine_learning.ml_linear": "ai.onnx.ml:LinearClassifier ai.onnx.ml:LinearRegressor",
    "machine_learning.ml_maps": (
        "ai.onnx.ml:CastMap ai.onnx.ml:CategoryMapper ai.onnx.ml:DictVectorizer ai.onnx.ml:LabelEncoder "
        "ai.onnx.ml:ZipMap"
    ),
    "machine_learning.ml_svm": "ai.onnx.ml:SVMClassifier ai.onnx.ml:SVMRegressor",
    "machine_learning.ml_trees": (
        "ai.onnx.ml:TreeEnsemble ai.onnx.ml:TreeEnsembleClassifier ai.onnx.ml:TreeEnsembleRegressor"
    ),
    "movement.contrib_embedding": (
        "com.microsoft:EmbedLayerNormalization com.microsoft:QEmbedLayerNormalization com.microsoft:TorchEmbedding "
        "com.microsoft:WordConvEmbedding"
    ),
    "movement.contrib_tensor": (
        "com.microsoft:CDist com.microsoft:DynamicTimeWarping com.microsoft:ExpandDims com.microsoft:GatherND "
        "com.microsoft:Inverse com.microsoft:Pad com.microsoft:Range com.microsoft:SampleOp com.microsoft:Trilu "
        "com.microsoft:UnfoldTensor com.microsoft:Unique"
    ),
    "movement.gather": "Compress Gather GatherElements GatherND OneHot",
    "movement.movement": "Concat Expand ReverseSequence Slice Split Tile Transpose Trilu",
    "movement.pad": "Pad",
    "movement.rearrangement": "CenterCropPad DepthToSpace SpaceToDepth",
    "movement.scatter": "Scatter ScatterElements ScatterND",
    "movement.selection": "ArgMax ArgMin NonZero TopK Unique",
    "movement.shapes": "Flatten Identity Reshape Shape Size Squeeze Unsqueeze",
    "normalization.contrib_hyper_connections": (
        "com.microsoft:GatedAdd com.microsoft:HyperConnectionLowRankMix com.microsoft:HyperConnectionPostMix "
        "com.microsoft:HyperConnectionPreMix"
    ),
    "normalization.contrib_normalization": (
        "com.microsoft:BranchwiseRMSNorm com.microsoft:EngramGate com.microsoft:GatedRMSNorm com.microsoft:GroupNorm "
        "com.microsoft:SkipGroupNorm com.microsoft:SkipLayerNormalization "
        "com.microsoft:SkipSimplifiedLayerNormalization"
    ),
    "normalization.normalization": (
        "BatchNormalization GroupNormalization InstanceNormalization LRN LayerNormalization LpNormalization "
        "MeanVarianceNormalization RMSNormalization SimplifiedLayerNormalization"
    ),
    "normalization.reductions": (
        "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum "
        "ReduceSumSquare"
    ),
    "normalization.softmax": "Hardmax LogSoftmax Softmax",
    "products.contrib_block_quantized": (
        "com.microsoft:GatherBlockQuantized com.microsoft:MatMulBnb4 com.microsoft:MatMulFpQ4 "
        "com.microsoft:MatMulNBits com.microsoft:MatMulNBitsQLoRA"
    ),
    "products.contrib_fused_projections": (
        "com.microsoft:MatMulBlockQuantizedFp4Weight com.microsoft:MatMulBlockQuantizedFp8Weight "
        "com.microsoft:MatMulNBitsMlp com.microsoft:MatMulNBitsQkv"
    ),
    "products.contrib_matmul": (
        "com.microsoft:FusedGemm com.microsoft:FusedMatMul com.microsoft:FusedMatMulActivation "
        "com.microsoft:GemmFastGelu com.microsoft:MatMulInteger16 com.microsoft:SparseToDenseMatMul "
        "com.microsoft:TransposeMatMul"
    ),
    "products.contrib_mixture_of_experts": "com.microsoft:MoE com.microsoft:QMoE",
    "products.contrib_packed_weights": "com.microsoft:GatherPacked com.microsoft:MatMulPacked com.microsoft:MoEPacked",
    "products.contrib_quantized_product": (
        "com.microsoft:DequantizeLinear com.microsoft:DynamicQuantizeMatMul com.microsoft:MatMulIntegerToFloat "
        "com.microsoft:MulInteger com.microsoft:QGemm com.microsoft:QuantizeLinear com.microsoft:ReduceSumInteger"
    ),
    "products.contrib_routing": "com.microsoft:MoEGroupRouter com.microsoft:RouterGateUpProj com.microsoft:SwiGLU",
    "products.matrix_products": "Det Einsum Gemm MatMul",
    "products.quantized_matmul": "MatMulInteger QLinearMatMul",
    "quantization.contrib_ordered": (
        "com.microsoft:DequantizeWithOrder com.microsoft:GemmFloat8 com.microsoft:QOrderedGelu "
        "com.microsoft:QOrderedLayerNormalization com.microsoft:QuantizeWithOrder"
    ),
    "quantization.contrib_qlinear": (
        "com.microsoft:QLinearAdd com.microsoft:QLinearConcat com.microsoft:QLinearGlobalAveragePool "
        "com.microsoft:QLinearLeakyRelu com.microsoft:QLinearMul com.microsoft:QLinearReduceMean "
        "com.microsoft:QLinearSigmoid com.microsoft:QLinearSoftmax com.microsoft:QLinearWhere"
    ),
    "quantization.quantization": "DequantizeLinear DynamicQuantizeLinear QuantizeLinear",
    "recurrent.contrib_recurrent": "com.microsoft:AttnLSTM com.microsoft:DynamicQuantizeLSTM",
    "recurrent.recurrent": "GRU LSTM RNN",
    "sequences.control_flow": "If Loop Scan",
    "sequences.sequences": (
        "ConcatFromSequence Optional OptionalGetElement OptionalHasElement SequenceAt SequenceConstruct SequenceEmpty "
        "SequenceErase SequenceInsert SequenceLength SequenceMap SplitToSequence"
    ),
    "signals.contrib_spectrum": (
        "com.microsoft:ComplexMul com.microsoft:ComplexMulConj com.microsoft:Irfft com.microsoft:Rfft"
    ),
    "signals.signal": "DFT MelWeightMatrix STFT",
    "texts.contrib_hashing": (
        "com.microsoft:BifurcationDetector com.microsoft:MurmurHash3 com.microsoft:NGramHashMapping "
        "com.microsoft:NGramRepeatBlock com.microsoft:VarlenNGramHashMapping"
    ),
    "texts.contrib_text": "com.microsoft:Tokenizer",
    "texts.text": "RegexFullMatch StringConcat StringNormalizer StringSplit",
    "texts.tfidf": "TfIdfVectorizer",
}
"""Folder and module: the operators that it has kernels for, with their domain unless it is ONNX's."""


def operators_of(family: str) -> tuple[tuple[str, str], ...]:
    """Return (domain, op_type) of each operator of a family."""
    parts = (name.rpartition(":") for name in FAMILIES[family].split())
    return tuple((domain, op_type) for domain, _, op_type in parts)


@functools.cache
def reference_kernels() -> KernelRegistry:
    """Return the registry of all reference kernels (built once; not to be changed, extend a copy)."""
    return KernelRegistry({key: f"{PACKAGE}.{family}" for family in FAMILIES for key in operators_of(family)})
