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

OPERATORS: Mapping[str, str] = {  # a rule, as room.module.function of ``rules``: the operators it lowers
    "indexing.views.identity": "Identity",
    "indexing.views.reshape": "Reshape Flatten Squeeze Unsqueeze com.microsoft:ExpandDims",
    "indexing.views.transpose": "Transpose",
    "indexing.views.expand": "Expand",
    "indexing.views.slice_": "Slice",
    "indexing.views.split": "Split",
    "indexing.views.concat": "Concat",
    "indexing.indexing.gather": "Gather",
    "indexing.sizes.shape": "Shape",
    "indexing.sizes.size": "Size",
    "indexing.indexed.gather_nd": "GatherND com.microsoft:GatherND",
    "indexing.indexed.gather_elements": "GatherElements",
    "indexing.indexed.scatter_elements": "Scatter ScatterElements",
    "indexing.indexed.scatter_nd": "ScatterND",
    "indexing.indexed.reverse_sequence": "ReverseSequence",
    "indexing.indexed.top_k": "TopK",
    "indexing.movement.constant_of_shape": "ConstantOfShape",
    "indexing.movement.arithmetic_range": "Range",
    "indexing.movement.triangle": "Trilu com.microsoft:Trilu",
    "indexing.movement.eye_like": "EyeLike",
    "indexing.movement.one_hot": "OneHot",
    "indexing.movement.pad": "Pad com.microsoft:Pad",
    "indexing.movement.tile": "Tile",
    "indexing.movement.depth_to_space": "DepthToSpace SpaceToDepth",
    "indexing.movement.cast_like": "CastLike",
    "quotients.divide": "Div",
    "quotients.remainder": "Mod",
    "circular.circular": "Sin Cos Tan",
    "rows.rows.softmax": "Softmax LogSoftmax",
    "rows.rows.layer_normalization": (
        "LayerNormalization RMSNormalization SimplifiedLayerNormalization com.microsoft:SkipLayerNormalization "
        "com.microsoft:SkipSimplifiedLayerNormalization"
    ),
    "rows.group_normalization.group_normalization": "GroupNormalization",
    "rows.group_normalization.instance_normalization": "InstanceNormalization",
    "rows.group_normalization.group_norm": "com.microsoft:GroupNorm",
    "rows.group_normalization.skip_group_norm": "com.microsoft:SkipGroupNorm",
    "rows.rows.reduce": (
        "ReduceSum ReduceMean ReduceMax ReduceMin ReduceSumSquare ReduceL1 ReduceL2 ReduceProd ReduceLogSum "
        "ReduceLogSumExp"
    ),
    "rows.reductions.arg_extreme": "ArgMax ArgMin",
    "rows.reductions.hardmax": "Hardmax",
    "rows.reductions.cumulative": "CumSum CumProd",
    "rows.distances.pairwise_distances": "com.microsoft:CDist",
    "rows.rows.mean_variance_normalization": "MeanVarianceNormalization",
    "rows.rows.lp_normalization": "LpNormalization",
    "convolutions.convolutions.convolution": "Conv",
    "convolutions.deformed_convolutions.deformed_convolution": "DeformConv",
    "convolutions.transposed_convolutions.transposed_convolution": "ConvTranspose",
    "rows.batch_normalization.batch_normalization": "BatchNormalization",
    "images.resizing.resize": "Resize Upsample",
    "images.column_sums.column_sums": "Col2Im",
    "images.sampling.grid_sample": "GridSample",
    "images.affine_grids.affine_grid": "AffineGrid",
    "images.sampling.roi_align": "RoiAlign",
    "images.pooling.pooling": "MaxPool AveragePool GlobalAveragePool GlobalMaxPool",
    "images.lp_pooling.lp_pooling": "LpPool GlobalLpPool",
    "images.response_normalization.local_response_normalization": "LRN",
    "products.matmul": "MatMul com.microsoft:FusedMatMul",
    "products.gemm": "Gemm",
    "einsum.einsum": "Einsum",
    "experts.mixture_of_experts": "com.microsoft:MoE",
    "experts.quantized_mixture_of_experts": "com.microsoft:QMoE",
    "recurrent.recurrent": "LSTM GRU RNN",
    "machine_learning.trees.tree_ensemble": "ai.onnx.ml:TreeEnsemble ai.onnx.ml:TreeEnsembleRegressor",
    "machine_learning.trees.tree_classifier": "ai.onnx.ml:TreeEnsembleClassifier",
    "machine_learning.linear_models.linear_classifier": "ai.onnx.ml:LinearClassifier",
    "machine_learning.linear_models.linear_regressor": "ai.onnx.ml:LinearRegressor",
    "machine_learning.support_vectors.svm_classifier": "ai.onnx.ml:SVMClassifier",
    "machine_learning.support_vectors.svm_regressor": "ai.onnx.ml:SVMRegressor",
    "rows.rows.normalizer": "ai.onnx.ml:Normalizer",
    "machine_learning.features.scaler": "ai.onnx.ml:Scaler",
    "machine_learning.features.imputer": "ai.onnx.ml:Imputer",
    "machine_learning.features.binarizer": "ai.onnx.ml:Binarizer",
    "machine_learning.features.one_hot_encoder": "ai.onnx.ml:OneHotEncoder",
    "machine_learning.features.label_encoder": "ai.onnx.ml:LabelEncoder",
    "machine_learning.features.feature_vectorizer": "ai.onnx.ml:FeatureVectorizer",
    "machine_learning.features.array_feature_extractor": "ai.onnx.ml:ArrayFeatureExtractor",
    "attention.attention.attention": (
        "Attention com.microsoft:Attention com.microsoft:DecoderMaskedMultiHeadAttention "
        "com.microsoft:GroupQueryAttention com.microsoft:MultiHeadAttention com.microsoft:QAttention"
    ),
    "attention.paged_attention.paged_attention": "com.microsoft:PagedAttention",
    "attention.rotary.rotary_embedding": "RotaryEmbedding com.microsoft:RotaryEmbedding",
    "quantized.computed_products.matmul_integer": "MatMulInteger",
    "quantized.integer_products.matmul_integer_to_float": "com.microsoft:MatMulIntegerToFloat",
    "quantized.computed_products.qlinear_matmul": "QLinearMatMul",
    "quantized.integer_products.quantized_gemm": "com.microsoft:QGemm",
    "quantized.quantized_elementwise.quantized_elementwise": (
        "com.microsoft:QLinearAdd com.microsoft:QLinearMul com.microsoft:QLinearLeakyRelu com.microsoft:QLinearSigmoid"
    ),
    "quantized.quantized_elementwise.quantized_concat": "com.microsoft:QLinearConcat",
    "quantized.nbits_products.matmul_nbits": "com.microsoft:MatMulNBits",
    "quantized.dynamic_quantization.dynamic_quantize_linear": "DynamicQuantizeLinear",
    "quantized.integer_products.dynamic_quantize_matmul": "com.microsoft:DynamicQuantizeMatMul",
    "quantized.quantized_pooling.quantized_pooling": (
        "com.microsoft:QLinearAveragePool com.microsoft:QLinearGlobalAveragePool"
    ),
    "attention.embeddings.embed_layer_normalization": "com.microsoft:EmbedLayerNormalization",
    "attention.embeddings.gather_block_quantized": "com.microsoft:GatherBlockQuantized",
    "quantized.integer_convolutions.qlinear_convolution": "QLinearConv",
    "quantized.integer_convolutions.integer_convolution": "ConvInteger",
    "quantized.quantization.quantize_linear": "QuantizeLinear com.microsoft:QuantizeLinear",
    "quantized.quantization.dequantize_linear": "DequantizeLinear com.microsoft:DequantizeLinear",
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
    module, _, function = name.rpartition(".")
    found: LoweringRule = getattr(importlib.import_module(f"ort_core.cpu.lowering.rules.{module}"), function)
    return found


def find_rule(node: Node, context: EvaluationContext) -> LoweringRule | None:
    """Return the rule that lowers a node; operators of users lower by their meaning, if they have one."""
    found = RULES.get((node.domain, node.op_type))
    if found is None:
        own = _own_meaning(node, context)
        if own is None:
            return None
        found = "rows.row_formulas.row_formula" if isinstance(own, RowMeaning) else "elementwise.elementwise"
    return rule(found)


def has_own_meaning(node: Node, context: EvaluationContext) -> bool:
    """Return whether a node is of a user's operator that says what it computes of an element or a row."""
    return _own_meaning(node, context) is not None


def _own_meaning(node: Node, context: EvaluationContext) -> OpMeaning | None:
    meanings = context.meanings
    return meanings.find(node.domain, node.op_type, context.opset_of(node)) if meanings else None
