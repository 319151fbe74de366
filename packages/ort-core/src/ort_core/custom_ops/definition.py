"""OpDefinition: everything the engine knows of one version of a user's operator, as facts; what a library holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from ort_core.frozen import frozen
from ort_core.ir.model import Function
from ort_core.kernels.device_kernel import DeviceKernel
from ort_core.kernels.kernel import KernelFunction
from ort_core.loops.rows import OpMeaning
from ort_core.ops.infer_rule import RuleFunction
from ort_core.ops.schema import OpSchema


@frozen
class OpDefinition:
    """One version of an operator. Only the names are needed, and a ``kernel`` or a ``function`` to run it.

    ``schema``: inputs, outputs, attributes and types; without it nothing is checked before a run. ``kernel``: over
    numpy. ``infer``: types and shapes of the outputs. ``meaning``: what it computes of one element, or of one row, for
    compilers. ``device_kernels``: by kind of device (``"cuda"``). ``function``: an ONNX function that stands for every
    node. ``origin``: where it was written, for messages.
    """

    domain: str
    op_type: str
    since_version: int = 1
    schema: OpSchema | None = None
    kernel: KernelFunction | None = None
    infer: RuleFunction | None = None
    meaning: OpMeaning | None = None
    device_kernels: Mapping[str, DeviceKernel] = field(default_factory=dict)
    function: Function | None = None
    origin: str = ""

    @property
    def key(self) -> tuple[str, str, int]:
        """The name under which two libraries may not both have an operator."""
        return (self.domain, self.op_type, self.since_version)

    @property
    def qualified_name(self) -> str:
        """The name for messages."""
        return f"{self.domain or 'ai.onnx'}::{self.op_type} version {self.since_version}"
