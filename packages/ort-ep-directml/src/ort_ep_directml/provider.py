"""DmlExecutionProvider: claims regions of graphs and runs each as one graph of DirectML."""

from __future__ import annotations

import functools
from typing import ClassVar, cast

from ort_core.plugin import (
    Available,
    Capability,
    CompiledPartition,
    CompileRequest,
    EPFail,
    ExecutionProvider,
    GraphView,
    OrtError,
    Unavailable,
)
from ort_ep_directml.abi.hresults import HResultError
from ort_ep_directml.adapters import choose_adapter
from ort_ep_directml.device_holder import DeviceHolder, shared_holder
from ort_ep_directml.libraries import Libraries
from ort_ep_directml.options import DmlOptions
from ort_ep_directml.runtime.device import NEWEST, DeviceFacts, DmlDevice


class DmlExecutionProvider(ExecutionProvider):
    """Runs on every DirectX 12 GPU and NPU of Windows, in the model's own types unless the user allows less."""

    name: ClassVar[str] = "DmlExecutionProvider"
    options_type: ClassVar[type] = DmlOptions
    priority: ClassVar[int] = 60
    folds_parts: ClassVar[bool] = True  # it has no operators over constants: a graph takes them as they are
    is_listed: ClassVar[bool] = False  # installing a package moves no model: it is used where a session names it

    @classmethod
    def check(cls) -> Available | Unavailable:
        """Return whether DirectML and an adapter are here, and why not. Never raises."""
        found = cls.libraries("")
        if isinstance(found, Unavailable):
            return found
        try:
            device = DmlDevice(found, choose_adapter(found, DmlOptions()))
        except (HResultError, OrtError) as error:
            return Unavailable(f"DirectML cannot use this machine's adapters: {error}", "update the display driver")
        text = device.text()
        device.close()
        return Available(text)

    @classmethod
    def libraries(cls, path: str) -> Libraries | Unavailable:
        """Return DirectML and what it stands on; a path names DirectML's file."""
        from ort_ep_directml.windows_libraries import find_libraries

        return find_libraries(path)

    @classmethod
    def device_text(cls) -> str:
        """Return ``dml``."""
        return "dml"

    def get_capability(self, view: GraphView) -> Capability:
        """Return claims, and a reason for every node that is left; without a device, for the newest DirectML."""
        from ort_ep_directml.capability import find_capability
        from ort_ep_directml.graph import refusal_of
        from ort_ep_directml.schema.tensor_types import TABLE_LEVEL

        facts, is_fused = self.facts, not self._options.disable_graph_fusion
        lacking = NEWEST.dtypes - facts.dtypes
        if facts.level >= TABLE_LEVEL:
            return find_capability(view, facts.level, lacking, is_fused=is_fused)
        with self.holder.use() as device:
            asks = functools.partial(refusal_of, device.dml)
            return find_capability(view, facts.level, lacking, is_fused=is_fused, device_refusal=asks)

    def compile(self, request: CompileRequest) -> CompiledPartition:
        """Return a partition; with fixed shapes its graph is compiled at once, else when the first shapes come.

        Raises:
            EPFail: DirectML is not here, or does not take the graph.
        """
        from ort_ep_directml.partition import DmlPartition

        return DmlPartition(request, self.holder, self._options)

    def cache_key(self) -> str:
        """Return the device and the options."""
        return f"{self.name}|{self.facts.level:#x}|{self.options!r}"

    @functools.cached_property
    def holder(self) -> DeviceHolder:
        """The device, which other sessions of the process may share.

        Raises:
            EPFail: DirectML is not here.
            InvalidArgument: the options choose no adapter.
            HResultError: the system could not list adapters.
        """
        found = type(self).libraries(self._options.directml_path)
        if isinstance(found, Unavailable):
            raise EPFail(str(found))
        return shared_holder(found, self._options)

    @functools.cached_property
    def facts(self) -> DeviceFacts:
        """What the device can do; what the newest DirectML can where there is none.

        Raises:
            HResultError: there is one, and it cannot be used.
        """
        if isinstance(type(self).libraries(self._options.directml_path), Unavailable):
            return NEWEST
        with self.holder.use() as device:
            return device.facts

    @property
    def _options(self) -> DmlOptions:
        return cast(DmlOptions, self.options)
