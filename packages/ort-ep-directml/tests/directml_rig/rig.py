"""The rig as a whole: the real DirectML, loaded once into this process, on devices of Python."""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path

from directml_rig import fetch
from directml_rig.adapters import AdapterFactory
from directml_rig.device import Counts, Device
from directml_rig.errors import RuleBrokenError
from directml_rig.root_signature import serialized
from directml_rig.served import INVALID_ARGUMENT, OK, Ledger, Served, give, implements, put
from ort_ep_directml.abi.com import HRESULT, UNKNOWN, Interface, Method

_BLOB = Interface(
    "ID3DBlob",
    "8ba5fb08-5195-40e2-ac58-0d989c3a0102",
    UNKNOWN,
    Method("GetBufferPointer", ctypes.c_void_p, ()),
    Method("GetBufferSize", ctypes.c_size_t, ()),
)
_P = ctypes.c_void_p
_CREATE_DEVICE = ctypes.CFUNCTYPE(HRESULT, _P, ctypes.c_uint32, _P, _P)
_SERIALIZE = ctypes.CFUNCTYPE(HRESULT, _P, _P, _P)
_CREATE_FACTORY = ctypes.CFUNCTYPE(HRESULT, _P, _P)


class Blob(Served):
    """Bytes that somebody holds a reference of."""

    interface = _BLOB
    answers = (_BLOB,)

    def __init__(self, ledger: Ledger, content: bytes) -> None:
        super().__init__(ledger)
        self._content = ctypes.create_string_buffer(content, len(content))

    @implements("GetBufferPointer")
    def get_buffer_pointer(self) -> int:
        return ctypes.addressof(self._content)

    @implements("GetBufferSize")
    def get_buffer_size(self) -> int:
        return len(self._content)


class Rig:
    """DirectML, Direct3D and DXCore as one finds them on Windows, to be asked for by their exported functions.

    Raises:
        RigUnavailableError: something that it is made of is missing; the text says what, and how to get it.
    """

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.device: Device | None = None
        self.library: Path = fetch.library()
        # Loaded before DirectML, and by their names those that it asks for
        self.d3d12 = ctypes.CDLL(str(fetch.shim("d3d12")), mode=ctypes.RTLD_GLOBAL)
        self.dxcore = ctypes.CDLL(str(fetch.shim("dxcore")), mode=ctypes.RTLD_GLOBAL)
        self._callbacks = (
            _CREATE_DEVICE(self._guarded(self._create_device)),
            _SERIALIZE(self._guarded(self._serialize)),
            _CREATE_FACTORY(self._guarded(self._create_factory)),
        )
        self.d3d12.rig_set_d3d12(*self._callbacks[:2])
        self.dxcore.rig_set_dxcore(self._callbacks[2])
        self.directml = ctypes.CDLL(str(self.library))

    @property
    def counts(self) -> Counts:
        """What the present device has done."""
        return self.device.counts if self.device is not None else Counts()

    def faults(self) -> list[Exception]:
        """Return, and forget, the rules that were broken and whatever else went wrong in calls from native code."""
        with self.ledger.lock:
            found, self.ledger.faults = self.ledger.faults, []
            return found

    def remove_device(self) -> None:
        """Lose the device, as when a driver is updated or fails."""
        if self.device is None:
            raise RuleBrokenError("there is no device to remove")
        self.device.remove()

    def forget_device(self) -> None:
        """Let the next who asks have a new device, even where somebody holds the present one."""
        self.device = None

    def _guarded(self, function):
        def call(*arguments: int | None) -> int:
            with self.ledger.lock:
                try:
                    return function(*arguments)
                except Exception as error:  # noqa: BLE001  # it cannot cross native code; the tests are told of it
                    self.ledger.faults.append(error)
                    return INVALID_ARGUMENT - (1 << 32)

        return call

    def _create_device(self, adapter: int | None, level: int, iid: int, result: int | None) -> int:
        """One device for an adapter while somebody holds it, lost or not, as Direct3D has it."""
        known = self.device
        if known is not None and self.ledger.objects.get(known.address) is known:
            return known.query_interface(iid, result) if result else OK
        if not result:
            return OK
        self.device = Device(self.ledger)
        return give(self.device, result)

    def _serialize(self, desc: int, blob: int, error: int | None) -> int:
        if error:
            put(error, None)
        return give(Blob(self.ledger, serialized(desc)), blob)

    def _create_factory(self, iid: int, result: int) -> int:
        return give(AdapterFactory(self.ledger), result)


@functools.cache
def the_rig() -> Rig:
    """Return the rig of this process: a library is loaded once.

    Raises:
        RigUnavailableError: it cannot be had here.
    """
    return Rig()
