"""The provider on the rig: everything of it but its libraries is what runs on Windows."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from directml_rig.errors import RigUnavailableError
from directml_rig.rig import Rig, the_rig

import ort_core as ort
from ort_core.plugin import Unavailable
from ort_core.testing.environments import installed
from ort_core.testing.fake_providers import plugin_of
from ort_core.testing.models import model_of
from ort_ep_directml.abi.com import HRESULT
from ort_ep_directml.libraries import Function, Libraries
from ort_ep_directml.provider import DmlExecutionProvider

_P, _U = ctypes.c_void_p, ctypes.c_uint32


class RigDmlProvider(DmlExecutionProvider):
    """As DmlExecutionProvider, on the real DirectML for Linux and a device of Python."""

    name: ClassVar[str] = "DmlRigExecutionProvider"

    @classmethod
    def libraries(cls, path: str) -> Libraries | Unavailable:
        try:
            rig = the_rig()
        except RigUnavailableError as error:
            return Unavailable(str(error))
        return _libraries(rig, path or str(rig.library))


@functools.cache  # the process's, as on Windows
def _libraries(rig: Rig, origin: str) -> Libraries:
    return Libraries(
        dml_create_device=_function(rig.directml, "DMLCreateDevice1", _P, _U, _U, _P, _P),
        d3d12_create_device=_function(rig.d3d12, "D3D12CreateDevice", _P, _U, _P, _P),
        dxcore_create_factory=_function(rig.dxcore, "DXCoreCreateAdapterFactory", _P, _P),
        dxgi_create_factory=None,
        origin=origin,
    )


def _function(library: ctypes.CDLL, name: str, *arguments: Any) -> Function:
    function = getattr(library, name)
    function.restype = HRESULT
    function.argtypes = arguments
    return function


def rig_plugin():
    """The provider as an installed package would bring it."""
    return plugin_of(RigDmlProvider, name="directml_rig")


def session_of(model: object, *, options: Mapping[str, object] | None = None, strict: bool = True):
    """A session on the rig alone; a node that it refuses is an error when ``strict``. Text is that of a graph."""
    settings = ort.SessionOptions()
    settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    settings.strict_placement = strict
    source = model_of(model, opsets='"" : 21, "com.microsoft" : 1') if isinstance(model, str) else model
    providers: list[Any] = [(RigDmlProvider.name, dict(options or {}))]
    providers += [] if strict else ["CPUExecutionProvider"]
    with installed(rig_plugin()):
        return ort.InferenceSession(source, settings, providers=providers, enable_fallback=False)


def run(model: object, feeds: Mapping[str, np.ndarray], **arguments: Any) -> list[np.ndarray]:
    """Results of a graph on the rig."""
    with session_of(model, **arguments) as session:
        return session.run(None, feeds)
