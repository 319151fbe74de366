"""Inputs and outputs in memory of the device are copied within it, never through the host."""

from __future__ import annotations

import numpy as np
import pytest
from emulated_gpu import HostMemory
from emulated_provider import session_of

import ort_core as ort
from ort_core.plugin.devices import Device, DeviceArray

X = np.arange(12, dtype=np.float32).reshape(3, 4)
BODY = "g (float[N,4] x, float[4] b) => (float[N,4] y) { a = Softmax(x) y = Add(a, b) }"


class DeviceOnly:
    """A DeviceApi that has no way to the host."""

    device = Device("cuda", 0)


class Buffer(HostMemory):
    device = DeviceOnly.device


def _on_device(array: np.ndarray) -> DeviceArray:
    found = DeviceArray(DeviceOnly(), Buffer(array.nbytes), array.dtype, array.shape)
    _content(found)[...] = array
    return found


def _content(array: DeviceArray) -> np.ndarray:
    start = array.buffer.address - array.buffer._words.ctypes.data
    raw = array.buffer._words.view(np.uint8)[start : start + array.nbytes]
    return raw.view(array.dtype).reshape(array.shape)


@pytest.mark.parametrize("runs", [1, 3])
def test_bound_values_stay_on_the_device(gpu, runs) -> None:
    session = session_of(BODY)
    bias, x, y = np.ones(4, np.float32), _on_device(X), _on_device(np.zeros_like(X))
    bound = session.io_binding()
    bound.bind_ortvalue_input("x", ort.OrtValue(x))
    bound.bind_cpu_input("b", bias)
    bound.bind_ortvalue_output("y", ort.OrtValue(y))
    for run in range(runs):
        _content(x)[...] = X + run
        session.run_with_iobinding(bound)
        np.testing.assert_array_equal(_content(y), session.run(None, {"x": X + run, "b": bias})[0])
    assert gpu.copies_within == 2 * runs


def test_memory_of_another_device_goes_through_the_host(gpu) -> None:
    elsewhere = _on_device(X)
    elsewhere.buffer.device = Device("cuda", 1)
    elsewhere.to_host = lambda: _content(elsewhere).copy()
    session = session_of(BODY)
    found = session.run(None, {"x": ort.OrtValue(elsewhere), "b": np.ones(4, np.float32)})[0]
    np.testing.assert_array_equal(found, session.run(None, {"x": X, "b": np.ones(4, np.float32)})[0])
    assert gpu.copies_within == 0
