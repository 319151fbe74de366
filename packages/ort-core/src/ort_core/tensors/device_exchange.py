"""Tensors on devices exchanged with other libraries without a copy: DLPack, and CUDA's array interface.

    torch.from_dlpack(value)            an OrtValue's memory, read by PyTorch
    session.run(None, {"x": tensor})    a PyTorch tensor's memory, read by a provider on its device

Whoever gives memory is asked to have it ready on the device's default stream, which is waited for: a run starts on
streams of its own. What a run has written is ready when it returns.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from ort_core.errors import InvalidValue
from ort_core.ir.types import DataType
from ort_core.tensors.device import AdoptingApi, Device, DeviceApi, directory_in_use
from ort_core.tensors.device_array import BorrowedBuffer, DeviceArray
from ort_core.tensors.dlpack_capsules import DLTensor, capsule_over, device_number, tensor_in

_KINDS = {"cpu": 1, "cuda": 2, "opencl": 4, "vulkan": 7, "metal": 8, "rocm": 10, "oneapi": 14, "webgpu": 15, "npu": 12}
_OF_NUMBERS = {number: kind for kind, number in _KINDS.items()}  # DLDeviceType
_ON_HOST = (1, 3, 11)  # the host's memory, also what CUDA and ROCm have pinned
_DEFAULT_STREAM = 1  # of CUDA, in DLPack's and CUDA's own counting: the one that others wait for
_KIND_OF_CODE = {0: "int", 1: "uint", 2: "float", 5: "complex"}
_OWN_TYPES = {4: "bfloat16", 6: "bool", 10: "float8_e4m3fn", 11: "float8_e4m3fnuz", 12: "float8_e5m2"}


def device_numbers(device: Device) -> tuple[int, int]:
    """Return DLPack's numbers of a device.

    Raises:
        BufferError: DLPack has none for it.
    """
    if device.kind not in _KINDS:
        raise BufferError(f"DLPack has no number for memory on {device}")
    return _KINDS[device.kind], device.index


def is_on_device(data: Any) -> bool:  # Any: the protocols are structural
    """Return whether an object of another library is a tensor in memory that the host does not read."""
    if hasattr(data, "__dlpack_device__"):
        return device_number(data) not in _ON_HOST
    return hasattr(data, "__cuda_array_interface__")


def device_array_of(data: Any) -> DeviceArray:  # Any: as above
    """Return an array over the memory of another library's tensor on a device; the memory lives as long as it.

    Raises:
        InvalidValue: no plugin offers the device, the elements do not lie side by side, or ONNX lacks their type.
    """
    if hasattr(data, "__dlpack__"):
        return _of_dlpack(data)
    return _of_cuda_interface(data.__cuda_array_interface__, data)


def capsule_of(
    array: DeviceArray, *, dl_device: tuple[int, int] | None = None, copy: bool | None = None, **_: object
) -> object:
    """Return a DLPack capsule over an array on a device; other arguments of ``__dlpack__`` change nothing.

    Raises:
        BufferError: the element type has no number, or another device or a copy was asked for.
    """
    here = device_numbers(array.buffer.device)
    if copy or (dl_device is not None and tuple(dl_device) != here):
        raise BufferError(f"the tensor is exported where it lies, on {array.buffer.device}, and not copied")
    numbers = _dtype_numbers(array.dtype)
    return capsule_over(array.buffer.address, array.shape, _dense(array.shape), numbers, here, array)


def cuda_interface(array: DeviceArray) -> Mapping[str, object]:
    """Return CUDA's array interface (version 3) over an array on a CUDA device.

    Raises:
        AttributeError: it lies elsewhere, or has elements that numpy has no text for.
    """
    if array.buffer.device.kind != "cuda" or array.dtype.kind not in "biufc":
        raise AttributeError("__cuda_array_interface__ is that of numbers on CUDA devices")
    return {"shape": array.shape, "typestr": array.dtype.str, "data": (array.buffer.address, False), "version": 3}


def _of_dlpack(data: Any) -> DeviceArray:  # Any: as above
    number, index = (int(part) for part in data.__dlpack_device__())
    device = _device(number, index)
    api = _api(device, f"the DLPack data is on device type {number}")
    is_cuda = device.kind == "cuda"
    capsule = data.__dlpack__(stream=_DEFAULT_STREAM) if is_cuda else data.__dlpack__()
    if is_cuda:
        _wait_for(api, _DEFAULT_STREAM)
    tensor = tensor_in(capsule, data)
    shape = tuple(tensor.shape[axis] for axis in range(tensor.ndim))
    strides = tuple(tensor.strides[axis] for axis in range(tensor.ndim)) if tensor.strides else _dense(shape)
    _check_dense(shape, strides)
    address = (tensor.data or 0) + tensor.byte_offset
    return _array_at(api, device, address, _dtype_of(tensor), shape, capsule)


def _of_cuda_interface(interface: Mapping[str, Any], owner: object) -> DeviceArray:  # Any: as the protocol has it
    shape, dtype = tuple(int(size) for size in interface["shape"]), np.dtype(interface["typestr"])
    strides = interface.get("strides")
    if strides is not None:
        _check_dense(shape, tuple(int(step) // dtype.itemsize for step in strides))
    address = int(interface["data"][0])
    device = Device("cuda", _index_of(address))
    api = _api(device, "the data lies on a CUDA device")
    stream = interface.get("stream")
    if stream is not None:
        _wait_for(api, int(stream))
    return _array_at(api, device, address, dtype, shape, owner)


def _index_of(address: int) -> int:
    """Return the number of the CUDA device on which an address lies."""
    find = getattr(_api(Device("cuda", 0), "the data lies on a CUDA device"), "device_of", None)
    return 0 if find is None or not address else int(find(address))


def _api(device: Device, where: str) -> DeviceApi:
    try:
        return directory_in_use().get(device)
    except InvalidValue as error:
        raise InvalidValue(f"{where}, which cannot be read: {error}") from error


def _array_at(
    api: DeviceApi, device: Device, address: int, dtype: np.dtype, shape: tuple[int, ...], owner: object
) -> DeviceArray:
    DataType.from_numpy(dtype)  # one that ONNX has
    buffer = BorrowedBuffer(device, address, math.prod(shape) * dtype.itemsize, owner)
    return DeviceArray(api, buffer, dtype, shape)


def _wait_for(api: DeviceApi, stream: int) -> None:
    if hasattr(api, "adopt_stream"):
        cast("AdoptingApi", api).adopt_stream(stream).synchronize()


def _device(number: int, index: int) -> Device:
    if number not in _OF_NUMBERS:
        raise InvalidValue(f"the DLPack data is on device type {number}, which no plugin offers")
    return Device(_OF_NUMBERS[number], index)


def _dense(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def _check_dense(shape: Sequence[int], strides: Sequence[int]) -> None:
    pairs = zip(shape, strides, _dense(shape), strict=True)
    if 0 not in shape and any(size != 1 and found != wanted for size, found, wanted in pairs):
        raise InvalidValue(
            f"a tensor of shape {list(shape)} on a device has strides {list(strides)}, expected {list(_dense(shape))}: "
            "its elements must lie side by side; make it contiguous first"
        )


def _dtype_of(tensor: DLTensor) -> np.dtype:
    code, bits, lanes = tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes
    text = f"{_KIND_OF_CODE[code]}{bits}" if code in _KIND_OF_CODE else _OWN_TYPES.get(code, "")
    if lanes != 1 or not text:
        raise InvalidValue(f"the DLPack data has elements of code {code}, {bits} bits, {lanes} lanes; ONNX has no such")
    return _numpy_type(text)


def _numpy_type(text: str) -> np.dtype:
    import ml_dtypes  # narrow types are rare

    return np.dtype(getattr(ml_dtypes, text, text))


def _dtype_numbers(dtype: np.dtype) -> tuple[int, int]:
    code = next((code for code, text in _OWN_TYPES.items() if text == dtype.name), None)
    code = {"i": 0, "u": 1, "f": 2, "c": 5}.get(dtype.kind) if code is None else code
    if code is None or DataType.from_numpy(dtype).bits < 8:
        raise BufferError(f"DLPack has no number for elements of {dtype}")
    return code, dtype.itemsize * 8
