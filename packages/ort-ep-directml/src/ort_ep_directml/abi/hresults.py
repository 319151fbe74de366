"""HRESULTs by name, with what each means here and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

_DRIVER = "update the display driver; `ort doctor` tells which adapter is used"
_MEMORY = "the adapter's memory is used up: run smaller batches, close other sessions, or choose another device_id"
_DESCRIPTOR = "the descriptor is not one that this DirectML takes: please report it with the model"


@dataclass(frozen=True, slots=True)
class HResult:
    """One code.

    Attributes:
        name: as the headers name it.
        meaning: in words.
        advice: what to do.
        loses_device: the device is gone and everything made from it; only a new one helps.
    """

    name: str
    meaning: str
    advice: str = ""
    loses_device: bool = False


KNOWN = MappingProxyType({
    0x80004001: HResult("E_NOTIMPL", "not implemented", "install a newer DirectML: pip install onnxruntime-directml"),
    0x80004002: HResult("E_NOINTERFACE", "the object lacks this interface", "install a newer DirectML or Windows"),
    0x80004003: HResult("E_POINTER", "a pointer is null"),
    0x80004004: HResult("E_ABORT", "stopped"),
    0x80004005: HResult("E_FAIL", "failed without a reason", _DRIVER),
    0x8000FFFF: HResult("E_UNEXPECTED", "failed where it should not", _DRIVER),
    0x80070005: HResult("E_ACCESSDENIED", "access was denied"),
    0x8007000E: HResult("E_OUTOFMEMORY", "out of memory", _MEMORY),
    0x80070057: HResult("E_INVALIDARG", "an argument was refused", _DESCRIPTOR),
    0x8007007E: HResult("ERROR_MOD_NOT_FOUND", "a library was not found"),
    0x887A0001: HResult("DXGI_ERROR_INVALID_CALL", "a call was made out of order or with wrong arguments"),
    0x887A0002: HResult("DXGI_ERROR_NOT_FOUND", "there is no such adapter or entry"),
    0x887A0004: HResult(
        "DXGI_ERROR_UNSUPPORTED", "the adapter or this Windows cannot do it", "choose another device_id, or " + _DRIVER
    ),
    0x887A0005: HResult(
        "DXGI_ERROR_DEVICE_REMOVED", "the device was removed, or DirectML gave up on it", _DRIVER, loses_device=True
    ),
    0x887A0006: HResult(
        "DXGI_ERROR_DEVICE_HUNG", "the device did not finish its commands in time", _DRIVER, loses_device=True
    ),
    0x887A0007: HResult(
        "DXGI_ERROR_DEVICE_RESET", "the device was reset by a broken command", _DRIVER, loses_device=True
    ),
    0x887A0020: HResult(
        "DXGI_ERROR_DRIVER_INTERNAL_ERROR", "the driver failed and was removed", _DRIVER, loses_device=True
    ),
    0x887A0022: HResult("DXGI_ERROR_NOT_CURRENTLY_AVAILABLE", "not available just now", "try again"),
    0x887A002D: HResult("DXGI_ERROR_SDK_COMPONENT_MISSING", "the debug layer is not installed"),
    0x887E0001: HResult("D3D12_ERROR_ADAPTER_NOT_FOUND", "a cached program was made for another adapter"),
    0x887E0002: HResult("D3D12_ERROR_DRIVER_VERSION_MISMATCH", "a cached program was made by another driver"),
})  # fmt: skip


def described(code: int) -> HResult:
    """Return what is known of a code, signed or not; its digits where nothing is."""
    found = KNOWN.get(code & 0xFFFFFFFF)
    return found or HResult(f"HRESULT {code & 0xFFFFFFFF:#010x}", "an unknown failure")


class HResultError(Exception):
    """A call returned a failure.

    Args:
        code: the HRESULT, signed or not.
        doing: the call.
    """

    POINTER: ClassVar[int] = 0x80004003
    DEVICE_REMOVED: ClassVar[int] = 0x887A0005

    def __init__(self, code: int, doing: str) -> None:
        self.code = code & 0xFFFFFFFF
        self.doing = doing
        known = described(code)
        self.loses_device = known.loses_device
        advice = f"; {known.advice}" if known.advice else ""
        super().__init__(f"{doing} returned {known.name} ({self.code:#010x}): {known.meaning}{advice}")
