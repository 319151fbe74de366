"""DLPack, both ways, without copies: numpy's own implementation where it knows the element type, else ours by ctypes.

Ours is for bfloat16 and the float8 types, which numpy does not export. Types of less than a byte are refused: DLPack
packs them, arrays here do not.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_core.errors import InvalidValue
from ort_core.ir.types import DataType
from ort_core.tensors.dlpack_capsules import DLTensor, capsule_over, device_number, tensor_in

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
    strides = tuple(step // array.itemsize for step in array.strides)
    return capsule_over(array.ctypes.data, array.shape, strides, (_CODES[data_type], data_type.bits), (_CPU, 0), array)


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
    device = device_number(exporter)
    if device not in (_CPU, _CUDA_HOST):
        raise InvalidValue(f"the DLPack data is on device type {device}, expected memory of the host (1)")
    if isinstance(data, np.ndarray):
        return data
    capsule = exporter.__dlpack__()
    tensor = tensor_in(capsule, data)
    if tensor.dtype.code not in _TYPES:
        return _writable(np.from_dlpack(_Capsule(capsule)))
    return _array_over(tensor, capsule)


def _writable(array: np.ndarray) -> np.ndarray:
    """Return an array over the same memory that may be written to.

    A capsule of DLPack before its version 1 does not say whether its memory is read-only, so that numpy takes it to be.
    Who exports read-only memory refuses to make such a capsule.
    """
    if array.flags.writeable or array.size == 0:
        return array
    interface = dict(array.__array_interface__)
    interface["data"] = (interface["data"][0], False)
    return np.asarray(_Owner(array, interface))


def _array_over(tensor: DLTensor, capsule: object) -> np.ndarray:
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
