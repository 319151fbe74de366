"""Passes for plugin authors (provisional): the fusions that a provider may ask for, and the pipelines of each level."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ort_core.lazy_names import lazy_names

if TYPE_CHECKING:
    from ort_core.passes.base import Level, Pass, PassContext, PassRecordState, PassReport, RulePass
    from ort_core.passes.extended import EXTENDED_PASSES, STANDARD_FUSIONS
    from ort_core.passes.fold_into_convolution import ConvAddFusion
    from ort_core.passes.fusions.attention import AttentionFusion
    from ort_core.passes.fusions.attention_targets import AttentionTarget
    from ort_core.passes.fusions.channel_norm import ChannelNormFusion
    from ort_core.passes.fusions.experts import ExpertFusion
    from ort_core.passes.fusions.group_norm import GroupNormFusion
    from ort_core.passes.fusions.qdq_selector import QDQSelectorActionTransformer
    from ort_core.passes.fusions.rotary import RotaryEmbeddingFusion
    from ort_core.passes.near_misses import NearMiss, counted
    from ort_core.passes.optimize_transposes import TransposeOptimizer
    from ort_core.passes.pipelines import pipeline_for
    from ort_core.passes.transposable import ADAPTERS, Adapted, Adapter, Perm

__all__ = [
    "ADAPTERS", "EXTENDED_PASSES", "STANDARD_FUSIONS", "Adapted", "Adapter", "AttentionFusion", "AttentionTarget",
    "ChannelNormFusion", "ConvAddFusion", "ExpertFusion", "GroupNormFusion", "Level", "NearMiss", "Pass", "PassContext",
    "PassRecordState", "PassReport", "Perm", "QDQSelectorActionTransformer", "RotaryEmbeddingFusion", "RulePass",
    "TransposeOptimizer", "counted", "pipeline_for",
]  # fmt: skip

__getattr__, __dir__ = lazy_names(  # no plugin pays for names that it does not use
    __name__,
    {
        "ort_core.passes.base": ("Level", "Pass", "PassContext", "PassRecordState", "PassReport", "RulePass"),
        "ort_core.passes.extended": ("EXTENDED_PASSES", "STANDARD_FUSIONS"),
        "ort_core.passes.fold_into_convolution": ("ConvAddFusion",),
        "ort_core.passes.fusions.attention": ("AttentionFusion",),
        "ort_core.passes.fusions.attention_targets": ("AttentionTarget",),
        "ort_core.passes.fusions.channel_norm": ("ChannelNormFusion",),
        "ort_core.passes.fusions.experts": ("ExpertFusion",),
        "ort_core.passes.fusions.group_norm": ("GroupNormFusion",),
        "ort_core.passes.fusions.qdq_selector": ("QDQSelectorActionTransformer",),
        "ort_core.passes.fusions.rotary": ("RotaryEmbeddingFusion",),
        "ort_core.passes.near_misses": ("NearMiss", "counted"),
        "ort_core.passes.optimize_transposes": ("TransposeOptimizer",),
        "ort_core.passes.pipelines": ("pipeline_for",),
        "ort_core.passes.transposable": ("ADAPTERS", "Adapted", "Adapter", "Perm"),
    },
)  # fmt: skip
