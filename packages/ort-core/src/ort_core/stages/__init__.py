"""The stages between a loaded model and an execution plan, each a function from values to values.

``prepare`` calls them in order; sessions, the model compiler and the command line use it or single stages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ort_core.lazy_names import lazy_names

if TYPE_CHECKING:
    from ort_core.stages.evaluating import evaluate_by_reference
    from ort_core.stages.executions import compiled_partitions, explain_executions
    from ort_core.stages.near_misses import find_fusion_misses
    from ort_core.stages.optimizing import (
        OptimizedModel,
        evaluation_context,
        fuse_partition,
        optimize,
        optimize_cached,
        pass_context,
    )
    from ort_core.stages.placement_preview import ForeseenPlacement, foresee
    from ort_core.stages.planning import PreparedModel, fuse_whole, plan_model
    from ort_core.stages.preparing import expand_contexts, prepare
    from ort_core.stages.selection import PlacementWarning, ProviderRequest, ProviderSelection, select_providers
    from ort_core.stages.settings import PrepareSettings, thread_options

__all__ = [
    "ForeseenPlacement", "OptimizedModel", "PlacementWarning", "PrepareSettings", "PreparedModel", "ProviderRequest",
    "ProviderSelection", "compiled_partitions", "evaluate_by_reference", "evaluation_context", "expand_contexts",
    "explain_executions", "find_fusion_misses", "foresee", "fuse_partition", "fuse_whole", "optimize",
    "optimize_cached", "pass_context", "plan_model", "prepare", "select_providers", "thread_options",
]  # fmt: skip

__getattr__, __dir__ = lazy_names(  # a session out of the cache needs few of them
    __name__,
    {
        "ort_core.stages.evaluating": ("evaluate_by_reference",),
        "ort_core.stages.executions": ("compiled_partitions", "explain_executions"),
        "ort_core.stages.near_misses": ("find_fusion_misses",),
        "ort_core.stages.optimizing": (
            "OptimizedModel", "evaluation_context", "fuse_partition", "optimize", "optimize_cached", "pass_context",
        ),
        "ort_core.stages.placement_preview": ("ForeseenPlacement", "foresee"),
        "ort_core.stages.planning": ("PreparedModel", "fuse_whole", "plan_model"),
        "ort_core.stages.preparing": ("expand_contexts", "prepare"),
        "ort_core.stages.selection": ("PlacementWarning", "ProviderRequest", "ProviderSelection", "select_providers"),
        "ort_core.stages.settings": ("PrepareSettings", "thread_options"),
    },
)  # fmt: skip
