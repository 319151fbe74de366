"""TemplateExecutionProvider: claims subgraphs and compiles each to one program."""

from __future__ import annotations

from typing import ClassVar, cast

from ort_core.plugin import (
    Available,
    Capability,
    CompiledPartition,
    CompileRequest,
    ExecutionProvider,
    GraphView,
    Unavailable,
)
from ort_ep_template._sdk import find_device
from ort_ep_template.options import TemplateOptions


class TemplateExecutionProvider(ExecutionProvider):
    """Runs float32 arithmetic."""

    name: ClassVar[str] = "TemplateExecutionProvider"
    is_listed: ClassVar[bool] = False  # True: sessions that name no provider use this one wherever it can run
    options_type: ClassVar[type] = TemplateOptions

    @classmethod
    def check(cls) -> Available | Unavailable:
        """Return whether the SDK sees a device."""
        return find_device()

    def get_capability(self, view: GraphView) -> Capability:
        """Return claims, and a reason for every node that is left."""
        from ort_ep_template.capability import find_capability

        return find_capability(view, cast(TemplateOptions, self.options))

    def compile(self, request: CompileRequest) -> CompiledPartition:
        """Compile one claim."""
        from ort_ep_template.compiled import TemplatePartition

        return TemplatePartition(request)
