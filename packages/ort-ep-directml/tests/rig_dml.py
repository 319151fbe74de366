"""The provider on the rig, as a class: everything of it but its libraries is what runs on Windows."""

from __future__ import annotations

import ctypes
import functools
from typing import TYPE_CHECKING, Any, ClassVar

from ort_core.plugin import Unavailable
from ort_ep_directml.abi.com import HRESULT
from ort_ep_directml.libraries import Function, Libraries
from ort_ep_directml.provider import DmlExecutionProvider

if TYPE_CHECKING:
    from directml_rig.rig import Rig

_P, _U = ctypes.c_void_p, ctypes.c_uint32


class RigDmlProvider(DmlExecutionProvider):
    """As DmlExecutionProvider, on the real DirectML for Linux and a device of Python."""

    name: ClassVar[str] = "DmlRigExecutionProvider"

    @classmethod
    def libraries(cls, path: str) -> Libraries | Unavailable:
        from directml_rig.errors import RigUnavailableError
        from directml_rig.rig import the_rig

        try:
            rig = the_rig()
        except RigUnavailableError as error:
            return Unavailable(str(error))
        return _libraries(rig, path or rig.library.name)


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
