"""Loops and scans that are one direct call each, against the numpy kernels: as whole models, and behind other steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from onnx import parser
from rounds_checks import assert_nothing_beside_is_touched, assert_right_in_many_threads, carried_text

import ort_core as ort
from ort_core.cpu.guarded.mode import GuardedMode
from ort_core.cpu.rounds import direct_rounds
from ort_core.cpu.rounds.direct_rounds import DirectRounds
from ort_core.tolerances import compare

pytestmark = pytest.mark.unguarded

HEADER = '<ir_version: 9, opset_import: ["" : 21]>\n'
Feeds = Mapping[str, np.ndarray]
# Each text stands for two: with steps in front of the node that make a value which its body reads, and without.
PILED = """
g (int64 m, float[N,4] x, float[4,4] w) => (float[N,4] last, float[K,N,4] steps, int64[K] numbers) {
    FRONT
    last, steps, numbers = Loop (m, , x) <body = b (int64 i, bool c, float[N,4] h) =>
        (bool more, float[N,4] out, float[N,4] seen, int64 n) {
        more = Identity(c)
        p = MatMul(h, w)
        out = Add(p, SHIFT)
        seen = Sigmoid(out)
        n = Add(i, i)
    }>
}"""
COUNTED = """
g (int64 m, bool go, float[N] x) => (float[N] y, int64 sum, float[N] kept) <int64 zero = {0}> {
    FRONT
    y, sum, kept = Loop (m, go, x, zero, x) <body = b (int64 i, bool c, float[N] h, int64 s, float[N] k) =>
        (bool more, float[N] out, int64 t, float[N] k2) {
        more = Identity(c)
        t = Add(s, i)
        half = Mul(h, SHIFT)
        out = Add(half, k)
        k2 = Identity(k)
    }>
}"""
UNTIL = """
g (bool go, float[N,4] x, float limit) => (float[N,4] last, float[K,N,4] steps) {
    FRONT
    last, steps = Loop ( , go, x) <body = b (int64 i, bool c, float[N,4] h) =>
        (bool more, float[N,4] out, float[N,4] h1) {
        out = Add(h, SHIFT)
        h1 = Identity(h)
        most = ReduceMax <keepdims = 0> (out)
        more = Less(most, limit)
    }>
}"""
SCANNED = """
g (float[N,4] x, float[T,N,4] z) => (float[N,4] last, float[T,N,4] sums, float[T,N,4] zs) {
    FRONT
    last, sums, zs = Scan <num_scan_inputs = 2, scan_input_directions = [0, 1], scan_output_directions = [1, 0],
        body = b (float[N,4] h, float[N,4] now, float[N,4] r) =>
            (float[N,4] after, float[N,4] made, float[N,4] r2) {
        both = Add(h, now)
        sum = Mul(both, SHIFT)
        after = Tanh(sum)
        made = Sub(after, r)
        r2 = Identity(r)
    }> (x, z, z)
}"""
SWAPPED = """
g (int64 m, float[N] a, float[N] b) => (float[N] u, float[N] v, float[K,N] first) {
    FRONT
    u, v, first = Loop (m, , a, b) <body = b (int64 i, bool c, float[N] p, float[N] q) =>
        (bool c2, float[N] q2, float[N] s, float[N] s2) {
        c2 = Identity(c)
        q2 = Identity(q)
        t = Add(p, q)
        s = Mul(t, SHIFT)
        s2 = Identity(s)
    }>
}"""
INDEXED = """
g (int64 m, float[N,4] table, int64[B] start) => (int64[B] last, float[K,B,4] rows) <int64 one = {1}> {
    last, rows = Loop (m, , start) <body = b (int64 i, bool c, int64[B] at) =>
        (bool c2, int64[B] next, float[B,4] row) {
        c2 = Identity(c)
        next = Add(at, one)
        g = Gather <axis = 0> (table, at)
        row = Tanh(g)
    }>
}"""
FRONTS = {"whole": "", "behind": "t = Tanh(NAME)\nshift = Sigmoid(t)"}
INPUTS = {PILED: "x", COUNTED: "x", UNTIL: "x", SCANNED: "x", SWAPPED: "a"}


def session(text: str, front: str = "whole", provider: str = "CPUExecutionProvider") -> ort.InferenceSession:
    name = INPUTS.get(text, "")
    written = text.replace("FRONT", FRONTS[front].replace("NAME", name))
    written = written.replace("SHIFT", "shift" if front == "behind" else "x" if text is not SWAPPED else "a")
    options = ort.SessionOptions()
    options.intra_op_num_threads = 2
    model = parser.parse_model(HEADER + written).SerializeToString()
    return ort.InferenceSession(model, options, providers=[provider])


def floats(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32) / 4


def number(value: int) -> np.ndarray:
    return np.array(value, np.int64)


@pytest.fixture(autouse=True)
def any_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let rounds be direct however long they take on a busy machine."""
    monkeypatch.setattr(direct_rounds, "MOST_NS", 1 << 50)


