"""A device that is nearly full: memory that is held for later runs goes to the run that needs it. And forks."""

from __future__ import annotations

import os

import numpy as np
import pytest
from emulated_gpu import EmulatedGpu
from emulated_provider import EmulatedCudaProvider, session_of

from ort_core.plugin import OrtError

GRAPH = "g (float[n,256] x) => (float[n,256] y) { a = Softmax(x) y = Softmax<axis = 0>(a) }"


@pytest.fixture
def device(monkeypatch):
    gpu = EmulatedGpu(limit=100 * 1024)
    monkeypatch.setattr(EmulatedCudaProvider, "device", gpu, raising=False)
    return gpu


def rows(count: int) -> np.ndarray:
    return np.random.default_rng(count).standard_normal((count, 256)).astype("f4")


def expected(x: np.ndarray) -> np.ndarray:
    for axis in (1, 0):
        x = np.exp(x - x.max(axis, keepdims=True))
        x = x / x.sum(axis, keepdims=True)
    return x


def test_a_run_takes_the_memory_of_sizes_that_do_not_run(device):
    session = session_of(GRAPH)
    for count in (20, 19, 18, 20):  # each needs 60 KB: input, result, and what lies between
        x = rows(count)
        np.testing.assert_allclose(session.run(None, {"x": x})[0], expected(x), rtol=1e-4)


def test_a_session_takes_the_idle_memory_of_another(device):
    first, second = session_of(GRAPH), session_of(GRAPH)
    x = rows(20)
    for session in (first, second, first):
        np.testing.assert_allclose(session.run(None, {"x": x})[0], expected(x), rtol=1e-4)


def test_a_run_that_is_too_large_is_an_error_and_the_next_one_runs(device):
    session = session_of(GRAPH)
    session.run(None, {"x": rows(10)})
    with pytest.raises(OrtError, match="asked for"):
        session.run(None, {"x": rows(80)})
    session.run(None, {"x": rows(10)})


def test_a_session_in_a_forked_process_says_so(device, monkeypatch):
    session = session_of(GRAPH)
    parent = os.getpid()
    monkeypatch.setattr("ort_ep_cuda.compiled.os.getpid", lambda: parent + 1)
    with pytest.raises(OrtError, match="before the process forked"):
        session.run(None, {"x": rows(2)})
