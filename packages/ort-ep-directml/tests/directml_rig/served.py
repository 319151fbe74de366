"""COM objects written in Python: method tables whose entries call Python methods, references counted."""

from __future__ import annotations

import ctypes
import threading
import uuid
from collections import Counter
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from directml_rig.errors import RuleBrokenError
from ort_ep_directml.abi.com import HRESULT, UNKNOWN, Guid, Interface, Method

ServedT = TypeVar("ServedT", bound="Served")
OK = 0
NOT_IMPLEMENTED = 0x80004001
NO_INTERFACE = 0x80004002
FAILED = 0x80004005
INVALID_ARGUMENT = 0x80070057
NOT_FOUND = 0x887A0002
DEVICE_REMOVED = 0x887A0005


class Ledger:
    """What everybody who serves objects shares: which are alive, and what went wrong in calls from native code.

    A callback cannot raise: its error is kept here, and the tests ask for it.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.faults: list[Exception] = []
        self.objects: dict[int, Served] = {}

    def alive(self) -> Counter[str]:
        """How many objects of each interface are referenced."""
        with self.lock:
            return Counter(each.interface.name for each in self.objects.values())

    def found(self, address: int | None, kind: type[ServedT]) -> ServedT:
        """Return the object at an address.

        Raises:
            RuleBrokenError: none is there, or another kind.
        """
        found = self.objects.get(address or 0)
        if not isinstance(found, kind):
            what = "nothing that is alive" if found is None else found.interface.name
            raise RuleBrokenError(f"a call takes {kind.interface.name}, and was given {what} (at {address or 0:#x})")
        return found


def implements(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Say which method of an interface a Python method is."""

    def attach(function: Callable[..., Any]) -> Callable[..., Any]:
        function.com_name = name  # type: ignore[attr-defined]  # the mark that the table is made from
        return function

    return attach


class Served:
    """An object that native code may call; it lives as long as somebody holds a reference.

    Args:
        ledger: where it is entered.
    """

    interface: ClassVar[Interface]
    answers: ClassVar[tuple[Interface, ...]]
    """The interfaces that it is, all with the same table."""
    _table: ClassVar[ctypes.Array]
    _entries: ClassVar[list[Any]]

    def __init_subclass__(cls) -> None:
        if "interface" in cls.__dict__:
            methods = {f.com_name: f for k in reversed(cls.__mro__) for f in vars(k).values() if hasattr(f, "com_name")}
            cls._entries = [_entry(cls.interface, method, methods.get(method.name)) for method in cls.interface.methods]
            addresses = [ctypes.cast(entry, ctypes.c_void_p).value for entry in cls._entries]
            cls._table = (ctypes.c_void_p * len(addresses))(*addresses)

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self._references = 1
        self._memory = (ctypes.c_void_p * 2)(ctypes.addressof(self._table), 0)
        self.address = ctypes.addressof(self._memory)
        self._private: dict[str, bytes | int] = {}
        with ledger.lock:
            ledger.objects[self.address] = self
        _LEDGERS[self.address] = ledger

    @property
    def removed(self) -> int:
        """The failure that every call returns from now on; zero while the device lives."""
        return 0

    def destroyed(self) -> None:
        """Give back what the object holds: nobody refers to it any more."""

    @implements("QueryInterface")
    def query_interface(self, iid: int, result: int) -> int:
        wanted = str(Guid.from_address(iid))
        known = {str(UNKNOWN.iid), *(str(each.iid) for each in self.answers)}
        if wanted not in known:
            put(result, None)
            return NO_INTERFACE
        self.add_ref()
        put(result, self.address)
        return OK

    @implements("AddRef")
    def add_ref(self) -> int:
        self._references += 1
        return self._references

    @implements("Release")
    def release(self) -> int:
        self._references -= 1
        if self._references == 0:
            del self.ledger.objects[self.address]
            self.destroyed()
        return self._references


