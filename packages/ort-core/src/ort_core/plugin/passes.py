"""Passes for plugin authors (provisional): the fusions that a provider may ask for inside its own partitions."""

from __future__ import annotations

from ort_core.passes.base import Level, Pass, PassContext, PassRecordState, PassReport, RulePass
from ort_core.passes.extended import EXTENDED_PASSES, STANDARD_FUSIONS
from ort_core.passes.fusions.attention import AttentionFusion

__all__ = [
    "EXTENDED_PASSES",
    "STANDARD_FUSIONS",
    "AttentionFusion",
    "Level",
    "Pass",
    "PassContext",
    "PassRecordState",
    "PassReport",
    "RulePass",
]
