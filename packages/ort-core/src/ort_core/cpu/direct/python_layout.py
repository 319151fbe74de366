"""The binary interface of CPython and numpy: where fields lie, and the addresses of functions for direct calls.

Only what their headers inline into every extension module is relied on (``Py_TYPE``, ``PyArray_DATA`` ...), and what
both keep stable: functions of CPython's stable ABI, positions in numpy's table of functions. The layout is tried on a
live array once; where anything is not as expected there are no direct calls, and runs go the ordinary way.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import sys
from collections.abc import Mapping, Sequence

import numpy as np

from ort_core.cpu.direct.call_layout import ArrayLayout, Head
from ort_core.plugin import Rejection, frozen

METH_FASTCALL = 0x80
LOCKED_HEADER, UNLOCKED_HEADER = 16, 32  # bytes before an object's fields, with an interpreter lock and without one
_SWAPPED = np.dtype(np.float64).newbyteorder()
_ARRAY_TYPE, _ARRAY_NEW = 2, 93  # positions in numpy's table of functions
_FUNCTIONS = {
    Head.DICT_SIZE: "PyDict_Size", Head.DICT_GET: "PyDict_GetItemWithError", Head.INCREF: "Py_IncRef",
    Head.DECREF: "Py_DecRef", Head.CLEAR_ERROR: "PyErr_Clear", Head.NEW_LIST: "PyList_New",
    Head.SET_ITEM: "PyList_SetItem", Head.TUPLE_SIZE: "PyTuple_Size", Head.TUPLE_ITEM: "PyTuple_GetItem",
    Head.RELEASE_LOCK: "PyEval_SaveThread", Head.TAKE_LOCK: "PyEval_RestoreThread",
    Head.CALL: "PyObject_CallNoArgs", Head.ERROR_SET: "PyErr_Occurred",
}  # fmt: skip
_FUNCTIONS_WITHOUT_LOCK = {Head.DICT_GET: "PyDict_GetItemRef"}  # since 3.13


@frozen
class PythonLayout:
    """What direct calls need to know of the interpreter and of numpy: offsets, words of every head, and its lock."""

    arrays: ArrayLayout
    words: Mapping[Head, int]
    is_locked: bool  # one thread at a time runs Python's code


class MethodDefinition(ctypes.Structure):
    """CPython's PyMethodDef; must live as long as functions made from it, which is longer than any module."""

    _fields_ = (
        ("name", ctypes.c_char_p), ("function", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p),
    )  # fmt: skip


@functools.cache
def find_python_layout() -> PythonLayout | Rejection:
    """Return the layout of this interpreter and numpy, or why direct calls cannot be made here."""
    if sys.implementation.name != "cpython":
        return Rejection(f"direct calls are made for CPython, this is {sys.implementation.name}")
    if ctypes.sizeof(ctypes.c_void_p) != 8:
        return Rejection("direct calls are made for 64-bit processes")
    arrays = array_layout()
    differs = _differing_field(arrays)
    if differs is not None:
        return Rejection(f"numpy {np.__version__} keeps an array's {differs} elsewhere than expected")
    is_locked = not _is_free_threaded()
    functions = _FUNCTIONS if is_locked else {**_FUNCTIONS, **_FUNCTIONS_WITHOUT_LOCK}
    words = {word: _address(getattr(ctypes.pythonapi, name)) for word, name in functions.items()}
    words |= {Head.NONE: id(None), Head.DICT_TYPE: id(dict), Head.TUPLE_TYPE: id(tuple)}
    words[Head.ARRAY_TYPE] = id(np.ndarray)
    table = _numpy_functions()
    if table is None or table[_ARRAY_TYPE] != id(np.ndarray):
        return Rejection(f"numpy {np.__version__} has no table of functions as expected")
    words[Head.NEW_ARRAY] = table[_ARRAY_NEW]
    return PythonLayout(arrays, words, is_locked)


def array_layout(header: int = object.__basicsize__) -> ArrayLayout:
    """Return where numpy keeps the fields of arrays if the interpreter and numpy are as their headers say.

    Args:
        header: bytes before the fields of an object: its reference counts and, last, its type.
    """
    return ArrayLayout(header - 8, header, header + 8, header + 16, header + 40, header + 48, header + 10, header + 12)


def _is_free_threaded() -> bool:
    flags: str | None = getattr(sys, "abiflags", None)
    if flags is not None:
        return "t" in flags
    import sysconfig  # takes 2 ms; where the interpreter does not say it itself: on Windows

    return bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


def build_function(definition: MethodDefinition, owner: object) -> object:
    """Return a function of Python from its definition; ``owner`` is its ``self`` and lives as long as it does."""
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]
    return make(ctypes.addressof(definition), owner, None)


def _differing_field(layout: ArrayLayout) -> str | None:
    """Return the name of a field that does not lie where expected, tried on an array whose fields all differ."""
    array = np.empty((3, 5), np.float32)
    at = id(array)
    found: dict[str, tuple[int, int]] = {
        "type": (_word(at + layout.type), id(np.ndarray)),
        "data": (_word(at + layout.data), array.ctypes.data),
        "rank": (ctypes.c_int.from_address(at + layout.rank).value, 2),
        "element type": (_word(at + layout.dtype), id(array.dtype)),
        "byte order": (ctypes.c_ubyte.from_address(id(_SWAPPED) + layout.byte_order).value, ord(_SWAPPED.byteorder)),
        "type number": (ctypes.c_int.from_address(id(_SWAPPED) + layout.type_number).value, _SWAPPED.num),
        "flags": (ctypes.c_int.from_address(at + layout.flags).value & 0x501, 0x501),
    }
    wrong = next((name for name, (value, expected) in found.items() if value != expected), None)
    if wrong is not None:
        return wrong
    sizes, strides = _word(at + layout.sizes), _word(at + layout.sizes + 8)
    if strides - sizes != 8 * array.ndim:  # the strides lie behind the sizes: only then is there something to read
        return "sizes"
    return None if (_word(sizes), _word(sizes + 8)) == array.shape else "sizes"


def _numpy_functions() -> Sequence[int] | None:
    """Return the table from which numpy's own headers take functions."""
    capsule = getattr(importlib.import_module("numpy._core._multiarray_umath"), "_ARRAY_API", None)
    if capsule is None:
        return None
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    try:
        address = pointer(capsule, None)
    except ValueError:
        return None  # a capsule of another kind
    return list((ctypes.c_ssize_t * (_ARRAY_NEW + 1)).from_address(address))


def _word(address: int) -> int:
    return ctypes.c_ssize_t.from_address(address).value


def _address(function: object) -> int:
    found = ctypes.cast(function, ctypes.c_void_p).value  # type: ignore[arg-type]  # a function pointer of ctypes
    assert found is not None
    return found
