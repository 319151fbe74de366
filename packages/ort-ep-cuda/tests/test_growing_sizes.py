"""Sizes that grow from run to run: one program, one captured graph, no new memory, and the numbers of each step."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from device_arrays import content, on_device
from emulated_gpu import EmulatedGpu
from emulated_provider import EmulatedCudaProvider, session_of
from growing_cases import STEPS, growing_cases, sessions_of

import ort_core as ort
from ort_core.plugin import InvalidArgument
from ort_core.testing.cuda_emulation import find_compiler
from ort_ep_cuda import compiled, growing_plans
from ort_ep_cuda.lowering.values.growing import grows

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler to emulate kernels with")

EACH = 97  # of the cases that are run, unless all of them are asked for
DECODER = """
    agraph (float[1, 1, 16] x, float[1, 2, past, 8] key, float[1, 2, past, 8] value, float[1, total] mask)
        => (float[1, 1, 16] y, float[1, 2, after, 8] new_key, float[1, 2, after, 8] new_value)
        <int64[4] heads = {1, 1, 2, 8}, int64[3] merged = {1, 1, 16}, float scale = {0.35355339},
         int64 zero = {0}, int64 one = {1}, int64 two = {2}, float slope = {0.01}, int64[1] mask_axes = {1}>
    {
        split = Reshape (x, heads)
        q = Transpose <perm = [0, 2, 1, 3]> (split)
        new_key = Concat <axis = 2> (key, q)
        new_value = Concat <axis = 2> (value, q)
        turned = Transpose <perm = [0, 1, 3, 2]> (new_key)
        scores = MatMul (q, turned)
        scaled = Mul (scores, scale)
        shape = Shape (new_key)
        long = Gather <axis = 0> (shape, two)
        places = Range (zero, long, one)
        numbers = Cast <to = 1> (places)
        bias = Mul (numbers, slope)
        biased = Add (scaled, bias)
        wide = Unsqueeze (mask, mask_axes)
        masked = Add (biased, wide)
        weights = Softmax <axis = -1> (masked)
        found = MatMul (weights, new_value)
        back = Transpose <perm = [0, 2, 1, 3]> (found)
        flat = Reshape (back, merged)
        y = Add (flat, x)
    }
