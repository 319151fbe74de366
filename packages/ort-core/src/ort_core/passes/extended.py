"""The passes of the extended level, in onnxruntime's order and by its names; and the fusions to standard operators."""

from __future__ import annotations

from ort_core.passes.base import Level, Pass, RulePass
from ort_core.passes.fusions.attention import AttentionFusion
from ort_core.passes.fusions.bias_gelu import BiasGeluFusion
from ort_core.passes.fusions.conv_activation import ConvActivationFusion, ConvAddActivationFusion
from ort_core.passes.fusions.embed_layer_norm import EmbedLayerNormFusion
from ort_core.passes.fusions.gather_slice_to_split import GatherSliceToSplitFusion
from ort_core.passes.fusions.gather_to_slice import GatherToSliceFusion
from ort_core.passes.fusions.gelu import FastGeluFusion, GeluFusion, StandardGeluFusion
from ort_core.passes.fusions.gelu_approximation import GeluApproximation
from ort_core.passes.fusions.gemm_activation import GemmActivationFusion
from ort_core.passes.fusions.integer_product import DynamicQuantizeMatMulFusion, MatMulIntegerToFloatFusion
from ort_core.passes.fusions.layer_norm import LayerNormFusion
from ort_core.passes.fusions.matmul_scale import MatMulScaleFusion
from ort_core.passes.fusions.matmul_transpose import MatmulTransposeFusion
from ort_core.passes.fusions.nbits_bias import MatMulNBitsFusion
from ort_core.passes.fusions.qdq_cleanup import ClipQuantRewrite, QDQFinalCleanup, ReluQuantRewrite
from ort_core.passes.fusions.qdq_float_results import DequantizedArgMax, DequantizedMatMul
from ort_core.passes.fusions.qdq_propagation import PropagateDequantization, PropagateQuantization
from ort_core.passes.fusions.qdq_selector import QDQSelectorActionTransformer
from ort_core.passes.fusions.quick_gelu import QuickGeluFusion
from ort_core.passes.fusions.rms_norm import SimplifiedLayerNormFusion
from ort_core.passes.fusions.rotary import RotaryEmbeddingFusion
from ort_core.passes.fusions.skip_norm import BiasSkipLayerNormFusion, SkipLayerNormFusion

_EXTENDED = Level.EXTENDED

STANDARD_FUSIONS: tuple[Pass, ...] = (  # of the basic level: their operators belong to the model's own opset
    RulePass("GeluFusionL1", [StandardGeluFusion()]),
    RulePass("LayerNormFusionL1", [LayerNormFusion(is_standard=True)]),
)
EXTENDED_PASSES: tuple[Pass, ...] = (
    RulePass("ClipQuantRewrite", [ClipQuantRewrite()], _EXTENDED),
    RulePass("ReluQuantRewrite", [ReluQuantRewrite()], _EXTENDED),
    RulePass("QDQPropagationTransformer", [PropagateDequantization(), PropagateQuantization()], _EXTENDED),
    RulePass(
        "QDQSelectorActionTransformer",
        [QDQSelectorActionTransformer(), DequantizedMatMul(), DequantizedArgMax()],
        _EXTENDED,
    ),
    RulePass("GemmActivationFusion", [GemmActivationFusion()], _EXTENDED),
    RulePass("MatMulIntegerToFloatFusion", [MatMulIntegerToFloatFusion()], _EXTENDED),
    RulePass("DynamicQuantizeMatMulFusion", [DynamicQuantizeMatMulFusion()], _EXTENDED),
    RulePass("ConvActivationFusion", [ConvActivationFusion()], _EXTENDED),
    RulePass("GeluFusionL2", [GeluFusion()], _EXTENDED),
    RulePass("LayerNormFusionL2", [LayerNormFusion(is_standard=False)], _EXTENDED),
    RulePass("SimplifiedLayerNormFusion", [SimplifiedLayerNormFusion()], _EXTENDED),
    RulePass("RotaryEmbeddingFusion", [RotaryEmbeddingFusion()], _EXTENDED),
    RulePass("AttentionFusion", [AttentionFusion()], _EXTENDED),
    RulePass("EmbedLayerNormFusion", [EmbedLayerNormFusion()], _EXTENDED),
    RulePass("GatherSliceToSplitFusion", [GatherSliceToSplitFusion()], _EXTENDED),
    RulePass("GatherToSliceFusion", [GatherToSliceFusion()], _EXTENDED),
    RulePass("MatmulTransposeFusion", [MatmulTransposeFusion()], _EXTENDED),
    RulePass("BiasGeluFusion", [BiasGeluFusion()], _EXTENDED),
    RulePass("SkipLayerNormFusion", [SkipLayerNormFusion()], _EXTENDED),
    RulePass("BiasSkipLayerNormFusion", [BiasSkipLayerNormFusion()], _EXTENDED),
    RulePass("FastGeluFusion", [FastGeluFusion()], _EXTENDED),
    RulePass("GeluApproximation", [GeluApproximation()], _EXTENDED, is_opt_in=True),
    RulePass("QuickGeluFusion", [QuickGeluFusion()], _EXTENDED),
    RulePass("MatMulScaleFusion", [MatMulScaleFusion()], _EXTENDED),
    RulePass("MatMulNBitsFusion", [MatMulNBitsFusion()], _EXTENDED),
    RulePass("QDQFinalCleanupTransformer", [QDQFinalCleanup()], _EXTENDED),
    RulePass("ConvAddActivationFusion", [ConvAddActivationFusion()], _EXTENDED),
)