class ServedObject(Served):
    """An object with data that others attach to it: ID3D12Object."""

    @implements("GetPrivateData")
    def get_private_data(self, guid: int, size: int, data: int) -> int:
        found = self._private.get(_guid(guid))
        if found is None:
            return NOT_FOUND
        raw = found if isinstance(found, bytes) else found.to_bytes(8, "little")
        ctypes.c_uint32.from_address(size).value = len(raw)
        if data:
            ctypes.memmove(data, raw, len(raw))
            if isinstance(found, int):
                _reference(found, +1)
        return OK

    @implements("SetPrivateData")
    def set_private_data(self, guid: int, size: int, data: int) -> int:
        self._forget(guid)
        if data:
            self._private[_guid(guid)] = ctypes.string_at(data, size)
        return OK

    @implements("SetPrivateDataInterface")
    def set_private_data_interface(self, guid: int, data: int) -> int:
        self._forget(guid)
        if data:
            _reference(data, +1)
            self._private[_guid(guid)] = data
        return OK

    @implements("SetName")
    def set_name(self, name: int) -> int:
        return OK

    def _forget(self, guid: int) -> None:
        old = self._private.pop(_guid(guid), None)
        if isinstance(old, int):
            _reference(old, -1)

    def destroyed(self) -> None:
        for each in list(self._private.values()):
            if isinstance(each, int):
                _reference(each, -1)
        self._private.clear()


_LEDGERS: dict[int, Ledger] = {}  # by address: native code gives an address, and nothing else


def put(pointer: int, value: int | None) -> None:
    """Write a pointer where a caller wants it."""
    ctypes.c_void_p.from_address(pointer).value = value


def give(made: Served, result: int) -> int:
    """Hand a new object, whose one reference is the caller's, out."""
    put(result, made.address)
    return OK


def _guid(address: int) -> str:
    return str(uuid.UUID(bytes_le=ctypes.string_at(address, 16)))


def _reference(address: int, change: int) -> None:
    """AddRef or Release an object of somebody else."""
    table = ctypes.c_void_p.from_address(address).value or 0
    entry = ctypes.c_void_p.from_address(table + 8 * (1 if change > 0 else 2)).value or 0
    ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_void_p)(entry)(address)


def _entry(interface: Interface, method: Method, function: Callable[..., Any] | None) -> Any:
    """One entry of a method table: a C function that calls the Python method of the object it is given."""
    label = f"{interface.name}.{method.name}"
    result, hidden = _result(method)
    arguments = [_argument(kind) for kind in method.arguments or ()]

    def call(this: int, *given: int | None) -> int:
        ledger = _LEDGERS[this]
        with ledger.lock:
            served = ledger.objects.get(this)
            try:
                if served is None:
                    raise RuleBrokenError(f"{label} is called on an object that is released")
                if function is None:
                    raise RuleBrokenError(f"{label} is not one that the rig has")
                if method.result is HRESULT and served.removed and method.name != "GetDeviceRemovedReason":
                    return _signed(served.removed)
                found = function(served, *(value or 0 for value in given))
            except Exception as error:  # noqa: BLE001  # it cannot cross native code; the tests are told of it
                ledger.faults.append(error)
                return _signed(FAILED) if method.result is HRESULT else 0
        return _signed(found) if method.result is HRESULT else found

    if hidden:

        def returning(memory: int, this: int, *given: int | None) -> int:
            found = call(this, *given)
            if isinstance(found, ctypes.Structure):
                ctypes.memmove(memory, ctypes.addressof(found), ctypes.sizeof(found))
            return memory

        return ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, *arguments)(returning)
    return ctypes.CFUNCTYPE(result, ctypes.c_void_p, *arguments)(call)


def _result(method: Method) -> tuple[Any, bool]:
    """The C type that an entry returns, and whether a struct goes through memory of the caller (System V, x86-64)."""
    kind = method.result
    if kind is None or not issubclass(kind, ctypes.Structure):
        return kind, False
    return (ctypes.c_uint64, False) if ctypes.sizeof(kind) <= 8 else (None, True)


def _argument(kind: type) -> type:
    """A struct of one word travels as the word."""
    return ctypes.c_uint64 if issubclass(kind, ctypes.Structure) else kind


def _signed(code: int) -> int:
    return code - (1 << 32) if code >= 1 << 31 else code
