"""OpenVinoExecutionProvider: claims what OpenVINO computes as the specification says, and compiles each claim whole."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, ClassVar, cast

from ort_core.plugin import (
    Available,
    Capability,
    CompiledPartition,
    CompileRequest,
    ExecutionProvider,
    GraphView,
    Rejection,
    Unavailable,
)
from ort_ep_openvino import _sdk
from ort_ep_openvino.options import OpenVinoOptions

if TYPE_CHECKING:
    from ort_ep_openvino.support_cache import SupportCacheState


class OpenVinoExecutionProvider(ExecutionProvider):
    """Runs subgraphs as OpenVINO models, in the model's own precision unless the user allows less."""

    name: ClassVar[str] = "OpenVINOExecutionProvider"
    options_type: ClassVar[type] = OpenVinoOptions
    is_listed: ClassVar[bool] = False  # installing a package moves no model: it is used where a session names it
    priority: ClassVar[int] = 50

    @classmethod
    def check(cls) -> Available | Unavailable:
        """Return whether OpenVINO can be loaded and sees a device."""
        return _sdk.find_devices()

    def check_device(self) -> Available | Unavailable:
        """Return whether OpenVINO sees the device of the options."""
        absent = _sdk.find_absence(self._options.device)
        return Available() if absent is None else Unavailable(absent, "install its driver, or name another device_type")

    def get_capability(self, view: GraphView) -> Capability:
        """Return claims of convex groups, and a reason for every node that is left."""
        from ort_ep_openvino.capability import find_capability

        return find_capability(view, self._options, self._support)

    def compile(self, request: CompileRequest) -> CompiledPartition:
        """Compile one claim to an OpenVINO model, or take it from the cache.

        Raises:
            EPFail: OpenVINO could not read or compile it.
        """
        from ort_ep_openvino.compilation import compile_partition

        return compile_partition(request, self._options, self.cache_key())

    def load(self, blob: bytes, request: CompileRequest) -> CompiledPartition | Rejection:
        """Restore what ``OpenVinoPartition.serialize`` wrote, or say why it does not fit here."""
        from ort_ep_openvino.compilation import load_partition

        return load_partition(blob, request, self._options, self.cache_key())

    def cache_key(self) -> str:
        """Return OpenVINO's version, the device with its driver's name, and the options."""
        return f"{self.name}|{_sdk.version()}|{_sdk.device_name(self._options.device)}|{self.options!r}"

    @functools.cached_property
    def _support(self) -> SupportCacheState:
        from ort_ep_openvino.support_cache import SupportCacheState

        return SupportCacheState(f"{_sdk.version()}|{_sdk.device_name(self._options.device)}")

    @property
    def _options(self) -> OpenVinoOptions:
        return cast(OpenVinoOptions, self.options)
