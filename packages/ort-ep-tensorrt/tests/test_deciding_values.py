"""Inputs whose values decide: shapes that TensorRT reads on the host, and axes that it must know when it builds."""

import numpy as np

RESHAPE = "g (float[n,4] x, int64[2] s) => (float[a,b] y) { z = Relu(x)  y = Reshape(z, s) }"
SUM = "g (float[3,4] x, int64[1] k) => (float[a,b] y) { y = ReduceSum(x, k) }"
random = np.random.default_rng(3)


def test_a_shape_from_outside_is_read_by_the_engine(session):
    x = np.abs(random.standard_normal((6, 4)).astype(np.float32))
    with session(RESHAPE) as opened:
        for shape in ((3, 8), (4, 6), (1, 24)):
            found = opened.run(None, {"x": x, "s": np.array(shape)})[0]
            np.testing.assert_array_equal(found, x.reshape(shape))


def test_an_engine_holds_the_range_of_the_values_that_were_seen(session, builds):
    x = np.ones((6, 4), np.float32)
    with session(RESHAPE) as opened:
        for shape in ((3, 8), (4, 6), (3, 8), (4, 6)):
            opened.run(None, {"x": x, "s": np.array(shape)})
    assert [each["profile"]["values of s"] for each in builds] == [
        ((3, 8), (3, 8), (3, 8)), ((3, 6), (4, 6), (4, 8)),
    ]  # fmt: skip


def test_axes_from_outside_are_constants_of_an_engine_of_their_own(session, builds):
    x = random.standard_normal((3, 4)).astype(np.float32)
    with session(SUM) as opened:
        for axis in (0, 1, 0, 1):
            found = opened.run(None, {"x": x, "k": np.array([axis])})[0]
            np.testing.assert_allclose(found, x.sum(axis, keepdims=True), rtol=1e-6)
    assert len(builds) == 2, "one for each axis"


def test_axes_may_be_any_number_of_them(session, builds):
    x = random.standard_normal((3, 4)).astype(np.float32)
    with session(SUM.replace("int64[1] k", "int64[j] k")) as opened:
        for axes in ([0], [1], [0, 1], []):
            found = opened.run(None, {"x": x, "k": np.array(axes, np.int64)})[0]
            np.testing.assert_allclose(found, x.sum(tuple(axes) or None, keepdims=True), rtol=1e-6)
    assert len(builds) == 4


def test_old_engines_of_many_values_are_forgotten_and_built_again(session, builds, monkeypatch):
    monkeypatch.setattr("ort_ep_tensorrt.compiled.MAXIMUM_PROGRAMS", 1)
    x = random.standard_normal((3, 4)).astype(np.float32)
    with session(SUM, trt_engine_cache_enable="0") as opened:
        for axis in (0, 1):
            found = opened.run(None, {"x": x, "k": np.array([axis])})[0]
            np.testing.assert_allclose(found, x.sum(axis, keepdims=True), rtol=1e-6)
        np.testing.assert_allclose(
            opened.run(None, {"x": x, "k": np.array([0])})[0], x.sum(0, keepdims=True), rtol=1e-6
        )
    assert len(builds) == 2, "the session still has the plan of the first values, and the plan its engine"
