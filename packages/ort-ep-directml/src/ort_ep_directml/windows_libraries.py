"""Where Windows keeps DirectML, Direct3D 12, DXCore and DXGI, and opening them.

DirectML is searched for in this order: the file of the option ``directml_path``; the one beside onnxruntime, which the
package onnxruntime-directml brings (1.15.4, the newest); the one of Windows (1.8 or 1.13, by its version).
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

from ort_core.plugin import Unavailable
from ort_ep_directml.abi.com import HRESULT, POINTER
from ort_ep_directml.libraries import Function, Libraries

DLL = "DirectML.dll"
INSTALL = "pip install onnxruntime-directml brings the newest DirectML.dll; the option directml_path names another"
_NEWER_WINDOWS = "Windows 10, version 1903 or newer, has it"


def find_libraries(path: str = "") -> Libraries | Unavailable:
    """Return the libraries of this machine, or why they are not here. Never raises.

    Args:
        path: the DirectML library; empty: it is searched for.
    """
    if sys.platform != "win32":
        return Unavailable(
            f"DirectML runs on Windows; this is {sys.platform}",
            "`ort explain` tells here, too, what it would take; NVIDIA GPUs run by ort-ep-cuda on Linux",
        )
    if ctypes.sizeof(ctypes.c_void_p) != 8:
        return Unavailable(
            "DirectML is called by the conventions of 64 bits; this Python has 32", "use a 64-bit Python"
        )
    tried = candidates(path)
    found = next((each for each in tried if each.is_file()), None)
    if found is None:
        return Unavailable(f"there is no {DLL}: not {' nor '.join(map(str, tried))}", INSTALL)
    return open_libraries(found, system_folder())


def candidates(path: str) -> tuple[Path, ...]:
    """Return where DirectML is searched for, in order; with a path, only there."""
    if path:
        return (Path(path).resolve(),)  # a bare name would be searched for elsewhere
    return (*_beside_onnxruntime(), system_folder() / DLL)


def system_folder() -> Path:
    """Return the folder of Windows' own libraries."""
    return Path(os.environ.get("SYSTEMROOT", r"C:\Windows")) / "System32"


@functools.cache  # a process loads a library once, and shares what it holds by it
def open_libraries(directml: Path, system: Path) -> Libraries | Unavailable:
    """Open DirectML, and what it needs from a folder, or say what cannot be opened.

    Args:
        directml: the file.
        system: the folder with d3d12.dll, dxcore.dll and dxgi.dll.
    """
    try:
        create_dml = _function(
            directml, "DMLCreateDevice1", POINTER, ctypes.c_uint32, ctypes.c_uint32, POINTER, POINTER
        )
    except (OSError, AttributeError) as error:
        return Unavailable(f"{directml} cannot be used: {error}", INSTALL)
    try:
        create_d3d12 = _function(system / "d3d12.dll", "D3D12CreateDevice", POINTER, ctypes.c_uint32, POINTER, POINTER)
        create_dxgi = _function(system / "dxgi.dll", "CreateDXGIFactory1", POINTER, POINTER)
        dxcore = system / "dxcore.dll"
        has_dxcore = dxcore.is_file()
        create_dxcore = _function(dxcore, "DXCoreCreateAdapterFactory", POINTER, POINTER) if has_dxcore else None
    except (OSError, AttributeError) as error:
        return Unavailable(f"Direct3D 12 cannot be used: {error}", _NEWER_WINDOWS)
    return Libraries(create_dml, create_d3d12, create_dxcore, create_dxgi, str(directml))


def _beside_onnxruntime() -> tuple[Path, ...]:
    """Return the place of the DLL in an installed onnxruntime; it is not imported."""
    found = importlib.util.find_spec("onnxruntime")
    if found is None or found.origin is None:
        return ()
    return (Path(found.origin).parent / "capi" / DLL,)


def _function(path: Path, name: str, *arguments: Any) -> Function:  # Any: types of ctypes
    """Return an exported function.

    Raises:
        OSError: the library cannot be opened.
        AttributeError: it has no such function.
    """
    function = getattr(ctypes.CDLL(str(path)), name)
    function.restype = HRESULT
    function.argtypes = arguments
    return function
