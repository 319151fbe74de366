"""The fusions that the provider asks for inside its partitions: their operators are one kernel or one library call."""

from __future__ import annotations

from ort_core.plugin import Pass
from ort_core.plugin.ir import DataType
from ort_core.plugin.passes import EXTENDED_PASSES, AttentionFusion, Level, QDQSelectorActionTransformer, RulePass

_NAMES = frozenset(
    {"ClipQuantRewrite", "ReluQuantRewrite", "FastGeluFusion", "GeluFusionL2", "QuickGeluFusion",
     "SimplifiedLayerNormFusion"}
)  # fmt: skip
_OWN = {
    each.name: each
    for each in (
        RulePass(
            "QDQSelectorActionTransformer",
            [QDQSelectorActionTransformer({"Conv", "MatMul"})],  # those that are products of integers here
            Level.EXTENDED,
        ),
        RulePass(
            "AttentionFusion",
            [AttentionFusion(frozenset({DataType.FLOAT16, DataType.BFLOAT16}))],  # cuDNN's attention is for these
            Level.EXTENDED,
        ),
    )
}

FUSIONS: tuple[Pass, ...] = tuple(
    _OWN.get(each.name, each) for each in EXTENDED_PASSES if each.name in _NAMES or each.name in _OWN
)
