"""Passes for plugin authors (provisional): the fusions that a provider may ask for inside its own partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ort_core.late_names import late_names

if TYPE_CHECKING:
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

__getattr__, __dir__ = late_names(  # no plugin pays for names that it does not use
    __name__,
    {
        "ort_core.passes.base": (
            "Level",
            "Pass",
            "PassContext",
            "PassRecordState",
            "PassReport",
            "RulePass",
        ),
        "ort_core.passes.extended": (
            "EXTENDED_PASSES",
            "STANDARD_FUSIONS",
        ),
        "ort_core.passes.fusions.attention": ("AttentionFusion",),
    },
)
