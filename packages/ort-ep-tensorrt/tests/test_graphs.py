"""CUDA graphs: the second run of a signature is recorded, later ones are replayed; on a fake device, with numbers."""

import fake_cuda
import numpy as np
import pytest

CHAIN = "g (float[n,4] x) => (float[n,4] y) { a = Relu(x)  y = Neg(a) }"
random = np.random.default_rng(9)


@pytest.fixture
def replayed(monkeypatch):
    monkeypatch.setattr(fake_cuda.FakeStream, "replayed", 0)
    return lambda: fake_cuda.FakeStream.replayed


def rows(count):
    return random.standard_normal((count, 4)).astype(np.float32)


def run(opened, x):
    np.testing.assert_array_equal(opened.run(None, {"x": x})[0], -np.maximum(x, 0))


def test_runs_of_one_shape_are_replayed_with_their_own_numbers(session, replayed):
    with session(CHAIN, trt_cuda_graph_enable="1") as opened:
        for count, expected in ((2, 0), (2, 1), (2, 2), (2, 3)):
            run(opened, rows(count))
            assert replayed() == expected


def test_another_shape_is_recorded_anew(session, replayed):
    shapes = {"trt_profile_min_shapes": "x:1x4", "trt_profile_opt_shapes": "x:4x4", "trt_profile_max_shapes": "x:8x4"}
    with session(CHAIN, trt_cuda_graph_enable="1", **shapes) as opened:
        for count in (8, 8, 3, 3, 8):
            run(opened, rows(count))
    assert replayed() == 3


def test_memory_that_moved_is_recorded_anew(session, replayed):
    shapes = {"trt_profile_min_shapes": "x:1x4", "trt_profile_opt_shapes": "x:4x4", "trt_profile_max_shapes": "x:8x4"}
    with session(CHAIN, trt_cuda_graph_enable="1", **shapes) as opened:
        for count in (2, 2, 8, 2, 2):  # eight rows need larger buffers, whose addresses two rows then use, too
            run(opened, rows(count))
    assert replayed() == 2


def test_without_the_option_nothing_is_recorded(session, replayed):
    with session(CHAIN) as opened:
        for _ in range(3):
            run(opened, rows(2))
    assert replayed() == 0


def test_streams_that_do_not_record_are_said_and_runs_go_on(session, replayed, monkeypatch, caplog):
    monkeypatch.setattr(fake_cuda.FakeStream, "refuses_capture", True)
    with session(CHAIN, trt_cuda_graph_enable="1") as opened:
        for _ in range(3):
            run(opened, rows(2))
    assert replayed() == 0
    assert "runs without a CUDA graph: streams of this driver do not record" in caplog.text


def test_outputs_whose_shape_depends_on_values_are_not_recorded(session, replayed):
    text = "g (float[n,4] x) => (int64[2,m] y) { y = NonZero(x) }"
    with session(text, trt_cuda_graph_enable="1") as opened:
        for _ in range(3):
            x = np.maximum(rows(3), 0)
            np.testing.assert_array_equal(opened.run(None, {"x": x})[0], np.stack(np.nonzero(x)))
    assert replayed() == 0