@pytest.fixture
def direct(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Return what direct calls of a node among steps answered: whether they ran."""
    answered: list[bool] = []
    run = DirectRounds.run

    def spied(self: DirectRounds, *arguments: object) -> list[np.ndarray] | None:
        results = run(self, *arguments)  # type: ignore[arg-type]  # handed on
        answered.append(results is not None)
        return results

    monkeypatch.setattr(DirectRounds, "run", spied)
    return answered


def check(text: str, front: str, turns: Sequence[Feeds]) -> ort.InferenceSession:
    """Assert that runs in a row give what the kernels give, in memory of their own."""
    truth, ran = session(text, front, "ReferenceExecutionProvider"), session(text, front)
    for turn, feeds in enumerate(turns):
        given = {name: array.copy() for name, array in feeds.items()}
        results = ran.run(None, dict(feeds))
        for found, expected in zip(results, truth.run(None, dict(feeds)), strict=True):
            assert (found.shape, found.dtype) == (expected.shape, expected.dtype), turn
            outcome = compare(found, expected, "approximate")
            assert outcome.passes, f"turn {turn}: {outcome}"
        assert all(np.array_equal(feeds[name], given[name]) for name in feeds)
        arrays = [*results, *feeds.values()]
        assert not any(np.shares_memory(a, b) for n, a in enumerate(results) for b in arrays[n + 1 :])
    return ran


def is_direct(ran: ort.InferenceSession, feeds: Feeds) -> bool:
    return ran._loaded.direct.call(dict(feeds), None) is not None


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("rows", [0, 1, 3, 5])
@pytest.mark.parametrize("rounds", [1, 2, 3, 16, 17, 40])
def test_loops_carry_and_pile_up(rounds: int, rows: int, front: str, direct: list[bool]) -> None:
    feeds = [{"m": number(rounds), "x": floats(n, rows, 4), "w": floats(9, 4, 4)} for n in range(6)]
    ran = check(PILED, front, feeds)
    assert direct[-1] if front == "behind" else is_direct(ran, feeds[0])


@pytest.mark.parametrize("front", FRONTS)
def test_the_number_of_rounds_changes_between_runs(front: str, direct: list[bool]) -> None:
    counts = [5, 5, 5, 5, 3, 1, 0, 5, -2, 9, 9, 9, 9, 20, 20, 20, 20, 20, 7, 18]
    ran = check(PILED, front, [{"m": number(n), "x": floats(1, 2, 4), "w": floats(9, 4, 4)} for n in counts])
    assert (
        direct[-1]
        if front == "behind"
        else is_direct(ran, {"m": number(11), "x": floats(1, 2, 4), "w": floats(9, 4, 4)})
    )


@pytest.mark.parametrize("front", FRONTS)
def test_values_that_are_only_carried(front: str, direct: list[bool]) -> None:
    turns = [(5, True), (5, True), (5, True), (5, True), (0, True), (3, False), (40, True), (-1, True), (1, True)]
    ran = check(COUNTED, front, [{"m": number(n), "go": np.array(go), "x": floats(n + 1, 7)} for n, go in turns])
    assert (
        direct[-1] if front == "behind" else is_direct(ran, {"m": number(0), "go": np.array(True), "x": floats(1, 7)})
    )


@pytest.mark.parametrize("front", FRONTS)
def test_the_body_ends_the_rounds(front: str, direct: list[bool]) -> None:
    x = np.full((2, 4), 0.5, np.float32)
    limits = [(4.0, True), (4.0, True), (4.0, True), (4.0, True), (2.0, True), (-1.0, True), (4.0, False), (3.0, True)]
    more = [(9.0, True)] * 4
    feeds = [{"go": np.array(go), "x": x, "limit": np.array(limit, np.float32)} for limit, go in (*limits, *more)]
    ran = check(UNTIL, front, feeds)
    assert direct[-1] if front == "behind" else is_direct(ran, feeds[0])
    assert front == "behind" or not is_direct(ran, feeds[6])  # no round: only the kernels know what piles up then


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("steps", [1, 2, 9])
def test_scans_in_both_directions(steps: int, front: str, direct: list[bool]) -> None:
    feeds = [{"x": floats(n, 3, 4), "z": floats(n + 20, steps, 3, 4)} for n in range(6)]
    ran = check(SCANNED, front, feeds)
    assert direct[-1] if front == "behind" else is_direct(ran, feeds[0])
    check(SCANNED, front, [feeds[0]] * 4 + [{"x": floats(1, 3, 4), "z": floats(2, n, 3, 4)} for n in (1, 5, 0, 2, 5)])


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("rounds", [1, 2, 3, 8])
def test_carried_values_change_places(rounds: int, front: str, direct: list[bool]) -> None:
    feeds = [{"m": number(rounds), "a": floats(n, 7), "b": floats(n + 7, 7)} for n in range(6)]
    ran = check(SWAPPED, front, feeds)
    assert direct[-1] if front == "behind" else is_direct(ran, feeds[0])


def test_an_index_out_of_bounds_is_the_kernels_error() -> None:
    feeds = {"m": number(4), "table": floats(1, 6, 4), "start": np.array([0, 2])}
    ran = check(INDEXED, "whole", [feeds] * 4)
    assert is_direct(ran, feeds)
    for bad in ({**feeds, "start": np.array([0, 4])}, {**feeds, "start": np.array([-9, 0])}):
        assert not is_direct(ran, bad)
        with pytest.raises(ort.OrtError, match=r"(?i)index|bound"):
            ran.run(None, bad)
    assert is_direct(ran, feeds)


def test_feeds_of_other_types_and_orders() -> None:
    feeds = {"m": number(4), "x": floats(1, 4, 4), "w": floats(2, 4, 4)}
    ran = check(PILED, "whole", [feeds] * 4)
    truth = session(PILED, provider="ReferenceExecutionProvider")
    turned = {**feeds, "x": feeds["x"].T}
    for found, expected in zip(ran.run(None, turned), truth.run(None, turned), strict=True):
        assert compare(found, expected, "approximate").passes
    for wrong in ({**feeds, "m": np.array(4, np.int32)}, {**feeds, "x": feeds["x"].astype(np.float64)}):
        with pytest.raises(ort.OrtError):
            ran.run(None, wrong)


def test_large_rounds_and_long_ones_are_not_direct(monkeypatch: pytest.MonkeyPatch) -> None:
    feeds = {"m": number(4), "x": floats(1, 4, 4), "w": floats(2, 4, 4)}
    monkeypatch.setattr(direct_rounds, "MOST_NBYTES", 500)
    assert not is_direct(check(PILED, "whole", [feeds] * 12), feeds)
    monkeypatch.setattr(direct_rounds, "MOST_NBYTES", 5000)
    assert is_direct(check(PILED, "whole", [feeds] * 4), feeds)
    monkeypatch.setattr(direct_rounds, "MOST_NS", 0)
    assert not is_direct(check(PILED, "whole", [feeds] * 4), feeds)


def test_a_limit_of_memory_is_kept() -> None:
    options = ort.SessionOptions()
    options.max_allocation_bytes = 1 << 16
    written = PILED.replace("FRONT", "").replace("SHIFT", "x")
    ran = ort.InferenceSession(parser.parse_model(HEADER + written).SerializeToString(), options)
    feeds = {"m": number(4), "x": floats(1, 4, 4), "w": floats(2, 4, 4)}
    for _ in range(4):
        ran.run(None, feeds)
    with pytest.raises(ort.OrtError, match="scan outputs of Loop"):
        ran.run(None, {**feeds, "m": number(10**6)})


def test_many_threads_with_several_shapes_and_counts() -> None:
    ran, truth = session(PILED), session(PILED, provider="ReferenceExecutionProvider")
    feeds = [{"m": number(4 + n % 3), "x": floats(n, 1 + n % 4, 4), "w": floats(9, 4, 4)} for n in range(12)]
    assert_right_in_many_threads(ran, truth, feeds, turns=60)
    assert is_direct(ran, feeds[0])


@pytest.mark.parametrize("mode", [GuardedMode.BEGIN, GuardedMode.END])
@pytest.mark.parametrize("rows", [1, 3])
def test_nothing_beside_feeds_and_outputs_is_touched(rows: int, mode: GuardedMode) -> None:
    for text, feeds in (
        (SCANNED, {"x": floats(1, rows, 4), "z": floats(2, 5, rows, 4)}),
        (COUNTED, {"m": number(3), "go": np.array(True), "x": floats(3, rows)}),
    ):
        assert_nothing_beside_is_touched(check(text, "whole", [feeds] * 4), feeds, mode)


@pytest.mark.parametrize("kind", ["double", "float16", "bfloat16", "int32", "uint8", "bool"])
def test_carried_values_of_other_types(kind: str) -> None:
    text = carried_text(kind)
    (given,) = (each for each in session(text).get_inputs() if each.name == "x")
    dtype = {"double": np.float64, "bool": np.bool_}.get(kind, kind)
    if kind == "bfloat16":
        from ml_dtypes import bfloat16 as dtype
    assert kind in given.type
    x = np.arange(-4, 5).astype(np.float32).astype(dtype)
    check(text, "whole", [{"m": number(3), "x": x}] * 5)


GROWING = """
g (int64 m, float[P] x, float limit) => (float[Q] y, float[R] same, int64[K] numbers) {
    y, same, numbers = Loop (m, , x, x) <body = b (int64 i, bool c, float[S] h, float[T] k) =>
        (bool more, float[U] out, float[V] k2, int64 n) {
        e = Tanh(h)
        f = Sigmoid(e)
        out = Concat <axis = 0> (f, k)
        k2 = Identity(k)
        n = Add(i, i)
        most = ReduceSum <keepdims = 0> (e)
        more = Less(most, limit)
    }>
}"""


def growing(rounds: int, size: int, limit: float = 1e9, seed: int = 3) -> dict[str, np.ndarray]:
    return {"m": number(rounds), "x": np.abs(floats(seed, size)), "limit": np.array(limit, np.float32)}


@pytest.mark.parametrize("size", [0, 1, 5])
@pytest.mark.parametrize("rounds", [1, 2, 9])
def test_carried_values_that_grow(rounds: int, size: int) -> None:
    ran = check(GROWING, "whole", [growing(rounds, size, seed=n) for n in range(6)])
    assert is_direct(ran, growing(rounds, size))


def test_values_grow_for_other_numbers_of_rounds_and_until_the_body_says_so() -> None:
    turns = [growing(5, 3)] * 5
    ran = check(GROWING, "whole", [*turns, growing(5, 3, 4.0), growing(4, 3), growing(0, 3), growing(-1, 3), *turns])
    assert is_direct(ran, growing(5, 3))
    assert is_direct(ran, growing(5, 3, 4.0))  # which ends sooner
    assert is_direct(ran, growing(4, 3))
    assert is_direct(ran, growing(1, 3))
    assert not is_direct(ran, growing(0, 3))
    assert not is_direct(ran, growing(6, 3))  # for which there is no room yet
    ran = check(GROWING, "whole", [growing(n, 3) for n in (5, 5, 5, 6, 6, 6, 6, 5, 6, 1, 8, 2)])
    assert all(is_direct(ran, growing(n, 3)) for n in (1, 5, 6, 7, 8))
    ran = check(GROWING, "whole", [growing(n % 7, 1 + n % 5) for n in range(60)])


def test_values_grow_until_data_end_the_loop() -> None:
    """As many rounds are laid out as texts have tokens, and more where these are too few."""
    endless = GROWING.replace("Loop (m,", "Loop (,")
    ran = check(endless, "whole", [growing(0, 3, stop) for stop in (4.0, 4.0, 4.0, 4.0, 9.0, 4.0)])
    assert is_direct(ran, growing(0, 3, 4.0))


def test_growing_values_of_many_rounds_are_left_to_the_kernels() -> None:
    for rounds, is_expected in ((70, True), (256, True), (257, False)):
        feeds = growing(rounds, 1)
        assert is_direct(check(GROWING, "whole", [feeds] * 5), feeds) is is_expected


def test_shapes_of_an_entry_of_long_ago_are_left_to_the_ordinary_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct_rounds, "MOST_TAGS", 1)
    ran = check(GROWING, "whole", [growing(4, size) for size in (3, 3, 3, 3, 5, 5, 5, 5, 3, 3)])
    assert not is_direct(ran, growing(4, 3))


def test_a_constant_of_the_body_whose_elements_do_not_lie_in_order_piles_up_in_order() -> None:
    """A kernel may have made it when the model was loaded, as a transposed array."""
    text = """<ir_version: 9, opset_import: ["" : 21, "com.microsoft" : 1]>
    g (float[T,4] z, float[4] x) => (float[4] last, int32[T,2,K] paths) {
        last, paths = Scan <num_scan_inputs = 1, body = b (float[4] s, float[4] zi) => (float[4] o, int32[2,K] path)
            <float[1,4,5] distances = {6, 7, 7, 1, 7, 7, 2, 5, 8, 3, 2, 0, 0, 8, 3, 7, 6, 6, 0, 3}> {
            o = Add(s, zi)
            path = com.microsoft.DynamicTimeWarping(distances)
        }> (x, z)
    }"""
    model = parser.parse_model(text).SerializeToString()
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    reference = ort.InferenceSession(model, providers=["ReferenceExecutionProvider"])
    feeds = {"z": np.ones((3, 4), np.float32), "x": np.zeros(4, np.float32)}
    for _ in range(5):  # ordinary runs, then direct calls
        for found, truth in zip(session.run(None, feeds), reference.run(None, feeds), strict=True):
            np.testing.assert_array_equal(found, truth)


def test_growing_values_of_many_threads_have_the_shapes_of_their_own_rounds() -> None:
    model = parser.parse_model(HEADER + GROWING).SerializeToString()
    ran = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    truth = ort.InferenceSession(model, providers=["ReferenceExecutionProvider"])
    feeds = [growing(n % 9 + 1, 1 + n % 3, 1e9 if n % 2 else 3.0, seed=n) for n in range(24)]
    assert_right_in_many_threads(ran, truth, feeds, 72)
