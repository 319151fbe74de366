"""Inputs and outputs in memory of the device are copied within it, never through the host."""

from __future__ import annotations

import numpy as np
import pytest
from device_arrays import content, on_device
from emulated_provider import session_of

import ort_core as ort
from ort_core.plugin.devices import Device

X = np.arange(12, dtype=np.float32).reshape(3, 4)
BODY = "g (float[N,4] x, float[4] b) => (float[N,4] y) { a = Softmax(x) y = Add(a, b) }"


@pytest.mark.parametrize("runs", [1, 3])
def test_bound_values_stay_on_the_device(gpu, runs) -> None:
    session = session_of(BODY)
    bias, x, y = np.ones(4, np.float32), on_device(X), on_device(np.zeros_like(X))
    bound = session.io_binding()
    bound.bind_ortvalue_input("x", ort.OrtValue(x))
    bound.bind_cpu_input("b", bias)
    bound.bind_ortvalue_output("y", ort.OrtValue(y))
    for run in range(runs):
        content(x)[...] = X + run
        session.run_with_iobinding(bound)
        np.testing.assert_array_equal(content(y), session.run(None, {"x": X + run, "b": bias})[0])
    assert gpu.copies_within == 2 * runs


def test_memory_of_another_device_goes_through_the_host(gpu) -> None:
    elsewhere = on_device(X)
    elsewhere.buffer.device = Device("cuda", 1)
    elsewhere.to_host = lambda: content(elsewhere).copy()
    session = session_of(BODY)
    found = session.run(None, {"x": ort.OrtValue(elsewhere), "b": np.ones(4, np.float32)})[0]
    np.testing.assert_array_equal(found, session.run(None, {"x": X, "b": np.ones(4, np.float32)})[0])
    assert gpu.copies_within == 0


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [("y = Gather(s, last)", 3), ("t = Size(x)  y = Sub(t, last)", 5), ("t = Gather(s, last)  y = Mul(t, t)", 9)],
)
def test_a_number_that_follows_from_sizes_is_a_scalar(gpu, nodes: str, expected: int) -> None:
    session = session_of(
        f"g (float[2,n] x) => (int64 y, float[2,n] z) <int64 last = {{1}}> {{ z = Relu(x)  s = Shape(x)  {nodes} }}"
    )
    (found,) = session.run(["y"], {"x": np.ones((2, 3), np.float32)})
    assert found.shape == ()
    assert found == expected


def test_more_axes_than_numpy_broadcasts_are_compared(gpu) -> None:
    rank = 40
    sizes = ",".join(["1"] * (rank - 1))
    session = session_of(f"g (float[{sizes},3] x, float[2,1,1] b) => (bool[] y) {{ y = Equal(x, b) }}")
    x, b = np.arange(3, dtype=np.float32), np.array([1, 2], np.float32)
    (found,) = session.run(None, {"x": x.reshape(*[1] * (rank - 1), 3), "b": b.reshape(2, 1, 1)})
    assert found.shape == (*[1] * (rank - 3), 2, 1, 3)
    np.testing.assert_array_equal(found.reshape(2, 3), b[:, None] == x)
