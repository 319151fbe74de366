"""The two providers, of TensorRT and of TensorRT-RTX: they differ in SDK, name and options, and in nothing else."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Mapping
from typing import ClassVar, Protocol, cast

from ort_core.plugin import (
    Available,
    Capability,
    CompiledPartition,
    CompileRequest,
    ExecutionProvider,
    GraphView,
    InvalidArgument,
    NotImplemented,
    Rejection,
    Unavailable,
)
from ort_ep_tensorrt import _sdk
from ort_ep_tensorrt.environment_options import variables_for
from ort_ep_tensorrt.options import TensorrtOptions
from ort_ep_tensorrt.options_rtx import RtxOptions
from ort_ep_tensorrt.settings import BuildSettings

log = logging.getLogger(__name__)


class HasSettings(Protocol):
    """Options of either provider."""

    def settings(self) -> BuildSettings:
        """Return what they mean."""


class EngineProvider(ExecutionProvider):
    """Builds engines of claims and runs them on an NVIDIA GPU, in the model's own types."""

    kind: ClassVar[_sdk.Kind]
    takes_parts: ClassVar[bool] = False  # it takes nodes apart itself: the parser names those that it lacks
    is_listed: ClassVar[bool] = False  # builds take minutes: it is used where a session names it

    @classmethod
    def check(cls) -> Available | Unavailable:
        """Return whether the SDK is installed and can load engines here."""
        return _sdk.find_device(cls.kind)

    @classmethod
    def device_text(cls) -> str:
        """Return ``cuda``."""
        return "cuda"

    def sdk(self) -> _sdk.Sdk:
        """Return the SDK.

        Raises:
            NotImplemented: it is not installed.
        """
        found = _sdk.load_sdk(self.kind)
        if isinstance(found, Unavailable):
            raise NotImplemented(str(found))
        found.load_plugins(self.settings.plugin_paths)
        return found

    def asked_sdk(self) -> _sdk.Sdk:
        """Return the SDK that is asked about claims: where this provider's is absent, the other's parser, which is kin.

        Raises:
            NotImplemented: neither is installed.
        """
        if not isinstance(_sdk.load_sdk(self.kind), Unavailable):
            return self.sdk()
        other = _sdk.load_sdk(_sdk.OTHER[self.kind])
        if isinstance(other, Unavailable):
            return self.sdk()
        log.warning(
            "%s is not installed: claims of %s are those of the parser of %s, which is kin to it and not the same",
            _sdk.TITLES[self.kind], self.name, other.version,
        )  # fmt: skip
        return other

    @functools.cached_property
    def settings(self) -> BuildSettings:
        """What the options mean."""
        return cast(HasSettings, self.options).settings()

    def get_capability(self, view: GraphView) -> Capability:
        """Return claims of convex groups, and a reason for every node that is left; needs the SDK, but no GPU."""
        from ort_ep_tensorrt.capability import find_capability

        return find_capability(view, self.asked_sdk(), self.settings)

    def compile(self, request: CompileRequest) -> CompiledPartition:
        """Return a partition whose engines are built, or taken from the cache, as shapes come.

        Raises:
            EPFail: no plugin offers CUDA devices, or TensorRT could not build an engine.
        """
        from ort_ep_tensorrt.compilation import compile_partition

        return compile_partition(request, self.sdk(), self.settings)

    def build(self, request: CompileRequest) -> Rejection | None:
        """Build the claim's engine and drop it; sizes that are not fixed are 2, values that decide shapes likely ones.

        Returns:
            Why nothing was built: another SDK was asked, or the values are open.

        Raises:
            SdkError: TensorRT did not build it.
        """
        from ort_ep_tensorrt.compilation import try_build

        found = _sdk.load_sdk(self.kind)
        if isinstance(found, Unavailable):
            return Rejection(f"nothing was built: {found}")
        return try_build(request, self.sdk(), self.settings)

    def load(self, blob: bytes, request: CompileRequest) -> CompiledPartition | Rejection:
        """Restore what ``TensorRtPartition.serialize`` wrote, or say why it does not fit here."""
        from ort_ep_tensorrt.compilation import load_partition

        return load_partition(blob, request, self.sdk(), self.settings)

    def cache_key(self) -> str:
        """Return the SDK's version and the options."""
        return f"{self.name}|{self.sdk().version}|{self.options!r}"


class TensorrtExecutionProvider(EngineProvider):
    """Engines of TensorRT."""

    name: ClassVar[str] = "TensorrtExecutionProvider"
    kind: ClassVar[_sdk.Kind] = "tensorrt"
    options_type: ClassVar[type] = TensorrtOptions
    priority: ClassVar[int] = 300

    def __init__(self, options: Mapping[str, object] | None = None) -> None:
        """Take the session's options, and those of the environment for what these leave out.

        Raises:
            InvalidArgument: one does not parse, or has no effect here; the message says where it comes from.
        """
        given = options or {}
        variables = variables_for(given, os.environ)
        found = {option: os.environ[name] for option, name in variables.items()}
        try:
            super().__init__({**found, **given})
        except InvalidArgument as error:
            if not variables:
                raise
            set_by = ", ".join(f"{name}={os.environ[name]}" for name in variables.values())
            raise InvalidArgument(f"{error}; the environment sets {set_by}") from error
        for option, name in variables.items():
            log.info("option %s is %r: the environment sets %s", option, os.environ[name], name)


class NvTensorRtRtxExecutionProvider(EngineProvider):
    """Engines of TensorRT-RTX, which compiles kernels when an engine is loaded."""

    name: ClassVar[str] = "NvTensorRTRTXExecutionProvider"
    kind: ClassVar[_sdk.Kind] = "tensorrt_rtx"
    options_type: ClassVar[type] = RtxOptions
    priority: ClassVar[int] = 310
