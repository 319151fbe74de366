"""SessionOptions and RunOptions: typed attributes with onnxruntime's names; an unknown name is an error."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ort_core.lazy_names import lazy_names
from ort_core.options.choices import ExecutionMode as ExecutionMode
from ort_core.options.choices import ExecutionOrder as ExecutionOrder
from ort_core.options.choices import GraphOptimizationLevel as GraphOptimizationLevel
from ort_core.options.option import Option as Option
from ort_core.options.session_options import ContextReader as ContextReader
from ort_core.options.session_options import SessionOptions as SessionOptions

if TYPE_CHECKING:
    from ort_core.options.rare_choices import OrtCompileApiFlags as OrtCompileApiFlags
    from ort_core.options.rare_choices import OrtCompiledModelCompatibility as OrtCompiledModelCompatibility
    from ort_core.options.rare_choices import OrtDeviceEpIncompatibilityReason as OrtDeviceEpIncompatibilityReason
    from ort_core.options.rare_choices import OrtExecutionProviderDevicePolicy as OrtExecutionProviderDevicePolicy
    from ort_core.options.run_options import RunOptions as RunOptions

__all__ = [
    "ContextReader", "ExecutionMode", "ExecutionOrder", "GraphOptimizationLevel", "Option", "OrtCompileApiFlags",
    "OrtCompiledModelCompatibility", "OrtDeviceEpIncompatibilityReason", "OrtExecutionProviderDevicePolicy",
    "RunOptions", "SessionOptions",
]  # fmt: skip

__getattr__, __dir__ = lazy_names(  # no session needs these to load a model
    __name__,
    {
        "ort_core.options.rare_choices": (
            "OrtCompileApiFlags", "OrtCompiledModelCompatibility", "OrtDeviceEpIncompatibilityReason",
            "OrtExecutionProviderDevicePolicy",
        ),
        "ort_core.options.run_options": ("RunOptions",),
    },
)  # fmt: skip
