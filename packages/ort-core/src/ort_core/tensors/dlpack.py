"""DLPack, both ways, without copies: numpy's own implementation where it knows the element type, else ours by ctypes.

Ours is for bfloat16 and the float8 types, which numpy does not export. Types of less than a byte are refused: DLPack
packs them, arrays here do not.
"""

from __future__ import annotations

import ctypes
from typing import Any, ClassVar

import numpy as np

from ort_core.errors import InvalidValue
from ort_core.ir.types import DataType
from ort_core.lifetimes import keep_for_ever

_CPU, _CUDA_HOST = 1, 3
_CODES = {  # DLDataTypeCode of the types that numpy lacks
    DataType.BFLOAT16: 4,
    DataType.FLOAT8E4M3FN: 10,
    DataType.FLOAT8E4M3FNUZ: 11,
    DataType.FLOAT8E5M2: 12,
    DataType.FLOAT8E5M2FNUZ: 13,
    DataType.FLOAT8E8M0: 14,
}
_TYPES = {code: data_type for data_type, code in _CODES.items()}
_NAME = keep_for_ever(b"dltensor")  # capsules point to it


class _DLDevice(ctypes.Structure):
    _fields_: ClassVar = [("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32)]


class _DLDataType(ctypes.Structure):
    _fields_: ClassVar = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _DLTensor(ctypes.Structure):
    _fields_: ClassVar = [
        ("data", ctypes.c_void_p),
        ("device", _DLDevice),
        ("ndim", ctypes.c_int32),
        ("dtype", _DLDataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _DLManagedTensor(ctypes.Structure):
    _fields_: ClassVar = [
        ("tensor", _DLTensor),
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
_exported: dict[int, tuple[object, ...]] = {}


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


_c_release, _c_drop_capsule = _callbacks(_exported)


def to_dlpack(array: np.ndarray, **arguments: object) -> object:
    """Return a DLPack capsule that shares the array's memory. ``arguments`` are those of ``__dlpack__``.

    Raises:
        BufferError: the element type cannot be exported.
    """
    if array.dtype == object:
        raise BufferError("a tensor of strings has no DLPack form")
    data_type = DataType.from_numpy(array.dtype)
    if data_type.bits < 8:
        raise BufferError(f"tensor({data_type.text}) has elements of less than a byte, which DLPack packs")
    if data_type not in _CODES:
        return array.__dlpack__(**{name: value for name, value in arguments.items() if value is not None})  # type: ignore[arg-type]  # passed on
    shape = (ctypes.c_int64 * max(1, array.ndim))(*array.shape)
    strides = (ctypes.c_int64 * max(1, array.ndim))(*(s // array.itemsize for s in array.strides))
    managed = _DLManagedTensor()
    managed.tensor = _DLTensor(
        array.ctypes.data,
        _DLDevice(_CPU, 0),
        array.ndim,
        _DLDataType(_CODES[data_type], data_type.bits, 1),
        shape,
        strides,
    )
    managed.deleter = ctypes.cast(_c_release, ctypes.c_void_p).value
    address = ctypes.addressof(managed)
    _exported[address] = (managed, array, shape, strides)
    return _new_capsule(address, _NAME, ctypes.cast(_c_drop_capsule, ctypes.c_void_p))


class _Capsule:
    """Makes a bare capsule look like an object that exports itself."""

    def __init__(self, capsule: Any) -> None:  # Any: Python names the type of capsules only from 3.13 on
        self._capsule = capsule

    def __dlpack__(self, *, stream: None = None) -> Any:  # Any: as above
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return (_CPU, 0)


class _Owner:
    """Keeps a capsule alive as long as the array over its memory."""

    def __init__(self, capsule: object, interface: dict[str, object]) -> None:
        self._capsule = capsule
        self.__array_interface__ = interface


def from_dlpack(data: Any) -> np.ndarray:  # Any: the protocol is structural, a bare capsule has no type of its own
    """Return an array over the memory of an object with ``__dlpack__`` (or of a capsule).

    Raises:
        InvalidValue: the data is on another device or has a type that ONNX lacks.
    """
    exporter = data if hasattr(data, "__dlpack__") else _Capsule(data)
    device = exporter.__dlpack_device__()[0]
    if device not in (_CPU, _CUDA_HOST):
        raise InvalidValue(f"the DLPack data is on device type {int(device)}, expected memory of the host (1)")
    if isinstance(data, np.ndarray):
        return data
    capsule = exporter.__dlpack__()
    if not _is_valid(id(capsule), _NAME):
        raise InvalidValue(
            f"expected an object with __dlpack__ or an unused DLPack capsule, found {type(data).__name__}"
        )
    tensor = _DLManagedTensor.from_address(_pointer(id(capsule), _NAME)).tensor
    if tensor.dtype.code not in _TYPES:
        return np.from_dlpack(_Capsule(capsule))
    return _array_over(tensor, capsule)


def _array_over(tensor: _DLTensor, capsule: object) -> np.ndarray:
    data_type = _TYPES[tensor.dtype.code]
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    storage = np.dtype(np.uint16 if data_type.bits == 16 else np.uint8)
    if 0 in shape:
        return np.zeros(shape, data_type.numpy)
    interface: dict[str, object] = {
        "version": 3,
        "typestr": storage.str,
        "shape": shape,
        "data": ((tensor.data or 0) + tensor.byte_offset, False),
    }
    if tensor.strides:
        interface["strides"] = tuple(tensor.strides[i] * storage.itemsize for i in range(tensor.ndim))
    return np.asarray(_Owner(capsule, interface)).view(data_type.numpy)
