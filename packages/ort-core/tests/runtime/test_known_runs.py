"""Runs by steps without checks: models that numpy kernels run, from the second run of a signature on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import parser

import ort_core as ort
from ort_core.errors import AllocationLimitExceeded, InvalidArgument, InvalidValue, OrtError
from ort_core.ir.rejection import Rejection

UNIQUE = "(float[N] x, int64[1] k) => (float[M] y, float[?] s) { y, i, v, c = Unique<sorted = 0>(x) s = Tile(x, k) }"
SAME = (
    "(float[N] x, float[N] z) => (float[N] y, float[N] w, float[N] v) "
    "{ y = Identity(x) w = Identity(x) v = Identity(z) }"
)
PICKED = "(float[3] x, int64[1] i) => (float[1] y) { y = Gather(x, i) }"


def session_of(text: str, **options: object) -> ort.InferenceSession:
    settings = ort.SessionOptions()
    for name, value in options.items():
        setattr(settings, name, value)
    model = parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> g {text}')
    return ort.InferenceSession(model.SerializeToString(), settings, providers=["ReferenceExecutionProvider"])


def is_known(session: ort.InferenceSession, feeds: dict[str, object]) -> bool:
    return session._loaded.direct.call(feeds, None) is not None


def test_the_second_run_of_a_signature_needs_no_checks_and_gives_the_same() -> None:
    session = session_of(UNIQUE)
    feeds = {"x": np.array([3, 1, 3, 2], np.float32), "k": np.array([2])}
    assert isinstance(session._loaded.direct.refusal, Rejection), "no native call"
    assert not is_known(session, feeds)
    first = session.run(None, feeds)
    assert is_known(session, feeds)
    for found, wanted in zip(session.run(None, feeds), first, strict=True):
        np.testing.assert_array_equal(found, wanted)
    other = session.run(None, {"x": feeds["x"][:3], "k": np.array([3])})
    np.testing.assert_array_equal(other[1], [3, 1, 3] * 3)


@pytest.mark.parametrize("change", ["type", "shape", "order", "missing", "unknown", "list", "read-only"])
def test_feeds_of_another_kind_go_the_ordinary_way(change: str) -> None:
    session = session_of(SAME)
    feeds: dict[str, object] = {name: np.arange(4, dtype=np.float32) for name in "xz"}
    session.run(None, feeds)
    assert is_known(session, feeds)
    changed = {
        "type": np.arange(4), "shape": np.arange(5, dtype=np.float32), "order": np.arange(8, dtype=np.float32)[::2],
        "list": [0.0, 1.0, 2.0, 3.0], "read-only": np.broadcast_to(np.float32(1), 4),
    }  # fmt: skip
    if change == "missing":
        del feeds["z"]
    else:
        feeds["y" if change == "unknown" else "z"] = changed.get(change, feeds["x"])
    assert not is_known(session, feeds)
    if change in ("type", "missing", "unknown"):
        with pytest.raises(InvalidArgument):
            session.run(None, feeds)
    elif change != "shape":  # which may be warned of: two sizes of one name
        np.testing.assert_array_equal(session.run(None, feeds)[2], feeds["z"])


def test_results_share_no_memory_with_feeds_or_one_another() -> None:
    session = session_of(SAME)
    feeds = {name: np.arange(4, dtype=np.float32) for name in "xz"}
    for _ in range(3):
        arrays = [*session.run(None, feeds), *feeds.values()]
        assert all(array.flags.writeable for array in arrays)
        for place, one in enumerate(arrays):
            assert not any(np.shares_memory(one, other) for other in arrays[place + 1 :])
    alone = session_of("(float[N] x) => (float[N] y) { y = Identity(x) }")
    for _ in range(3):
        (found,) = alone.run(None, {"x": feeds["x"]})
        assert not np.shares_memory(found, feeds["x"])


def test_an_error_is_that_of_the_ordinary_run() -> None:
    session, x = session_of(PICKED), np.arange(3, dtype=np.float32)
    bad = {"x": x, "i": np.array([7])}
    with pytest.raises(OrtError) as first:
        session.run(None, bad)
    session.run(None, {"x": x, "i": np.array([1])})
    with pytest.raises(type(first.value)) as second:
        session.run(None, bad)
    assert str(second.value) == str(first.value)
    np.testing.assert_array_equal(session.run(None, {"x": x, "i": np.array([2])})[0], [2])


def test_nothing_runs_so_when_short_cuts_are_off_or_the_session_is_closed(tmp_path: Path) -> None:
    feeds = {name: np.arange(4, dtype=np.float32) for name in "xz"}
    profiled = session_of(SAME, enable_profiling=True, profile_file_prefix=str(tmp_path / "profile"))
    profiled.run(None, feeds)
    assert not is_known(profiled, feeds)
    profiled.end_profiling()
    session = session_of(SAME)
    session.run(None, feeds)
    session.close()
    assert not is_known(session, feeds)
    with pytest.raises(InvalidValue, match="closed"):
        session.run(None, feeds)


def test_a_limit_of_the_session_holds_for_every_run() -> None:
    session = session_of("(float[N] x, int64[1] k) => (float[M] y) { y = Tile(x, k) }", max_allocation_bytes=100)
    feeds = {"x": np.ones(4, np.float32), "k": np.array([2])}
    for _ in range(2):
        assert session.run(None, feeds)[0].shape == (8,)
    with pytest.raises(AllocationLimitExceeded):
        session.run(None, {**feeds, "k": np.array([1000])})


def test_strings_are_left_to_the_ordinary_run() -> None:
    session, feeds = session_of("(string[N] x) => (string[N] y) { y = Identity(x) }"), {"x": np.array(["a"], object)}
    session.run(None, feeds)
    assert not is_known(session, feeds)
    assert session.run(None, {"x": ["b"]})[0].tolist() == ["b"]


def cpu_session(text: str, **options: object) -> ort.InferenceSession:
    settings = ort.SessionOptions()
    for name, value in options.items():
        setattr(settings, name, value)
    model = parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> g {text}')
    return ort.InferenceSession(model.SerializeToString(), settings, providers=["CPUExecutionProvider"])


VIEWS = (
    "(float[2,3] x, int64[1] k) => (float[6] a, float[2,3] b, float[N,3] c, float[1,2,3] d) "
    "{ s = Constant<value_ints = [-1]>() z = Constant<value_ints = [0]>() e = Constant<value_ints = [2]>() "
    "a = Reshape(x, s) b = Identity(x) c = Slice(x, k, e) d = Unsqueeze(x, z) }"
)


@pytest.mark.parametrize("outputs", [1, 4])
def test_kernels_alone_run_without_a_plan_and_give_no_memory_of_a_feed(outputs: int) -> None:
    one = "(float[2,3] x, int64[1] k) => (float[N,3] c) { e = Constant<value_ints = [2]>() c = Slice(x, k, e) }"
    session = cpu_session(VIEWS if outputs == 4 else one)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    feeds = {"x": x, "k": np.array([1])}
    first = session.run(None, feeds)
    assert is_known(session, feeds)
    second = session.run(None, feeds)
    for found, wanted in zip(second, first, strict=True):
        np.testing.assert_array_equal(found, wanted)
        assert found.flags.c_contiguous
        assert found.flags.writeable
        assert not np.may_share_memory(found, x)
    for number, found in enumerate(second):
        assert not any(np.may_share_memory(found, other) for other in second[number + 1 :])


def test_preconditions_are_asked_again_for_operands_of_other_shapes() -> None:
    session = cpu_session("(float[N] x, int64[M] k) => (float[?] y, int64[?] i) { y, i = TopK(x, k) }")
    x = np.array([1, 3, 2], np.float32)
    for _ in range(3):
        np.testing.assert_array_equal(session.run(None, {"x": x, "k": np.array([2])})[0], [3, 2])
    for _ in range(2):
        with pytest.raises(OrtError, match="Input K must have shape"):
            session.run(None, {"x": x, "k": np.array([2, 1])})


def test_limits_hold_in_runs_that_are_known() -> None:
    session = cpu_session("(float[2] x, int64[1] k) => (float[?] y) { y = Tile(x, k) }")
    x = np.ones(2, np.float32)
    for _ in range(3):
        assert session.run(None, {"x": x, "k": np.array([3])})[0].size == 6
    limited = ort.RunOptions()
    limited.max_allocation_bytes = 100
    with pytest.raises(AllocationLimitExceeded, match="output of Tile with shape"):
        session.run(None, {"x": x, "k": np.array([100])}, limited)
    assert session.run(None, {"x": x, "k": np.array([100])})[0].size == 200
