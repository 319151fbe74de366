"""The fusions that the provider asks for inside its partitions: their operators are one kernel or one library call."""

from __future__ import annotations

from ort_core.plugin import Pass
from ort_core.plugin.ir import DataType
from ort_core.plugin.passes import EXTENDED_PASSES, AttentionFusion, Level, RulePass

_NAMES = frozenset({"FastGeluFusion", "GeluFusionL2", "QuickGeluFusion", "SimplifiedLayerNormFusion"})
_ATTENTION = RulePass(
    "AttentionFusion",
    [AttentionFusion(frozenset({DataType.FLOAT16, DataType.BFLOAT16}))],  # cuDNN's attention is for these
    Level.EXTENDED,
)

FUSIONS: tuple[Pass, ...] = tuple(
    _ATTENTION if each.name == _ATTENTION.name else each
    for each in EXTENDED_PASSES
    if each.name in _NAMES or each.name == _ATTENTION.name
)
