"""Tensors on devices exchanged with other libraries without a copy: a made-up CUDA whose memory is the host's."""

from __future__ import annotations

import ctypes
import gc
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

from ort_core.errors import InvalidValue
from ort_core.tensors import device
from ort_core.tensors.device import CpuApi, CpuBuffer, CpuStream, Device, DeviceDirectory
from ort_core.tensors.device_exchange import device_array_of, is_on_device
from ort_core.tensors.dlpack_capsules import EXPORTED, capsule_over
from ort_core.tensors.ort_value import OrtValue

CUDA = Device("cuda", 1)


class CudaMemory(CpuBuffer):
    """The host's memory, said to be a device's."""

    device = CUDA


class Stream(CpuStream):
    """A stream of the caller's; waits are counted."""

    def __init__(self, number: int, waits: list[int]) -> None:
        self._number, self._waits = number, waits

    def synchronize(self) -> None:
        self._waits.append(self._number)


class CudaApi(CpuApi):
    """A device of which memory can be read by its address, as a test must."""

    def __init__(self, index: int, waits: list[int]) -> None:
        self.device, self._waits = Device("cuda", index), waits

    def allocate(self, nbytes):
        return CudaMemory(np.zeros(nbytes, np.uint8))

    def adopt_stream(self, native_handle):
        return Stream(native_handle, self._waits)

    def device_of(self, address):
        return 1

    def copy_to_host(self, source, target, stream=None):
        ctypes.memmove(target.ctypes.data, source.address, target.nbytes)


@pytest.fixture
def waits():
    """The streams that were waited for; meanwhile there are two CUDA devices."""
    found: list[int] = []
    before = device._source
    directory = DeviceDirectory({"cuda": lambda index: CudaApi(index, found)})
    device.use_directory_of(lambda: directory)
    yield found
    device.use_directory_of(before)


class Foreign:
    """Another library's tensor on the device, which says which stream it was asked for."""

    def __init__(self, array: np.ndarray, code: int, strides: tuple[int, ...] | None = None) -> None:
        self.array, self.code, self.streams = array, code, []
        self.strides = strides or tuple(step // array.itemsize for step in array.strides)

    def __dlpack_device__(self):
        return (2, 1)

    def __dlpack__(self, *, stream=None):
        self.streams.append(stream)
        kind = (self.code, self.array.itemsize * 8)
        return capsule_over(self.array.ctypes.data, self.array.shape, self.strides, kind, (2, 1), self.array)


@pytest.mark.parametrize(
    ("dtype", "code"),
    [("float32", 2), ("float16", 2), ("int64", 0), ("uint8", 1), ("bool", 6), ("bfloat16", 4), ("float8_e5m2", 12)],
)
def test_a_tensor_of_another_library_is_read_where_it_lies(waits, dtype, code):
    array = np.arange(6).reshape(2, 3).astype(np.dtype(getattr(ml_dtypes, dtype, dtype)))
    foreign = Foreign(array, code)
    found = OrtValue.from_dlpack(foreign)
    assert (found.data_ptr(), found.device_name(), found.shape()) == (array.ctypes.data, "cuda", [2, 3])
    assert found.value.buffer.device == CUDA
    assert (foreign.streams, waits) == ([1], [1])
    np.testing.assert_array_equal(found.numpy(), array)
    assert found.numpy().dtype == array.dtype


def test_memory_of_others_is_released_with_the_last_tensor_over_it(waits):
    before = len(EXPORTED)
    found = OrtValue.from_dlpack(Foreign(np.ones(4, np.float32), 2))
    gc.collect()
    assert len(EXPORTED) == before + 1
    del found
    gc.collect()
    assert len(EXPORTED) == before


def test_a_tensor_on_the_device_goes_out_and_comes_in_without_a_copy(waits):
    value = OrtValue.ortvalue_from_numpy(np.arange(6, dtype=np.float32).reshape(2, 3), "cuda", 1)
    assert value.__dlpack_device__() == (2, 1)
    back = OrtValue.from_dlpack(value)
    assert back.data_ptr() == value.data_ptr()
    del value
    gc.collect()
    np.testing.assert_array_equal(back.numpy(), np.arange(6, dtype=np.float32).reshape(2, 3))


def test_cudas_array_interface_goes_both_ways(waits):
    value = OrtValue.ortvalue_from_numpy(np.arange(6, dtype=np.float32).reshape(2, 3), "cuda", 1)
    interface = value.__cuda_array_interface__
    assert (interface["shape"], interface["typestr"], interface["data"]) == ((2, 3), "<f4", (value.data_ptr(), False))
    found = device_array_of(SimpleNamespace(__cuda_array_interface__={**interface, "stream": 7}))
    assert (found.buffer.address, found.buffer.device, waits) == (value.data_ptr(), CUDA, [7])
    assert not hasattr(OrtValue.of(np.ones(2)), "__cuda_array_interface__")


def test_what_does_not_lie_side_by_side_is_refused_with_what_to_do(waits):
    turned = Foreign(np.ones((2, 3), np.float32), 2, strides=(1, 2))
    with pytest.raises(InvalidValue, match=r"strides \[1, 2\], expected \[3, 1\].*contiguous"):
        OrtValue.from_dlpack(turned)
    wide = {"shape": (2, 3), "typestr": "<f4", "data": (64, False), "strides": (4, 8), "version": 3}
    with pytest.raises(InvalidValue, match="contiguous"):
        device_array_of(SimpleNamespace(__cuda_array_interface__=wide))
    single = Foreign(np.ones((1, 3), np.float32), 2, strides=(99, 1))
    assert OrtValue.from_dlpack(single).shape() == [1, 3]


def test_types_and_requests_without_a_number_are_refused(waits):
    with pytest.raises(InvalidValue, match="code 9"):
        OrtValue.from_dlpack(Foreign(np.ones(2, np.float32), 9))
    value = OrtValue.ortvalue_from_numpy(np.ones(2, np.float32), "cuda", 1)
    for wrong in ({"copy": True}, {"dl_device": (1, 0)}):
        with pytest.raises(BufferError, match="not copied"):
            value.__dlpack__(**wrong)
    assert value.__dlpack__(stream=3, max_version=(1, 0), dl_device=(2, 1), copy=False)


def test_the_host_is_not_elsewhere(waits):
    assert not is_on_device(np.ones(2))
    assert not is_on_device([1, 2])
