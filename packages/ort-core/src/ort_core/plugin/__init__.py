"""The authors' door: everything that an execution provider, a pass or an operator package may import.

Stable from version 1.0 of the plugin API on: names here keep their meaning within a major version. The modules
beside it (``plugin.ir``, ``ops``, ``rewrite``, ``passes``, ``kernels``, ``loops``, ``memory``, ``devices``,
``cache``, ``claims``) are versioned with the same number but provisional: they may gain and change names between minor
versions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ort_core.lazy_names import lazy_names

if TYPE_CHECKING:
    from ort_core.errors import AllocationLimitExceeded, EPFail, InvalidArgument, NotImplemented, OrtError
    from ort_core.frozen import frozen
    from ort_core.interruptions import raise_interruption
    from ort_core.ir.rejection import Rejection
    from ort_core.lifetimes import keep_for_ever
    from ort_core.passes.base import Pass
    from ort_core.providers.capability import Capability, Claim, GraphView
    from ort_core.providers.compiled import (
        CompiledPartition,
        CompileRequest,
        DirectCalls,
        DirectFunction,
        OutputPlan,
        PartitionPlan,
        PlainFunction,
        RunState,
    )
    from ort_core.providers.eager_partition import EagerPartition, filled, hand_out, output_buffer
    from ort_core.providers.execution import NodeExecution, body_path, output_names
    from ort_core.providers.grouping import convex_groups
    from ort_core.providers.hookspecs import PLUGIN_API, hookimpl
    from ort_core.providers.kernel_fallback import KernelFallbackState
    from ort_core.providers.kernel_provider import KernelPartition, KernelProvider
    from ort_core.providers.option_facts import OptionFacts, describe_options
    from ort_core.providers.provider import Available, ExecutionProvider, Unavailable
    from ort_core.providers.roofline import Bandwidth, Roofline
    from ort_core.providers.step_facts import MemoryFacts, StepFacts
    from ort_core.providers.thread_options import ThreadOptions
    from ort_core.settings import environment_value

__all__ = [
    "PLUGIN_API", "AllocationLimitExceeded", "Available", "Bandwidth", "Capability", "Claim", "CompileRequest",
    "CompiledPartition", "DirectCalls", "DirectFunction", "EPFail", "EagerPartition", "ExecutionProvider", "GraphView",
    "InvalidArgument", "KernelFallbackState", "KernelPartition", "KernelProvider", "MemoryFacts", "NodeExecution",
    "NotImplemented", "OptionFacts", "OrtError", "OutputPlan", "PartitionPlan", "Pass", "PlainFunction", "Rejection",
    "Roofline", "RunState", "StepFacts", "ThreadOptions", "Unavailable", "body_path", "convex_groups",
    "describe_options", "environment_value", "filled", "frozen", "hand_out", "hookimpl", "keep_for_ever",
    "output_buffer", "output_names", "raise_interruption",
]  # fmt: skip

__getattr__, __dir__ = lazy_names(  # no plugin pays for names that it does not use
    __name__,
    {
        "ort_core.errors": ("AllocationLimitExceeded", "EPFail", "InvalidArgument", "NotImplemented", "OrtError"),
        "ort_core.frozen": ("frozen",),
        "ort_core.interruptions": ("raise_interruption",),
        "ort_core.ir.rejection": ("Rejection",),
        "ort_core.lifetimes": ("keep_for_ever",),
        "ort_core.passes.base": ("Pass",),
        "ort_core.providers.capability": ("Capability", "Claim", "GraphView"),
        "ort_core.providers.compiled": (
            "CompiledPartition", "CompileRequest", "DirectCalls", "DirectFunction", "OutputPlan", "PartitionPlan",
            "PlainFunction", "RunState",
        ),
        "ort_core.providers.eager_partition": ("EagerPartition", "filled", "hand_out", "output_buffer"),
        "ort_core.providers.execution": ("NodeExecution", "body_path", "output_names"),
        "ort_core.providers.grouping": ("convex_groups",),
        "ort_core.providers.hookspecs": ("PLUGIN_API", "hookimpl"),
        "ort_core.providers.kernel_fallback": ("KernelFallbackState",),
        "ort_core.providers.kernel_provider": ("KernelPartition", "KernelProvider"),
        "ort_core.providers.option_facts": ("OptionFacts", "describe_options"),
        "ort_core.providers.provider": ("Available", "ExecutionProvider", "Unavailable"),
        "ort_core.providers.roofline": ("Bandwidth", "Roofline"),
        "ort_core.providers.step_facts": ("MemoryFacts", "StepFacts"),
        "ort_core.providers.thread_options": ("ThreadOptions",),
        "ort_core.settings": ("environment_value",),
    },
)  # fmt: skip
