"""ReferenceExecutionProvider: the numpy kernels, without any optimization of its own. The oracle."""

from __future__ import annotations

from typing import ClassVar

from ort_core.providers.kernel_provider import KernelProvider


class ReferenceExecutionProvider(KernelProvider):
    """Runs every operator by its numpy reference kernel; used only when asked for by name."""

    name: ClassVar[str] = "ReferenceExecutionProvider"
    is_listed: ClassVar[bool] = False
    priority: ClassVar[int] = -100
