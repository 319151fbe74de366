"""No small file takes the load more than its share of time or memory."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hostile_models import HOSTILE, Graph

import ort_core
from ort_core.errors import OrtError

MAX_CALLS = 6_000_000  # some three seconds; most take a hundredth of that
MAX_NBYTES = 600 << 20


def load(content: bytes) -> ort_core.InferenceSession | OrtError:
    try:
        return ort_core.InferenceSession(content, providers=["CPUExecutionProvider"])
    except OrtError as error:
        return error


@pytest.mark.parametrize("name", HOSTILE)
def test_small_hostile_model_loads_or_is_refused_in_bounds(name, calls_of):
    content = HOSTILE[name]().proto()
    assert len(content) < 100_000
    calls, found = calls_of(load, content)
    assert calls < MAX_CALLS, f"{calls} calls for {len(content)} bytes"
    if isinstance(found, OrtError):
        assert name == "calls twice", found
        assert "more than" in str(found)


@pytest.mark.parametrize("name", ["joined constants", "range", "fills", "strings", "products of shapes"])
def test_small_hostile_model_takes_little_memory(name):
    content = HOSTILE[name]().proto()
    tracemalloc.start()
    try:
        load(content)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < MAX_NBYTES, f"{peak} bytes for a file of {len(content)}"


def test_products_of_sizes_wrap_around_in_a_run():
    graph = Graph(shape=("a", "b"))
    graph.node("Shape", "x", "s0")
    for i in range(7):
        graph.node("Mul", f"s{i} s{i}", f"s{i + 1}")
    graph.constant("number", np.int64(1000))
    graph.node("Mod", "s7 number", "m")
    graph.node("Cast", "m", "y", to=1)
    session = ort_core.InferenceSession(graph.proto(), providers=["CPUExecutionProvider"])
    expected = np.int64([3, 5])
    for _ in range(7):
        expected = expected * expected
    (found,) = session.run(None, {"x": np.zeros((3, 5), np.float32)})
    np.testing.assert_array_equal(found, (expected % 1000).astype(np.float32))
