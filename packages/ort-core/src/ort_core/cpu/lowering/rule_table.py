"""Which rule lowers which operator: one literal table."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.rules.attention import multi_head_attention
from ort_core.cpu.lowering.rules.batch_normalization import batch_normalization
from ort_core.cpu.lowering.rules.convolutions import convolution
from ort_core.cpu.lowering.rules.dynamic_quantization import dynamic_quantize_linear
from ort_core.cpu.lowering.rules.elementwise import elementwise
from ort_core.cpu.lowering.rules.features import (
    array_feature_extractor,
    binarizer,
    feature_vectorizer,
    imputer,
    label_encoder,
    one_hot_encoder,
    scaler,
)
from ort_core.cpu.lowering.rules.grouped_attention import group_query_attention
from ort_core.cpu.lowering.rules.indexed import gather_elements, gather_nd, scatter_elements, scatter_nd, top_k
from ort_core.cpu.lowering.rules.indexing import gather
from ort_core.cpu.lowering.rules.integer_convolutions import integer_convolution, qlinear_convolution
from ort_core.cpu.lowering.rules.integer_products import (
    matmul_integer,
    matmul_integer_to_float,
    qlinear_matmul,
    quantized_gemm,
)
from ort_core.cpu.lowering.rules.linear_models import linear_classifier, linear_regressor
from ort_core.cpu.lowering.rules.lp_pooling import lp_pooling
from ort_core.cpu.lowering.rules.movement import (
    arithmetic_range,
    cast_like,
    constant_of_shape,
    depth_to_space,
    eye_like,
    one_hot,
    pad,
    tile,
    triangle,
)
from ort_core.cpu.lowering.rules.nbits_products import matmul_nbits
from ort_core.cpu.lowering.rules.pooling import pooling
from ort_core.cpu.lowering.rules.products import gemm, matmul
from ort_core.cpu.lowering.rules.quantization import dequantize_linear, quantize_linear
from ort_core.cpu.lowering.rules.quantized_elementwise import quantized_concat, quantized_elementwise
from ort_core.cpu.lowering.rules.recurrent import recurrent
from ort_core.cpu.lowering.rules.reductions import (
    arg_extreme,
    cumulative,
    group_normalization,
    hardmax,
    layer_normalization,
    lp_normalization,
    mean_variance_normalization,
    reduce,
    softmax,
)
from ort_core.cpu.lowering.rules.resizing import resize
from ort_core.cpu.lowering.rules.response_normalization import local_response_normalization
from ort_core.cpu.lowering.rules.rotary import rotary_embedding
from ort_core.cpu.lowering.rules.row_formulas import row_formula
from ort_core.cpu.lowering.rules.rows import instance_normalization, normalizer
from ort_core.cpu.lowering.rules.sizes import shape, size
from ort_core.cpu.lowering.rules.standard_attention import standard_attention
from ort_core.cpu.lowering.rules.support_vectors import svm_classifier, svm_regressor
from ort_core.cpu.lowering.rules.transposed_convolutions import transposed_convolution
from ort_core.cpu.lowering.rules.trees import tree_classifier, tree_ensemble
from ort_core.cpu.lowering.rules.views import concat, expand, identity, reshape, slice_, split, transpose
from ort_core.plugin.ir import Node
from ort_core.plugin.kernels import EvaluationContext
from ort_core.plugin.loops import MEANINGS, OpMeaning, RowMeaning

Rule = Callable[[Lowering, Node], None]

RULES: Mapping[tuple[str, str], Rule] = {
    **dict.fromkeys(MEANINGS, elementwise),
    ("", "Identity"): identity, ("", "Reshape"): reshape, ("", "Flatten"): reshape, ("", "Squeeze"): reshape,
    ("", "Unsqueeze"): reshape, ("", "Transpose"): transpose, ("", "Expand"): expand, ("", "Slice"): slice_,
    ("", "Split"): split, ("", "Concat"): concat, ("", "Gather"): gather,
    ("", "Shape"): shape, ("", "Size"): size,
    ("", "GatherND"): gather_nd, ("", "GatherElements"): gather_elements, ("", "Scatter"): scatter_elements,
    ("", "ScatterElements"): scatter_elements, ("", "ScatterND"): scatter_nd, ("", "TopK"): top_k,
    ("", "ConstantOfShape"): constant_of_shape, ("", "Range"): arithmetic_range, ("", "Trilu"): triangle,
    ("", "EyeLike"): eye_like, ("", "OneHot"): one_hot, ("", "Pad"): pad, ("", "Tile"): tile,
    ("", "DepthToSpace"): depth_to_space, ("", "SpaceToDepth"): depth_to_space, ("", "CastLike"): cast_like,
    ("", "Softmax"): softmax, ("", "LogSoftmax"): softmax, ("", "LayerNormalization"): layer_normalization,
    ("", "InstanceNormalization"): instance_normalization,
    ("", "RMSNormalization"): layer_normalization, ("", "SimplifiedLayerNormalization"): layer_normalization,
    ("com.microsoft", "SkipLayerNormalization"): layer_normalization,
    ("com.microsoft", "SkipSimplifiedLayerNormalization"): layer_normalization,
    **{("", name): reduce for name in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceSumSquare",
                                       "ReduceL1", "ReduceL2", "ReduceProd", "ReduceLogSum", "ReduceLogSumExp")},
    ("", "ArgMax"): arg_extreme, ("", "ArgMin"): arg_extreme, ("", "Hardmax"): hardmax,
    ("", "CumSum"): cumulative, ("", "CumProd"): cumulative, ("", "GroupNormalization"): group_normalization,
    ("", "MeanVarianceNormalization"): mean_variance_normalization, ("", "LpNormalization"): lp_normalization,
    ("", "Conv"): convolution, ("", "ConvTranspose"): transposed_convolution,
    ("", "BatchNormalization"): batch_normalization,
    ("", "Resize"): resize, ("", "Upsample"): resize,
    **{("", name): pooling for name in ("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool")},
    ("", "LpPool"): lp_pooling, ("", "GlobalLpPool"): lp_pooling, ("", "LRN"): local_response_normalization,
    ("", "MatMul"): matmul, ("com.microsoft", "FusedMatMul"): matmul, ("", "Gemm"): gemm,
    ("", "LSTM"): recurrent, ("", "GRU"): recurrent, ("", "RNN"): recurrent,
    ("ai.onnx.ml", "TreeEnsemble"): tree_ensemble, ("ai.onnx.ml", "TreeEnsembleRegressor"): tree_ensemble,
    ("ai.onnx.ml", "TreeEnsembleClassifier"): tree_classifier,
    ("ai.onnx.ml", "LinearClassifier"): linear_classifier, ("ai.onnx.ml", "LinearRegressor"): linear_regressor,
    ("ai.onnx.ml", "SVMClassifier"): svm_classifier, ("ai.onnx.ml", "SVMRegressor"): svm_regressor,
    ("ai.onnx.ml", "Normalizer"): normalizer, ("ai.onnx.ml", "Scaler"): scaler, ("ai.onnx.ml", "Imputer"): imputer,
    ("ai.onnx.ml", "Binarizer"): binarizer, ("ai.onnx.ml", "OneHotEncoder"): one_hot_encoder,
    ("ai.onnx.ml", "LabelEncoder"): label_encoder, ("ai.onnx.ml", "FeatureVectorizer"): feature_vectorizer,
    ("ai.onnx.ml", "ArrayFeatureExtractor"): array_feature_extractor,
    ("", "Attention"): standard_attention, ("com.microsoft", "MultiHeadAttention"): multi_head_attention,
    ("com.microsoft", "GroupQueryAttention"): group_query_attention,
    ("", "RotaryEmbedding"): rotary_embedding, ("com.microsoft", "RotaryEmbedding"): rotary_embedding,
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


def find_rule(node: Node, context: EvaluationContext) -> Rule | None:
    """Return the rule that lowers a node; operators of users lower by their meaning, if they have one."""
    found = RULES.get((node.domain, node.op_type))
    if found is not None:
        return found
    own = _own_meaning(node, context)
    return None if own is None else row_formula if isinstance(own, RowMeaning) else elementwise


def has_own_meaning(node: Node, context: EvaluationContext) -> bool:
    """Return whether a node is of a user's operator that says what it computes of an element or a row."""
    return _own_meaning(node, context) is not None


def _own_meaning(node: Node, context: EvaluationContext) -> OpMeaning | None:
    meanings = context.meanings
    return meanings.find(node.domain, node.op_type, context.opset_of(node)) if meanings else None
