"""DLPack's capsules: the structs in them, who owns what they point to, and how they are read and made.

The layout is that of dlpack.h (unversioned). Others call a capsule's deleter when they are done, long after.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, ClassVar

from ort_core.errors import InvalidValue
from ort_core.lifetimes import keep_for_ever

_NAME = keep_for_ever(b"dltensor")  # capsules point to it


class DLDevice(ctypes.Structure):
    """A device: its type and its number."""

    _fields_: ClassVar = [("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32)]


class DLDataType(ctypes.Structure):
    """An element type: its code, bits, and how many there are in one element."""

    _fields_: ClassVar = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class DLTensor(ctypes.Structure):
    """A tensor: where it lies, and how."""

    _fields_: ClassVar = [
        ("data", ctypes.c_void_p),
        ("device", DLDevice),
        ("ndim", ctypes.c_int32),
        ("dtype", DLDataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class DLManagedTensor(ctypes.Structure):
    """A tensor, and what its consumer calls when it is done."""

    _fields_: ClassVar = [
        ("tensor", DLTensor),
        ("manager_context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    ]


_python = ctypes.pythonapi
_new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", _python)
)
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_IsValid", _python))
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_GetPointer", _python))

# What exported tensors need to stay alive, by the address of their struct; the consumer's deleter ends each entry.
EXPORTED: dict[int, tuple[object, ...]] = {}


def _callbacks(exported: dict[int, tuple[object, ...]]) -> tuple[Any, Any]:  # Any: function pointers of ctypes
    """Return the deleter of a tensor and that of a capsule, which foreign code calls long after an export.

    It may do so behind the last module, when a global is no more: so they find all that they need in themselves.
    """
    is_valid, pointer, name = _is_valid, _pointer, _NAME

    def release(address: int) -> None:
        exported.pop(address, None)

    def drop_capsule(capsule: int) -> None:
        if is_valid(capsule, name):  # nobody consumed it: a consumer renames it and calls the deleter itself
            release(pointer(capsule, name))

    release_type, drop_type = ctypes.CFUNCTYPE(None, ctypes.c_void_p), ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
    return keep_for_ever(release_type(release)), keep_for_ever(drop_type(drop_capsule))


_c_release, _c_drop_capsule = _callbacks(EXPORTED)


def capsule_over(
    address: int,
    shape: Sequence[int],
    strides: Sequence[int],
    dtype: tuple[int, int],
    device: tuple[int, int],
    owner: object,
) -> object:
    """Return a capsule over memory.

    Args:
        address: of the first element.
        shape: sizes.
        strides: in elements.
        dtype: DLPack's code of the element type, and its bits.
        device: DLPack's numbers of the device.
        owner: kept until the consumer is done.
    """
    rank = len(shape)
    sizes, steps = (ctypes.c_int64 * max(1, rank))(*shape), (ctypes.c_int64 * max(1, rank))(*strides)
    managed = DLManagedTensor()
    managed.tensor = DLTensor(address, DLDevice(*device), rank, DLDataType(*dtype, 1), sizes, steps)
    managed.deleter = ctypes.cast(_c_release, ctypes.c_void_p).value
    place = ctypes.addressof(managed)
    EXPORTED[place] = (managed, owner, sizes, steps)
    return _new_capsule(place, _NAME, ctypes.cast(_c_drop_capsule, ctypes.c_void_p))


def device_number(exporter: Any) -> int:  # Any: the protocol is structural
    """Return DLPack's number of the kind of device where an object with ``__dlpack__`` is.

    Raises:
        InvalidValue: it says none.
    """
    try:
        said = exporter.__dlpack_device__()
        return int(said[0])
    except (TypeError, ValueError, IndexError, KeyError) as error:
        raise InvalidValue(
            f"__dlpack_device__ of a {type(exporter).__name__} gave no pair of numbers: {error}"
        ) from error


def tensor_in(capsule: object, given: object) -> DLTensor:
    """Return what a capsule holds; it stays unused, so that its own end releases the memory.

    Raises:
        InvalidValue: ``capsule``, which ``given`` gave, is none, or was used already.
    """
    if not _is_valid(id(capsule), _NAME):
        raise InvalidValue(
            f"expected an object with __dlpack__ or an unused DLPack capsule, found {type(given).__name__}"
        )
    return DLManagedTensor.from_address(_pointer(id(capsule), _NAME)).tensor
