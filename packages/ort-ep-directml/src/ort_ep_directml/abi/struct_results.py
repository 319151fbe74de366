"""Methods that return a struct: where the caller's memory for it goes differs between Windows and elsewhere.

On Windows, x64 and ARM64, a method of an object returns any struct through a pointer that follows ``this``. Elsewhere
it is returned as a C function would, which ctypes knows: in registers up to 16 bytes, else through a pointer that
comes before ``this``.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import Any, TypeAlias

CType: TypeAlias = "type[ctypes.Structure] | type[ctypes._SimpleCData[Any]]"  # of any value: ctypes says no more
"""A type of ctypes that a method takes or returns."""
StructMethod = Callable[..., ctypes.Structure]
"""Takes the object's address, then the method's own arguments."""


def bound_after_this(address: int, result: type[ctypes.Structure], arguments: tuple[CType, ...]) -> StructMethod:
    """Return the method at an address, by the convention of Windows."""
    function = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, *arguments)(address)

    def call(this: int, *given: object) -> ctypes.Structure:
        found = result()
        function(this, ctypes.addressof(found), *given)
        return found

    return call


def bound_as_function(address: int, result: type[ctypes.Structure], arguments: tuple[CType, ...]) -> StructMethod:
    """Return the method at an address, by the convention of every other system."""
    return ctypes.CFUNCTYPE(result, ctypes.c_void_p, *arguments)(address)


def bound_struct_method(address: int, result: type[ctypes.Structure], arguments: tuple[CType, ...]) -> StructMethod:
    """Return the method at an address, by the convention of this system."""
    bound = bound_after_this if sys.platform == "win32" else bound_as_function
    return bound(address, result, arguments)
