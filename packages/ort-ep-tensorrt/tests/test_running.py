"""Runs on a fake GPU: the glue between sessions, engines, contexts and device memory, with numbers."""

import threading
from concurrent.futures import ThreadPoolExecutor

import fake_cuda
import fake_tensorrt
import numpy as np
import pytest

import ort_core as ort
from ort_core.plugin import OrtError

CHAIN = "g (float[n,4] x) => (float[n,4] y, float[n,4] z) { y = Relu(x)  a = Neg(y)  z = Abs(a) }"
FIXED = "g (float[2,4] x) => (float[2,4] y) { y = Relu(x) }"
random = np.random.default_rng(7)


def rows(count):
    return random.standard_normal((count, 4)).astype(np.float32)


def test_a_run_fills_all_outputs(session):
    x = rows(3)
    with session(CHAIN) as opened:
        y, z = opened.run(None, {"x": x})
    np.testing.assert_array_equal(y, np.maximum(x, 0))
    np.testing.assert_array_equal(z, np.maximum(x, 0))


def test_an_input_in_another_order_of_memory_is_read_rightly(session):
    x = np.asfortranarray(rows(5))
    with session(CHAIN) as opened:
        np.testing.assert_array_equal(opened.run(["y"], {"x": x})[0], np.maximum(x, 0))


def test_an_engine_is_built_again_only_for_shapes_outside_of_what_was_seen(session, builds):
    with session(CHAIN) as opened:
        for count in (2, 8, 4, 2, 1):
            x = rows(count)
            np.testing.assert_array_equal(opened.run(["y"], {"x": x})[0], np.maximum(x, 0))
    assert [each["profile"]["x"] for each in builds] == [
        ((2, 4), (2, 4), (2, 4)), ((2, 4), (8, 4), (8, 4)), ((1, 4), (1, 4), (8, 4)),
    ]  # fmt: skip


def test_given_profiles_are_built_once_for_all_shapes_within(session, builds):
    shapes = {"trt_profile_min_shapes": "x:1x4", "trt_profile_opt_shapes": "x:4x4", "trt_profile_max_shapes": "x:8x4"}
    with session(CHAIN, **shapes) as opened:
        for count in (8, 1, 5):
            opened.run(None, {"x": rows(count)})
    assert [each["profile"]["x"] for each in builds] == [((1, 4), (4, 4), (8, 4))]


def test_fixed_shapes_are_built_when_the_session_is_made(session, builds):
    with session(FIXED):
        assert len(builds) == 1


def test_float32_is_not_computed_in_tf32(session, builds):
    with session(CHAIN, trt_sparsity_enable="1", trt_max_workspace_size="64") as opened:
        opened.run(None, {"x": rows(1)})
    assert builds[0]["flags"] == {fake_tensorrt.BuilderFlag.SPARSE_WEIGHTS}
    assert builds[0]["limits"] == {fake_tensorrt.MemoryPoolType.WORKSPACE: 64}


def test_no_rows_are_no_error(session):
    with session(CHAIN) as opened:
        assert [each.shape for each in opened.run(None, {"x": rows(0)})] == [(0, 4), (0, 4)]


def test_an_output_whose_shape_depends_on_values_is_taken_from_its_allocator(session):
    with session("g (float[n,4] x) => (int64[2,m] y) { y = NonZero(x) }") as opened:
        for count in (3, 1, 2):
            x = np.maximum(rows(count), 0)
            np.testing.assert_array_equal(opened.run(None, {"x": x})[0], np.stack(np.nonzero(x)))


def test_bound_outputs_are_filled(session):
    x, y = rows(3), np.zeros((3, 4), np.float32)
    with session(CHAIN) as opened:
        binding = opened.io_binding()
        binding.bind_cpu_input("x", x)
        binding.bind_ortvalue_output("y", ort.OrtValue.ortvalue_from_numpy(y))
        binding.bind_output("z")
        opened.run_with_iobinding(binding)
        found = binding.copy_outputs_to_cpu()
    np.testing.assert_array_equal(found[0], np.maximum(x, 0))
    np.testing.assert_array_equal(found[1], np.maximum(x, 0))


def test_many_threads_run_at_once(session):
    inputs = [rows(1 + index % 5) for index in range(40)]
    with session(CHAIN) as opened, ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda x: opened.run(["y"], {"x": x})[0], inputs))
    for x, y in zip(inputs, found, strict=True):
        np.testing.assert_array_equal(y, np.maximum(x, 0))


def test_a_build_that_fails_says_what_tensorrt_said(session, monkeypatch):
    monkeypatch.setattr(fake_tensorrt.Builder, "fails_with", "Error Code 10: no implementation for {node}")
    said = r"failed to build an engine: Error Code 10: no implementation for \{node\}"
    with pytest.raises(OrtError, match=said), session(FIXED):
        pass


def test_a_run_that_fails_says_what_tensorrt_said_and_the_next_one_is_right(session, monkeypatch):
    with session(CHAIN) as opened:
        with monkeypatch.context() as broken:
            broken.setattr(fake_tensorrt.Context, "fails_with", "Error Code 1: illegal address")
            with pytest.raises(OrtError, match="failed to run an engine: Error Code 1: illegal address"):
                opened.run(None, {"x": rows(2)})
        x = rows(2)
        np.testing.assert_array_equal(opened.run(["y"], {"x": x})[0], np.maximum(x, 0))


def test_too_little_memory_is_an_error_in_words(session, monkeypatch):
    monkeypatch.setattr(fake_cuda.FakeCudaApi, "limit", 8)
    with session(CHAIN) as opened, pytest.raises(OrtError, match="has no 32 bytes left"):
        opened.run(None, {"x": rows(2)})


def test_too_little_memory_for_an_output_that_grows_is_the_same_error(session, monkeypatch):
    monkeypatch.setattr(fake_cuda.FakeCudaApi, "limit", 64)
    text = "g (float[n,4] x) => (int64[2,m] y) { y = NonZero(x) }"
    with session(text) as opened, pytest.raises(OrtError, match="has no 4096 bytes left"):
        opened.run(None, {"x": rows(2)})


def test_without_a_plugin_for_cuda_devices_the_error_names_it(session):
    said = r"needs a CUDA device from a plugin \(pip install ort-ep-cuda\)"
    with pytest.raises(OrtError, match=said), session(FIXED, has_device=False):
        pass


def test_all_calls_of_tensorrt_are_made_on_the_device_of_the_options(session, monkeypatch):
    """TensorRT uses the device that is current for the thread: of a new thread that is the first one."""
    seen: list[tuple[str, int]] = []
    monkeypatch.setattr(fake_tensorrt, "on_devices", seen)
    body = "g (float[n,4] x) => (float[n,4] y) { a = Relu(x)  y = Neg(a) }"
    x = np.ones((2, 4), np.float32)
    with session(body, device_id="1") as opened:
        opened.run(None, {"x": x})
        thread = threading.Thread(target=opened.run, args=(None, {"x": x}))
        thread.start()
        thread.join()
    assert {call for call, _ in seen} >= {
        "make a runtime",
        "load an engine",
        "build an engine",
        "make a context",
        "run",
    }
    assert {device for _, device in seen} == {1}
