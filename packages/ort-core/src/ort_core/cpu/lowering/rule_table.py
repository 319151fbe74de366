"""Which rule lowers which operator: one literal table, of names: a rule is imported when a model has its operator."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping

from ort_core.cpu.lowering.lowering import Lowering
from ort_core.plugin.ir import Node
from ort_core.plugin.kernels import EvaluationContext
from ort_core.plugin.loops import MEANINGS, OpMeaning, RowMeaning

LoweringRule = Callable[[Lowering, Node], None]

OPERATORS: Mapping[str, str] = {  # a rule, as module.function of ``rules``: the operators it lowers
    "views.identity": "Identity",
    "views.reshape": "Reshape Flatten Squeeze Unsqueeze",
    "views.transpose": "Transpose",
    "views.expand": "Expand",
    "views.slice_": "Slice",
    "views.split": "Split",
    "views.concat": "Concat",
    "indexing.gather": "Gather",
    "sizes.shape": "Shape",
    "sizes.size": "Size",
    "indexed.gather_nd": "GatherND",
    "indexed.gather_elements": "GatherElements",
    "indexed.scatter_elements": "Scatter ScatterElements",
    "indexed.scatter_nd": "ScatterND",
    "indexed.top_k": "TopK",
    "movement.constant_of_shape": "ConstantOfShape",
    "movement.arithmetic_range": "Range",
    "movement.triangle": "Trilu",
    "movement.eye_like": "EyeLike",
    "movement.one_hot": "OneHot",
    "movement.pad": "Pad",
    "movement.tile": "Tile",
    "movement.depth_to_space": "DepthToSpace SpaceToDepth",
    "movement.cast_like": "CastLike",
    "rows.softmax": "Softmax LogSoftmax",
    "rows.layer_normalization": (
        "LayerNormalization RMSNormalization SimplifiedLayerNormalization com.microsoft:SkipLayerNormalization "
        "com.microsoft:SkipSimplifiedLayerNormalization"
    ),
    "group_normalization.group_normalization": "GroupNormalization",
    "group_normalization.instance_normalization": "InstanceNormalization",
    "group_normalization.group_norm": "com.microsoft:GroupNorm",
    "group_normalization.skip_group_norm": "com.microsoft:SkipGroupNorm",
    "rows.reduce": (
        "ReduceSum ReduceMean ReduceMax ReduceMin ReduceSumSquare ReduceL1 ReduceL2 ReduceProd ReduceLogSum "
        "ReduceLogSumExp"
    ),
    "reductions.arg_extreme": "ArgMax ArgMin",
    "reductions.hardmax": "Hardmax",
    "reductions.cumulative": "CumSum CumProd",
    "rows.mean_variance_normalization": "MeanVarianceNormalization",
    "rows.lp_normalization": "LpNormalization",
    "convolutions.convolution": "Conv",
    "transposed_convolutions.transposed_convolution": "ConvTranspose",
    "batch_normalization.batch_normalization": "BatchNormalization",
    "resizing.resize": "Resize Upsample",
    "pooling.pooling": "MaxPool AveragePool GlobalAveragePool GlobalMaxPool",
    "lp_pooling.lp_pooling": "LpPool GlobalLpPool",
    "response_normalization.local_response_normalization": "LRN",
    "products.matmul": "MatMul com.microsoft:FusedMatMul",
    "products.gemm": "Gemm",
    "recurrent.recurrent": "LSTM GRU RNN",
    "trees.tree_ensemble": "ai.onnx.ml:TreeEnsemble ai.onnx.ml:TreeEnsembleRegressor",
    "trees.tree_classifier": "ai.onnx.ml:TreeEnsembleClassifier",
    "linear_models.linear_classifier": "ai.onnx.ml:LinearClassifier",
    "linear_models.linear_regressor": "ai.onnx.ml:LinearRegressor",
    "support_vectors.svm_classifier": "ai.onnx.ml:SVMClassifier",
    "support_vectors.svm_regressor": "ai.onnx.ml:SVMRegressor",
    "rows.normalizer": "ai.onnx.ml:Normalizer",
    "features.scaler": "ai.onnx.ml:Scaler",
    "features.imputer": "ai.onnx.ml:Imputer",
    "features.binarizer": "ai.onnx.ml:Binarizer",
    "features.one_hot_encoder": "ai.onnx.ml:OneHotEncoder",
    "features.label_encoder": "ai.onnx.ml:LabelEncoder",
    "features.feature_vectorizer": "ai.onnx.ml:FeatureVectorizer",
    "features.array_feature_extractor": "ai.onnx.ml:ArrayFeatureExtractor",
    "attention.attention": (
        "Attention com.microsoft:Attention com.microsoft:GroupQueryAttention com.microsoft:MultiHeadAttention "
        "com.microsoft:QAttention"
    ),
    "rotary.rotary_embedding": "RotaryEmbedding com.microsoft:RotaryEmbedding",
    "integer_products.matmul_integer": "MatMulInteger",
    "integer_products.matmul_integer_to_float": "com.microsoft:MatMulIntegerToFloat",
    "integer_products.qlinear_matmul": "QLinearMatMul",
    "integer_products.quantized_gemm": "com.microsoft:QGemm",
    "quantized_elementwise.quantized_elementwise": (
        "com.microsoft:QLinearAdd com.microsoft:QLinearMul com.microsoft:QLinearLeakyRelu com.microsoft:QLinearSigmoid"
    ),
    "quantized_elementwise.quantized_concat": "com.microsoft:QLinearConcat",
    "nbits_products.matmul_nbits": "com.microsoft:MatMulNBits",
    "dynamic_quantization.dynamic_quantize_linear": "DynamicQuantizeLinear",
    "integer_products.dynamic_quantize_matmul": "com.microsoft:DynamicQuantizeMatMul",
    "quantized_pooling.quantized_pooling": "com.microsoft:QLinearAveragePool com.microsoft:QLinearGlobalAveragePool",
    "embeddings.embed_layer_normalization": "com.microsoft:EmbedLayerNormalization",
    "embeddings.gather_block_quantized": "com.microsoft:GatherBlockQuantized",
    "integer_convolutions.qlinear_convolution": "QLinearConv",
    "integer_convolutions.integer_convolution": "ConvInteger",
    "quantization.quantize_linear": "QuantizeLinear com.microsoft:QuantizeLinear",
    "quantization.dequantize_linear": "DequantizeLinear com.microsoft:DequantizeLinear",
}
RULES: Mapping[tuple[str, str], str] = {
    **dict.fromkeys(MEANINGS, "elementwise.elementwise"),
    **{
        (name.rpartition(":")[0], name.rpartition(":")[2]): rule
        for rule, names in OPERATORS.items()
        for name in names.split()
    },
}


@functools.cache
def rule(name: str) -> LoweringRule:
    """Return a rule by its name; imports its module, with the code generators that it needs and no others."""
    module, _, function = name.partition(".")
    found: LoweringRule = getattr(importlib.import_module(f"ort_core.cpu.lowering.rules.{module}"), function)
    return found


def find_rule(node: Node, context: EvaluationContext) -> LoweringRule | None:
    """Return the rule that lowers a node; operators of users lower by their meaning, if they have one."""
    found = RULES.get((node.domain, node.op_type))
    if found is None:
        own = _own_meaning(node, context)
        if own is None:
            return None
        found = "row_formulas.row_formula" if isinstance(own, RowMeaning) else "elementwise.elementwise"
    return rule(found)


def has_own_meaning(node: Node, context: EvaluationContext) -> bool:
    """Return whether a node is of a user's operator that says what it computes of an element or a row."""
    return _own_meaning(node, context) is not None


def _own_meaning(node: Node, context: EvaluationContext) -> OpMeaning | None:
    meanings = context.meanings
    return meanings.find(node.domain, node.op_type, context.opset_of(node)) if meanings else None
