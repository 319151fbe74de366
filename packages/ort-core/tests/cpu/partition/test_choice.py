"""Models that are one If: decided and run natively, equal to the reference, and left to the ordinary run in doubt."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from onnx import parser

import ort_core as ort
from ort_core.errors import InvalidArgument

Feeds = Mapping[str, object]
HEADER = '<ir_version: 8, opset_import: ["" : 17]>\n'
THEN = "then_branch = a () => (float[N,M] p) { p0 = Exp(x) p1 = Tanh(p0) p = Mul(p1, z) }"
ELSE = "else_branch = b () => (float[N] q) { q0 = Sub(x, z) q1 = Sigmoid(q0) q = ReduceSum<keepdims=0>(q1, last) }"
BY_RATE = f"""
g (float[N,M] x, float[N,M] z, int64 rate) => (float[] y) <int64 wide = {{16}}, int64[1] last = {{-1}}> {{
    c = Equal(rate, wide)
    y = If (c) <{THEN}, {ELSE}>
}}"""
BY_FEED = f"""
g (float[N,M] x, float[N,M] z, bool[1] c) => (float[] y) <int64[1] last = {{-1}}> {{
    y = If (c) <{THEN}, {ELSE}>
}}"""
BY_SIZE = f"""
g (float[N,M] x, float[N,M] z) => (float[] y) <int64[1] last = {{-1}}, int64[1] three = {{3}}> {{
    s = Shape(x)
    n = Gather(s, last)
    c = Equal(n, three)
    y = If (c) <{THEN}, {ELSE}>
}}"""
NESTED = """
g (float[N,M] x, float[N,M] z, int64 rate, bool deep) => (float[] y, float[] w)
<int64 wide = {16}, int64[1] last = {-1}> {
    c = Equal(rate, wide)
    y, w = If (c) <
        then_branch = t () => (float[] y1, float[] w1) {
            y1, w1 = If (deep) <
                then_branch = d () => (float[N,M] y3, float[N,M] w3) { y3 = Mul(x, z) w3 = Exp(y3) },
                else_branch = f () => (float[N,M] y4, float[N,M] w4) { w4 = Add(x, z) y4 = Tanh(w4) }> },
        else_branch = e () => (float[] y2, float[] w2) {
            y2, w2 = If (deep) <
                then_branch = h () => (float[N] y5, float[N,M] w5) {
                    w5 = Sub(x, z) m5 = Exp(w5) y5 = ReduceSum<keepdims=0>(m5, last) },
                else_branch = i () => (float[N,M] y6, float[N,M] w6) { w6 = Sub(z, x) y6 = Tanh(w6) }> }>
}"""
AROUND = f"""
g (float[N,M] x, float[N,M] z, bool c) => (float[] y) <int64[1] last = {{-1}}> {{
    v = If (c) <{THEN}, {ELSE}>
    e = Exp(v)
    y = Tanh(e)
}}"""


def _sessions(text: str) -> tuple[ort.InferenceSession, ort.InferenceSession]:
    model = parser.parse_model(HEADER + text).SerializeToString()
    return ort.InferenceSession(model), ort.InferenceSession(model, providers=["ReferenceExecutionProvider"])


def _is_direct(session: ort.InferenceSession, feeds: Feeds) -> bool:
    return session._loaded.direct.call(feeds, None) is not None


def _xz(shape: tuple[int, ...], seed: int = 0) -> dict[str, object]:
    x, z = np.random.default_rng(seed).standard_normal((2, *shape)).astype(np.float32)
    return {"x": x, "z": z}


def _assert_equal(found: list[object], expected: list[object]) -> None:
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=2e-6, atol=2e-6)
        assert np.asarray(one).shape == np.asarray(other).shape


@pytest.mark.unguarded
@pytest.mark.parametrize("shape", [(2, 3), (5, 1), (0, 3), (4, 0), (33, 65)])
def test_either_branch_runs_directly_whatever_its_rank(shape: tuple[int, ...]) -> None:
    session, reference = _sessions(BY_RATE)
    for turn in range(6):
        for rate in (16, 8):
            feeds = {**_xz(shape, turn), "rate": np.array(rate, np.int64)}
            _assert_equal(session.run(None, feeds), reference.run(None, feeds))
    assert all(_is_direct(session, {**_xz(shape), "rate": np.array(rate, np.int64)}) for rate in (16, 8, -1))


@pytest.mark.unguarded
def test_feed_that_is_the_condition_decides() -> None:
    session, reference = _sessions(BY_FEED)
    for turn in range(8):
        feeds = {**_xz((3, 4), turn), "c": np.array([turn % 2 == 0])}
        _assert_equal(session.run(None, feeds), reference.run(None, feeds))
    assert _is_direct(session, {**_xz((3, 4)), "c": np.array([True])})
    assert not _is_direct(session, {**_xz((3, 4)), "c": np.array([1], np.uint8)})
    assert not _is_direct(session, {**_xz((3, 4)), "c": [True]})


@pytest.mark.parametrize("wrong", [np.array(True), np.array([[True]]), np.array([True, False]), np.empty(0, bool)])
def test_a_condition_of_another_shape_than_declared_stays_an_error(wrong: np.ndarray) -> None:
    session, _ = _sessions(BY_FEED)
    for turn in range(8):
        session.run(None, {**_xz((3, 4), turn), "c": np.array([turn % 2 == 0])})
    with pytest.raises(InvalidArgument, match="input: c"):
        session.run(None, {**_xz((3, 4)), "c": wrong})


@pytest.mark.unguarded
def test_sizes_decide_and_each_size_takes_its_branch() -> None:
    session, reference = _sessions(BY_SIZE)
    for turn in range(8):
        feeds = _xz((2, 3 + turn % 2), turn)
        _assert_equal(session.run(None, feeds), reference.run(None, feeds))
    assert _is_direct(session, _xz((2, 3)))
    assert _is_direct(session, _xz((2, 4)))


@pytest.mark.unguarded
def test_if_within_a_branch_is_decided_natively_where_it_is_the_whole_branch() -> None:
    session, reference = _sessions(NESTED)
    for turn in range(10):
        for rate in (16, 8):
            feeds = {**_xz((3, 4), turn), "rate": np.array(rate, np.int64), "deep": np.array(turn % 2 == 0)}
            _assert_equal(session.run(None, feeds), reference.run(None, feeds))
    for rate, deep in ((16, True), (16, False), (8, True), (8, False)):
        assert _is_direct(session, {**_xz((3, 4)), "rate": np.array(rate, np.int64), "deep": np.array(deep)})


@pytest.mark.unguarded
@pytest.mark.parametrize("kind", ["float", "int64", "bool"])
def test_branches_of_one_small_node_are_direct_where_they_are_the_model(kind: str) -> None:
    then, other = ("And", "Xor") if kind == "bool" else ("Add", "Mul")
    session, reference = _sessions(f"""
    g (bool c, {kind}[N] x, {kind}[M] z) => ({kind}[K] y) {{
        y = If (c) <then_branch = a () => ({kind}[K] p) {{ p = {then}(x, z) }},
                    else_branch = b () => ({kind}[K] q) {{ q = {other}(x, z) }}>
    }}""")
    dtype = {"float": np.float32, "int64": np.int64, "bool": np.bool_}[kind]
    shapes = [(4, 4), (4, 4), (4, 4), (4, 4), (1, 4), (4, 1), (0, 0), (3, 3), (4, 4)]
    for n, m in shapes:
        for c in (True, False):
            feeds = {"c": np.array(c), "x": np.arange(n).astype(dtype), "z": (np.arange(m) % 2).astype(dtype)}
            _assert_equal(session.run(None, feeds), reference.run(None, feeds))
    for c in (True, False):
        feeds = {"c": np.array(c), "x": np.arange(4).astype(dtype), "z": np.arange(4).astype(dtype)}
        assert _is_direct(session, feeds)
        bad = {**feeds, "z": np.arange(3).astype(dtype)}
        for ran in (session, reference):
            with pytest.raises(ort.OrtError):
                ran.run(None, bad)


def test_if_with_something_behind_it_runs_as_before_and_says_so() -> None:
    session, reference = _sessions(AROUND)
    for turn in range(6):
        feeds = {**_xz((3, 4), turn), "c": np.array(turn % 2 == 0)}
        _assert_equal(session.run(None, feeds), reference.run(None, feeds))
    assert session._loaded.direct.refusal is not None


@pytest.mark.unguarded
@pytest.mark.parametrize(
    ("branch", "reason"),
    [
        ("then_branch = a () => (float[N,M] p) { p0 = Exp(x) p = Tanh(p0) }", "is read by one branch only"),
        ("then_branch = a () => (float[N,M] p) { p = Identity(x) }", "nothing to compile"),
        ("then_branch = a () => (float[N,M] p) { p0 = Exp(x) p1 = Mul(p0, z) p = Det(p1) }", "branch 'a'"),
    ],
)
def test_what_direct_calls_could_not_check_or_run_is_refused_with_the_reason(branch: str, reason: str) -> None:
    session, _ = _sessions(BY_RATE.replace(THEN, branch))
    refusal = session._loaded.direct.refusal
    assert refusal is not None
    assert reason in refusal.reason


@pytest.mark.unguarded
def test_wrong_feeds_are_the_errors_of_the_ordinary_run() -> None:
    session, _ = _sessions(BY_RATE)
    good = {**_xz((2, 3)), "rate": np.array(16, np.int64)}
    for _ in range(6):
        session.run(None, good)
    assert _is_direct(session, good)
    for wrong in (
        {**good, "rate": np.array(16, np.int32)},
        {**good, "rate": np.array([16, 16], np.int64)},
        {**good, "x": np.ones((2, 3))},
        {**good, "more": np.ones(1)},
        {name: good[name] for name in ("x", "z")},
        {name: good[name] for name in ("x", "rate")},
    ):
        assert not _is_direct(session, wrong)
        with pytest.raises(ort.OrtError):
            session.run(None, wrong)
    other = {**good, "z": np.ones((2, 4), np.float32)}  # sizes that x and z must share
    assert not _is_direct(session, other)
    with pytest.raises(ort.OrtError):
        session.run(None, other)


@pytest.mark.unguarded
def test_bound_outputs_are_written_by_the_branch() -> None:
    session, reference = _sessions(BY_RATE)
    feeds = {**_xz((2, 3)), "rate": np.array(16, np.int64)}
    for _ in range(6):
        session.run(None, feeds)
    (expected,) = reference.run(None, feeds)
    target = np.zeros((2, 3), np.float32)
    (found,) = session._loaded.direct.call(feeds, (target,))
    assert found is target or np.shares_memory(found, target)
    np.testing.assert_allclose(target, expected, rtol=2e-6, atol=2e-6)
