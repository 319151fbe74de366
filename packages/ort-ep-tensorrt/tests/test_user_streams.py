"""Streams of the caller: all work of runs is put on them, one run after the other."""

from concurrent.futures import ThreadPoolExecutor

import fake_cuda
import numpy as np
import pytest

from ort_core.plugin import OrtError
from ort_core.plugin.devices import Device
from ort_ep_tensorrt.provider import NvTensorRtRtxExecutionProvider, TensorrtExecutionProvider

CHAIN = "g (float[n,4] x) => (float[n,4] y) { a = Relu(x)  y = Neg(a) }"


@pytest.fixture
def stream(monkeypatch):
    """A stream that the caller made, on a device of which no other can be made."""
    found = fake_cuda.FakeStream(Device("cuda", 0))

    def create_stream(self):
        raise AssertionError("another stream is made")

    monkeypatch.setattr(fake_cuda.FakeCudaApi, "create_stream", create_stream)
    return found


def given(stream):
    return {"has_user_compute_stream": "1", "user_compute_stream": str(stream.native_handle)}


def test_runs_are_on_the_callers_stream(session, stream):
    x = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
    with session(CHAIN, **given(stream)) as opened:
        np.testing.assert_array_equal(opened.run(None, {"x": x})[0], -np.maximum(x, 0))
    assert stream.done == 3, "a copy there, the engine, a copy back"


def test_work_is_recorded_on_the_callers_stream(session, stream, monkeypatch):
    monkeypatch.setattr(fake_cuda.FakeStream, "replayed", 0)
    x = np.ones((2, 4), np.float32)
    with session(CHAIN, trt_cuda_graph_enable="1", **given(stream)) as opened:
        for factor in (1, 2, 3):
            np.testing.assert_array_equal(opened.run(None, {"x": x * factor})[0], -x * factor)
    assert fake_cuda.FakeStream.replayed == 2


def test_threads_take_turns_on_one_stream(session, stream):
    inputs = [np.full((1 + index % 3, 4), index, np.float32) for index in range(30)]
    with session(CHAIN, **given(stream)) as opened, ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda x: opened.run(None, {"x": x})[0], inputs))
    for x, y in zip(inputs, found, strict=True):
        np.testing.assert_array_equal(y, -x)


def test_another_stream_needs_no_other_engine(session, stream, builds):
    for each in (stream, fake_cuda.FakeStream(Device("cuda", 0))):
        with session(CHAIN, **given(each)) as opened:
            opened.run(None, {"x": np.ones((2, 4), np.float32)})
    assert len(builds) == 1


def test_a_device_that_takes_no_streams_of_others_is_said(session, stream, monkeypatch):
    monkeypatch.delattr(fake_cuda.FakeCudaApi, "adopt_stream")
    with session(CHAIN, **given(stream)) as opened, pytest.raises(OrtError, match="takes no streams of others"):
        opened.run(None, {"x": np.ones((2, 4), np.float32)})


@pytest.mark.parametrize("provider", [TensorrtExecutionProvider, NvTensorRtRtxExecutionProvider])
@pytest.mark.parametrize(
    ("options", "stream"),
    [
        ({}, None),
        ({"has_user_compute_stream": "1"}, 0),
        ({"user_compute_stream": "7"}, 7),
        ({"user_compute_stream": "0"}, 0),
        ({"has_user_compute_stream": "1", "user_compute_stream": "7"}, 7),
    ],
)
def test_either_of_the_two_options_gives_a_stream(provider, options, stream):
    """Programs written for onnxruntime give the handle alone; 0 is that of PyTorch's default stream."""
    assert provider(options).options.settings().stream == stream


def test_a_run_that_fails_leaves_nothing_under_way(session, stream, monkeypatch):
    x = np.ones((2, 4), np.float32)
    with session(CHAIN, **given(stream)) as opened:
        opened.run(None, {"x": x})
        monkeypatch.setattr(fake_cuda.FakeCudaApi, "copy_to_host", lambda *_: 1 / 0)
        with pytest.raises(OrtError, match="division by zero"):
            opened.run(None, {"x": x})
        assert stream.queue == [], "memory that is given back is still written"
