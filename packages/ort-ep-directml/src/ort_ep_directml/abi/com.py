"""COM objects through their method tables: an interface is a list of methods, a method is a slot and its types.

An object's address points to the address of its table; slot ``i`` of it is the ``i``-th method of the interface,
those of its base interfaces first. Every method that returns an HRESULT is checked.
"""

from __future__ import annotations

import ctypes
import uuid
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, TypeVar, cast

from ort_ep_directml.abi.hresults import HResultError
from ort_ep_directml.abi.struct_results import CType, bound_struct_method

HRESULT = ctypes.c_int32
"""What a method that may fail returns: negative is failure. Methods returning it are checked."""
POINTER = ctypes.c_void_p
"""Any pointer: an object, a struct, memory."""


StructT = TypeVar("StructT", bound=ctypes.Structure)


class Guid(ctypes.Structure):
    """GUID: the name of an interface, 16 bytes."""

    c_name: ClassVar[str] = "GUID"
    _fields_ = [
        ("Data1", ctypes.c_uint32),
        ("Data2", ctypes.c_uint16),
        ("Data3", ctypes.c_uint16),
        ("Data4", ctypes.c_uint8 * 8),
    ]

    @classmethod
    def parse(cls, text: str) -> Guid:
        """Return the GUID that is written ``8-4-4-4-12``.

        Raises:
            ValueError: it is not.
        """
        return cls.from_buffer_copy(uuid.UUID(text).bytes_le)

    def __str__(self) -> str:
        return str(uuid.UUID(bytes_le=bytes(self)))


@dataclass(frozen=True, slots=True)
class Method:
    """One method of an interface.

    Attributes:
        name: its name.
        result: type of what it returns: ``HRESULT``, a simple type, a struct, or ``None``.
        arguments: types of what it takes after the object itself; ``None``: not described, hence not callable.
    """

    name: str
    result: CType | None = None
    arguments: tuple[CType, ...] | None = None


class Interface:
    """An interface: its name, its GUID, and its methods in the order of the table.

    Args:
        name: as C++ names it.
        iid: its GUID as text.
        base: the interface that it extends; ``None`` for IUnknown.
        methods: those that it adds.
    """

    def __init__(self, name: str, iid: str, base: Interface | None, *methods: Method) -> None:
        self.name = name
        self.iid = Guid.parse(iid)
        self.methods: tuple[Method, ...] = (*(base.methods if base else ()), *methods)

    @cached_property
    def slots(self) -> dict[str, int]:
        """The slot of each method by name."""
        return {method.name: slot for slot, method in enumerate(self.methods)}


UNKNOWN = Interface(
    "IUnknown",
    "00000000-0000-0000-c000-000000000046",
    None,
    Method("QueryInterface", HRESULT, (POINTER, POINTER)),
    Method("AddRef", ctypes.c_uint32, ()),
    Method("Release", ctypes.c_uint32, ()),
)


def bound_method(address: int, interface: Interface, name: str) -> Callable[..., object]:
    """Return an object's method as a function of its arguments, unchecked.

    Args:
        address: the object.
        interface: what it implements.
        name: which method.

    Raises:
        KeyError: the interface has none of that name, or it is not described.
    """
    slot = interface.slots[name]
    method = interface.methods[slot]
    if method.arguments is None:
        raise KeyError(f"{interface.name}.{name} is in the table to hold its slot; its arguments are not described")
    table = POINTER.from_address(address).value or 0
    entry = POINTER.from_address(table + slot * ctypes.sizeof(POINTER)).value or 0
    if method.result is not None and issubclass(method.result, ctypes.Structure):
        function: Callable[..., object] = bound_struct_method(entry, method.result, method.arguments)
    else:
        function = ctypes.CFUNCTYPE(method.result, POINTER, *method.arguments)(entry)
    return lambda *given: function(address, *given)


class ComObject:
    """A COM object that this process holds one reference of; given back by ``release`` or with the last reference.

    Args:
        address: the object; its reference passes to this.
        interface: what it implements.
    """

    def __init__(self, address: int, interface: Interface) -> None:
        self.address = address
        self.interface = interface
        self._methods: dict[str, Callable[..., object]] = {}
        self._release = weakref.finalize(self, bound_method(address, UNKNOWN, "Release"))

    def call(self, name: str, *arguments: object) -> int:
        """Call a method whose result is an HRESULT, an integer or nothing, and return it; 0 for nothing.

        Raises:
            HResultError: the method returned a failure.
        """
        found = self._method(name)(*arguments)
        if self.interface.methods[self.interface.slots[name]].result is HRESULT and cast(int, found) < 0:
            raise HResultError(cast(int, found), f"{self.interface.name}.{name}")
        return cast(int, found or 0)

    def call_struct(self, name: str, result: type[StructT], *arguments: object) -> StructT:
        """Call a method that returns a struct."""
        found = self._method(name)(*arguments)
        if not isinstance(found, result):
            raise TypeError(f"{self.interface.name}.{name} returns {type(found).__name__}, not {result.__name__}")
        return found

    def build(self, name: str, interface: Interface, *arguments: object) -> ComObject:
        """Call a method whose last arguments are ``riid`` and ``ppv``, and return the object that it gave.

        Raises:
            HResultError: the method returned a failure.
        """
        found = POINTER()
        self.call(name, *arguments, ctypes.byref(interface.iid), ctypes.byref(found))
        return ComObject(_given(found, f"{self.interface.name}.{name}"), interface)

    def query(self, interface: Interface) -> ComObject:
        """Return the same object by another interface.

        Raises:
            HResultError: it does not implement it (E_NOINTERFACE).
        """
        return self.build("QueryInterface", interface)

    def release(self) -> None:
        """Give the reference back; more often is harmless."""
        self._release()

    def _method(self, name: str) -> Callable[..., object]:
        found = self._methods.get(name)
        if found is None:
            found = self._methods[name] = bound_method(self.address, self.interface, name)
        return found


def build_by_function(function: Callable[..., int], name: str, interface: Interface, *arguments: object) -> ComObject:
    """Call an exported function whose last arguments are ``riid`` and ``ppv``, and return the object that it gave.

    Raises:
        HResultError: the function returned a failure.
    """
    found = POINTER()
    code = function(*arguments, ctypes.byref(interface.iid), ctypes.byref(found))
    if code < 0:
        raise HResultError(code, name)
    return ComObject(_given(found, name), interface)


def _given(pointer: ctypes.c_void_p, doing: str) -> int:
    if not pointer.value:
        raise HResultError(HResultError.POINTER, doing)
    return pointer.value