"""


def reference(x, key, value, mask):
    """The decoder above in float64."""
    x, key, value, mask = (array.astype(np.float64) for array in (x, key, value, mask))
    q = x.reshape(1, 1, 2, 8).transpose(0, 2, 1, 3)
    key, value = np.concatenate([key, q], 2), np.concatenate([value, q], 2)
    scores = q @ key.transpose(0, 1, 3, 2) * 0.35355339 + 0.01 * np.arange(key.shape[2]) + mask[:, None]
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return (weights @ value).transpose(0, 2, 1, 3).reshape(1, 1, 16) + x, key, value


@pytest.fixture
def device(monkeypatch):
    gpu = EmulatedGpu()
    monkeypatch.setattr(EmulatedCudaProvider, "device", gpu, raising=False)
    return gpu


def decode(session, steps, past, rng, *, is_compared=True):
    """Run steps that feed what the last one gave; compare each with float64 unless kernels are only collected."""
    key, value = (rng.standard_normal((1, 2, past, 8), np.float32) for _ in range(2))
    for _ in range(steps):
        x = rng.standard_normal((1, 1, 16), np.float32)
        mask = np.where(rng.random((1, key.shape[2] + 1)) < 0.2, np.float32(-5), np.float32(0))
        got = session.run(None, {"x": x, "key": key, "value": value, "mask": mask})
        for found, wanted in zip(got, reference(x, key, value, mask), strict=True):
            assert found.shape == wanted.shape
            if is_compared:
                np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-5)
        key, value = got[1], got[2]


@pytest.fixture
def rng():
    return np.random.default_rng(7)


def test_a_growing_cache_replays_one_graph_and_allocates_nothing(device, rng, monkeypatch):
    monkeypatch.setattr(growing_plans, "LEAST_ROOM", 16)
    session = session_of(DECODER)
    decode(session, 3, 5, rng)
    captures, allocations, compiled, replays = device.captures, device.allocations, len(device.compiled), device.replays
    decode(session, 12, 7, rng)
    decode(session, 2, 3, rng)  # another text, that begins anew
    assert device.captures == captures == 1
    assert device.allocations == allocations
    assert len(device.compiled) == compiled
    assert device.replays == replays + 14


def _decode_on_device(session, device, steps, past, rng, *, shares_memory=False):
    """Run steps whose caches stay on the device, bound where they lie; compare each with float64."""
    key, value = (on_device(rng.standard_normal((1, 2, past, 8), np.float32), 4096) for _ in range(2))
    for _ in range(steps):
        x, length = rng.standard_normal((1, 1, 16), np.float32), key.shape[2]
        mask = np.zeros((1, length + 1), np.float32)
        wanted = reference(x, content(key), content(value), mask)
        shape = (1, 2, length + 1, 8)
        results = [on_device(np.zeros(shape, np.float32), 4096) for _ in range(2)]
        if shares_memory:  # the key's result lies where the value's past is read
            results[0].buffer = value.buffer
        bound = session.io_binding()
        bound.bind_cpu_input("x", x)
        bound.bind_cpu_input("mask", mask)
        bound.bind_ortvalue_input("key", ort.OrtValue(key))
        bound.bind_ortvalue_input("value", ort.OrtValue(value))
        bound.bind_output("y", "cpu")
        bound.bind_ortvalue_output("new_key", ort.OrtValue(results[0]))
        bound.bind_ortvalue_output("new_value", ort.OrtValue(results[1]))
        session.run_with_iobinding(bound)
        np.testing.assert_allclose(bound.get_outputs()[0].numpy(), wanted[0], rtol=2e-5, atol=2e-5)
        for found, expected in zip(results, wanted[1:], strict=True):
            np.testing.assert_allclose(content(found), expected, rtol=2e-5, atol=2e-5)
        key, value = results


def test_caches_that_are_bound_on_the_device_are_read_and_written_where_they_lie(device, rng, monkeypatch):
    monkeypatch.setattr(growing_plans, "LEAST_ROOM", 16)
    session = session_of(DECODER)
    _decode_on_device(session, device, 3, 5, rng)
    copies, allocations = device.copies_within, device.allocations
    _decode_on_device(session, device, 4, 6, rng)
    assert device.copies_within == copies
    assert device.allocations == allocations
    assert device.captures == 1
    decode(session, 2, 9, rng)  # from the host, by the same graph
    assert device.captures == 1


def test_a_result_bound_to_memory_that_is_read_is_copied_there_behind_the_run(device, rng):
    _decode_on_device(session_of(DECODER), device, 3, 5, rng, shares_memory=True)
    assert device.copies_within


def test_a_cache_that_outgrows_its_room_gets_another(device, rng, monkeypatch):
    monkeypatch.setattr(growing_plans, "LEAST_ROOM", 2)
    session = session_of(DECODER)
    decode(session, 12, 2, rng)
    assert 2 <= device.captures <= 3
    assert device.replays >= 4


def test_a_growing_program_that_finds_no_memory_is_left_for_one_of_the_sizes_asked_for(device, rng, monkeypatch):
    monkeypatch.setattr(growing_plans, "LEAST_ROOM", 1 << 20)
    device._limit = 1 << 16
    decode(session_of(DECODER), 4, 5, rng)
    assert device.captures == 0


def test_a_lowering_that_a_size_confuses_is_told_and_done_without(device, rng, monkeypatch, caplog):
    lower = compiled.lower_partition

    def confused(graph, context, shapes, *rest):
        if any(grows(size) for shape in shapes for size in shape):
            raise AttributeError("a size has no such thing")
        return lower(graph, context, shapes, *rest)

    monkeypatch.setattr(compiled, "lower_partition", confused)
    decode(session_of(DECODER), 3, 5, rng)
    assert device.captures == 0
    assert caplog.text.count("lowered for each size: AttributeError: a size has no such thing") == 1


def test_products_of_many_rows_stay_with_the_library(device, rng):
    session = session_of("g (float[N,8] x, float[8,4] w) => (float[N,4] y) { y = MatMul(x, w) }")
    w = rng.standard_normal((8, 4), np.float32)
    for rows in (2, 3, 5, 4, 3, 9):
        x = rng.standard_normal((rows, 8), np.float32)
        np.testing.assert_allclose(session.run(None, {"x": x, "w": w})[0], x @ w, rtol=1e-5, atol=1e-6)
    assert [step.out.shape[1] for step in device.library_steps] == [2, 3, 5, 4, 3, 9]


def test_sizes_that_grow_apart_are_an_error_as_others_are(device):
    session = session_of("g (float[M,K] x, float[L,N] w) => (float[M,N] y) { y = MatMul(x, w) }")
    for inner in (3, 4, 5):
        feeds = {"x": np.ones((2, inner), np.float32), "w": np.ones((inner, 4), np.float32)}
        np.testing.assert_array_equal(session.run(None, feeds)[0], np.full((2, 4), inner, np.float32))
    for rows in (6, 7):
        with pytest.raises(InvalidArgument, match=r"shapes \[2, 5\] and \[\d, 4\] have no product"):
            session.run(None, {"x": np.ones((2, 5), np.float32), "w": np.ones((rows, 4), np.float32)})


def test_threads_may_run_steps_of_several_texts_at_once(device, monkeypatch):
    monkeypatch.setattr(growing_plans, "LEAST_ROOM", 8)
    session = session_of(DECODER)
    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(decode, session, 3, 2 + n, np.random.default_rng(n)) for n in range(3)]:
            done.result()


def pytest_generate_tests(metafunc):
    if "case" in metafunc.fixturenames:
        each = 1 if metafunc.config.getoption("--every-case", default=False) else EACH
        metafunc.parametrize("case", list(growing_cases())[::each], ids=lambda case: case.name)


def test_results_do_not_depend_on_whether_a_program_was_lowered_for_growth(case, device):
    session, truth = sessions_of(case, device)
    for step in range(STEPS):
        feeds = case.feeds(step)
        try:
            wanted = truth.run(None, feeds)
        except ort.OrtError:
            assert step, "the case itself runs"
            return  # sizes that belong together no longer do
        for found, expected in zip(session.run(None, feeds), wanted, strict=True):
            assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
            if expected.dtype.kind in "biu":
                np.testing.assert_array_equal(found, expected)
                continue
            near = 2e-2 if expected.dtype.itemsize == 2 else 1e-4
            np.testing.assert_allclose(found.astype("f8"), expected.astype("f8"), rtol=near, atol=near)
