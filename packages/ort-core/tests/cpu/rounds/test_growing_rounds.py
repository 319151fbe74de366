"""Rounds whose carried values grow, shrink or change places, as direct calls, against the numpy kernels."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from onnx import parser
from rounds_checks import assert_nothing_beside_is_touched
from test_direct_rounds import is_direct

import ort_core as ort
from ort_core.cpu.guarded.mode import GuardedMode
from ort_core.tolerances import compare

pytestmark = pytest.mark.unguarded

HEADER = '<ir_version: 9, opset_import: ["" : 21, "com.microsoft" : 1]>\n'
SHRINKING = """
g (int64 m, float[P] x, float[Q] z) => (float[A] small, float[B] large)
    <int64[1] zero = {0}, int64[1] one = {1}, int64[1] end = {9223372036854775807}> {
    small, large = Loop (m, , x, z) <body = b (int64 i, bool c, float[S] h, float[T] k) =>
        (bool more, float[U] h2, float[V] k2) {
        more = Identity(c)
        h1 = Slice(h, one, end)
        h2 = Tanh(h1)
        head = Slice(h, zero, one)
        k2 = Concat <axis = 0> (k, head)
    }>
}"""
TURNED = """
g (int64 m, float[P] x, float[Q] z) => (float[A] u, float[B] v) <int64[1] zero = {0}, int64[1] one = {1}> {
    u, v = Loop (m, , x, z) <body = b (int64 i, bool c, float[S] p, float[T] q) =>
        (bool more, float[U] p2, float[V] q2) {
        more = Identity(c)
        p2 = Identity(q)
        head = Slice(q, zero, one)
        part = Sin(p)
        q2 = Concat <axis = 0> (part, head)
    }>
}"""
ATTENDING = """
g (int64 m, float[1,1,256] q, float[1,1,64] k, float[1,1,64] v, float[1,1,P,64] keys, float[1,1,P,64] values)
    => (float[1,1,T,64] all_keys, float[1,1,T,64] all_values, float[N,1,1,256] ys) <int32[1] one = {1}> {
    all_keys, all_values, ys = Loop (m, , keys, values) <body = b
        (int64 i, bool c, float[1,1,S,64] pk, float[1,1,S,64] pv) =>
        (bool more, float[1,1,U,64] nk, float[1,1,V,64] nv, float[1,1,256] y) {
        more = Identity(c)
        long = Shape <start = 2, end = 3> (pk)
        length = Cast <to = 6> (long)
        total = Add(length, one)
        scale = Cast <to = 1> (length)
        turned = Mul(q, scale)
        y, nk, nv = com.microsoft.GroupQueryAttention <num_heads = 4, kv_num_heads = 1>
            (turned, k, v, pk, pv, length, total)
    }>
}"""
Feeds = Mapping[str, np.ndarray]


def checked(text: str, turns: list[Feeds], threads: int = 2) -> ort.InferenceSession:
    """Compare each turn with the kernels; return the session."""
    model, options = parser.parse_model(HEADER + text).SerializeToString(), ort.SessionOptions()
    options.intra_op_num_threads = threads
    ran = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    reference = ort.InferenceSession(model, providers=["ReferenceExecutionProvider"])
    for feeds in turns:
        for found, truth in zip(ran.run(None, feeds), reference.run(None, feeds), strict=True):
            assert (found.shape, found.dtype) == (truth.shape, truth.dtype)
            assert compare(found, truth, "approximate").passes
    return ran


def vectors(rounds: int, first: int, second: int, seed: int) -> Feeds:
    draws = np.random.default_rng(seed)
    values = {name: draws.standard_normal(size).astype(np.float32) for name, size in (("x", first), ("z", second))}
    return {"m": np.array(rounds), **values}


def attended(rounds: int, before: int, seed: int) -> Feeds:
    draws = np.random.default_rng(seed)
    shapes = {
        "q": (1, 1, 256), "k": (1, 1, 64), "v": (1, 1, 64), "keys": (1, 1, before, 64), "values": (1, 1, before, 64)
    }  # fmt: skip
    values = {name: draws.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    return {"m": np.array(rounds), **{name: each / 8 if name == "q" else each for name, each in values.items()}}


@pytest.mark.parametrize("text", [SHRINKING, TURNED], ids=["shrinking", "turned"])
@pytest.mark.parametrize("rounds", [1, 2, 3, 8])
@pytest.mark.parametrize("sizes", [(9, 1), (40, 3), (8, 300)])
def test_values_that_shrink_or_change_places(text: str, rounds: int, sizes: tuple[int, int]) -> None:
    ran = checked(text, [vectors(rounds, *sizes, seed=turn) for turn in range(6)])
    assert is_direct(ran, vectors(rounds, *sizes, seed=1))


@pytest.mark.parametrize("mode", [GuardedMode.END, GuardedMode.BEGIN])
@pytest.mark.parametrize("text", [SHRINKING, TURNED], ids=["shrinking", "turned"])
def test_no_round_writes_beside_a_result(text: str, mode: GuardedMode) -> None:
    feeds = vectors(7, 30, 2, seed=4)
    assert_nothing_beside_is_touched(checked(text, [feeds] * 5), feeds, mode)


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize(("rounds", "before"), [(1, 0), (5, 3), (20, 31), (64, 40)])
def test_caches_that_grow_in_a_loop_are_one_call(threads: int, rounds: int, before: int) -> None:
    ran = checked(ATTENDING, [attended(rounds, before, seed=turn) for turn in range(5)], threads)
    assert is_direct(ran, attended(rounds, before, seed=1))


def test_rounds_of_much_work_are_left_to_ordinary_runs() -> None:
    feeds = attended(64, 3000, seed=2)
    assert not is_direct(checked(ATTENDING, [feeds] * 3), feeds)
