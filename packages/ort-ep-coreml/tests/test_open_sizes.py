"""OpenSizes: how values of sizes are written, which shapes a package lists, and what happens beyond."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from ort_core.plugin import EPFail, InvalidArgument
from ort_ep_coreml.open_sizes import parse_open_sizes
from ort_ep_coreml.provider import CoreMlExecutionProvider


def test_ranges_and_lists_are_read():
    found = parse_open_sizes("batch=1..8, sequence=64|16", 100)
    assert [found.of("batch").holds(size) for size in (0, 1, 8, 9)] == [False, True, True, False]
    assert found.of("sequence").listed == (16, 64)
    assert found.of("other").high == 100


@pytest.mark.parametrize("text", ["batch", "batch=", "batch=8..1", "batch=0..3", "=3", "batch=a|b"])
def test_a_text_that_says_nothing_is_refused_where_it_is_given(text):
    with pytest.raises(InvalidArgument, match="OpenSizes"):
        CoreMlExecutionProvider({"OpenSizes": text})


def test_listed_sizes_make_one_shape_for_each_combination():
    sizes = parse_open_sizes("n=1|2, m=8|16", 100)
    assert sizes.shapes([("n", 3), ("m", "n"), (5,)]) == [
        [(1, 3), (2, 3), (1, 3), (2, 3)],
        [(8, 1), (8, 2), (16, 1), (16, 2)],
        [(5,)] * 4,
    ]
    with pytest.raises(ValueError, match="partly listed"):
        sizes.shapes([("n", "other")])


def test_a_package_lists_shapes_and_others_run_elsewhere(session, caplog):
    text = "g (float[n,2] x) => (float[n,2] y) { y = Relu(x) }"
    with caplog.at_level(logging.WARNING), session(text, OpenSizes="n=1|4") as opened:
        assert opened.run(None, {"x": -np.ones((4, 2), np.float32)})[0].tolist() == [[0, 0]] * 4
        assert not caplog.text
        assert opened.run(None, {"x": np.ones((3, 2), np.float32)})[0].tolist() == [[1, 1]] * 3
    assert "the program is for 1 or 4" in caplog.text


def test_lists_at_several_inputs_need_a_later_system(session):
    text = "g (float[n,2] x, float[n,2] w) => (float[n,2] y) { y = Add(x, w) }"
    with pytest.raises(EPFail, match="DeploymentTarget=iOS18, or give a range"):
        session(text, OpenSizes="n=1|4")
    with session(text, OpenSizes="n=1|4", DeploymentTarget="iOS18") as opened:
        ones = np.ones((4, 2), np.float32)
        assert opened.run(None, {"x": ones, "w": ones})[0].tolist() == [[2, 2]] * 4


def test_bounds_from_the_end_hold_for_each_size(session):
    text = (
        "g (float[n,m] x) => (float[n,k] y) <int64[1] f = {2}, int64[1] t = {-1}, int64[1] axes = {1}> "
        "{ y = Slice(x, f, t, axes) }"
    )
    opened = session(text)
    for size in (15, 4, 5, 3, 2, 9):
        x = np.arange(2 * size, dtype=np.float32).reshape(2, size)
        np.testing.assert_array_equal(opened.run(None, {"x": x})[0], x[:, 2:-1])


def test_a_run_in_which_a_value_within_is_empty_is_computed_elsewhere(session, caplog):
    opened = session(
        "g (float[1,2,n] x) => (float[a,b,c] y) <float[2,1,2] w = {1, 2, 3, 4}> "
        "{ v = ConvTranspose<group=2, pads=[1,1]>(x, w)  y = Softmax<axis=-1>(v) }"
    )
    assert opened.run(None, {"x": np.ones((1, 2, 3), np.float32)})[0].shape == (1, 2, 2)
    with caplog.at_level(logging.WARNING):
        assert opened.run(None, {"x": np.ones((1, 2, 1), np.float32)})[0].shape == (1, 2, 0)
    assert "no elements" in caplog.text


def test_what_a_caller_wants_of_numpy_does_not_concern_a_run(session):
    opened = session("g (float[n,2] x) => (float[n,2] y) { v = Exp(x)  y = Mul(v, v) }")
    x = np.array([[-60, 60]], np.float32)
    with np.errstate(all="raise"):
        (found,) = opened.run(None, {"x": x})
    assert found[0, 1] == np.inf
    assert found[0, 0] < np.finfo(np.float32).tiny
