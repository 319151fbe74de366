"""The provider on the rig: all of the package, and the real DirectML, over a device of Python."""

from __future__ import annotations

import ctypes

from directml_rig.rig import the_rig

from ort_ep_directml.abi.com import HRESULT, POINTER
from ort_ep_directml.libraries import Function, Libraries
from ort_ep_directml.provider import DmlExecutionProvider

_U = ctypes.c_uint32


class RigDmlExecutionProvider(DmlExecutionProvider):
    """As DmlExecutionProvider, with the rig's libraries."""

    name = "RigDmlExecutionProvider"

    @classmethod
    def libraries(cls, path: str) -> Libraries:
        rig = the_rig()
        return Libraries(
            _function(rig.directml, "DMLCreateDevice1", POINTER, _U, _U, POINTER, POINTER),
            _function(rig.d3d12, "D3D12CreateDevice", POINTER, _U, POINTER, POINTER),
            _function(rig.dxcore, "DXCoreCreateAdapterFactory", POINTER, POINTER),
            None,
            path or str(rig.library),
        )


def _function(library: ctypes.CDLL, name: str, *arguments: type) -> Function:
    return ctypes.CFUNCTYPE(HRESULT, *arguments)((name, library))
