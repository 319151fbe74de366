"""Loops and scans whose rounds are one native call, against the numpy kernels and onnxruntime."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import parser
from rounds_checks import assert_right_in_many_threads, carried_text

import ort_core as ort
from ort_core.cpu.codegen.llvm_ir.scalar_printer import converts_halves
from ort_core.cpu.codegen.machine_code.llvm_targets import host_target
from ort_core.cpu.rounds import native_rounds, round_memory
from ort_core.cpu.rounds.native_rounds import NativeRounds
from ort_core.tolerances import compare

HEADER = '<ir_version: 9, opset_import: ["" : 21]>\n'
Feeds = Mapping[str, np.ndarray]
W = "float[4,4] w = {0.5,-0.2,0.1,0,0.3,0.4,0,-0.1,0.2,0,0.6,0.1,0,0.1,-0.3,0.5}"

PILED = f"""
g (int64 m, float[N,4] x) => (float[N,4] last, float[K,N,4] steps, int64[K] numbers) <{W}> {{
    shift = Tanh(x)
    last, steps, numbers = Loop (m, , x) <body = b (int64 i, bool c, float[N,4] h) =>
        (bool more, float[N,4] out, float[N,4] seen, int64 n) {{
        more = Identity(c)
        p = MatMul(h, w)
        out = Add(p, shift)
        seen = Sigmoid(out)
        n = Add(i, i)
    }}>
}}"""
UNTIL = f"""
g (bool go, float[N,4] x, float limit) => (float[N,4] last, float[K,N,4] steps) <{W}> {{
    last, steps = Loop ( , go, x) <body = b (int64 i, bool c, float[N,4] h) =>
        (bool more, float[N,4] out, float[N,4] h1) {{
        p = MatMul(h, w)
        out = Add(p, h)
        h1 = Identity(h)
        most = ReduceMax <keepdims = 0> (out)
        more = Less(most, limit)
    }}>
}}"""
SWAPPED = """
g (int64 m, float[N] a, float[N] b) => (float[N] u, float[N] v, float[N] kept, float[K,N] first) {
    u, v, kept, first = Loop (m, , a, b, a) <body = b (int64 i, bool c, float[N] p, float[N] q, float[N] k) =>
        (bool c2, float[N] q2, float[N] s, float[N] k2, float[N] s2) {
        c2 = Identity(c)
        q2 = Identity(q)
        t = Add(p, q)
        s = Mul(t, k)
        s2 = Identity(s)
        k2 = Identity(k)
    }>
}"""
SCANNED = """
g (float[3] first, float[A,T,3] x, float[T,3] z) => (float[3] last, float[A,T,3] sums, float[T,3] zs) {
    last, sums, zs = Scan <num_scan_inputs = 2, scan_input_axes = [1, 0], scan_input_directions = [0, 1],
        scan_output_axes = [1, -2], scan_output_directions = [1, 0],
        body = b (float[3] h, float[A,3] now, float[3] r) => (float[3] after, float[A,3] made, float[3] r2) {
        mean = ReduceMean <keepdims = 0> (now, zero)
        both = Add(h, mean)
        sum = Add(both, r)
        after = Tanh(sum)
        made = Mul(now, after)
        r2 = Identity(r)
    }> (first, x, z)
}"""
GROWING = """
g (int64 m, float[N] x) => (float[M] y) {
    y = Loop (m, , x) <body = b (int64 i, bool c, float[P] h) => (bool c2, float[Q] out) {
        c2 = Identity(c)
        e = Tanh(h)
        f = Sigmoid(e)
        out = Concat <axis = 0> (f, h)
    }>
}"""
INDEXED = """
g (int64 m, float[N,4] table, int64[B] start) => (int64[B] last, float[K,B,4] rows) {
    last, rows = Loop (m, , start) <body = b (int64 i, bool c, int64[B] at) =>
        (bool c2, int64[B] next, float[B,4] row) {
        c2 = Identity(c)
        next = Add(at, one)
        g = Gather <axis = 0> (table, at)
        row = Tanh(g)
    }>
}"""
NESTED = f"""
g (int64 m, int64 k, float[N,4] x) => (float[N,4] y, float[R,N,4] all) <{W}> {{
    y, all = Loop (m, , x) <body = outer (int64 i, bool c, float[N,4] h) =>
        (bool c2, float[N,4] out, float[N,4] seen) {{
        c2 = Identity(c)
        inner = Loop (k, , h) <body = deep (int64 j, bool d, float[N,4] e) => (bool d2, float[N,4] f) {{
            d2 = Identity(d)
            p = MatMul(e, w)
            f = Add(p, h)
        }}>
        out = Tanh(inner)
        seen = Sigmoid(out)
    }}>
}}"""


def session(text: str, provider: str = "CPUExecutionProvider", **arrays: np.ndarray) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 2
    return ort.InferenceSession(model(text, **arrays).SerializeToString(), options, providers=[provider])


def model(text: str, **arrays: np.ndarray) -> onnx.ModelProto:
    """Return a model from text; arrays become initializers of the main graph."""
    made = parser.parse_model(HEADER + text)
    made.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in arrays.items())
    return made


def floats(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Return what native rounds answered, call by call: whether they ran. They do so from three rounds on.

    No call is direct: ``test_direct_rounds`` looks at those.
    """
    monkeypatch.setattr(native_rounds, "LEAST_ROUNDS", 3)
    monkeypatch.setattr(native_rounds, "_direct_of", lambda *_: None)
    answered: list[bool] = []
    run = NativeRounds.run

    def spied(self: NativeRounds, *arguments: object) -> list[np.ndarray] | None:
        results = run(self, *arguments)  # type: ignore[arg-type]  # handed on
        answered.append(results is not None)
        return results

    monkeypatch.setattr(NativeRounds, "run", spied)
    return answered


def check(text: str, feeds: Feeds, *, peer: bool = True, **arrays: np.ndarray) -> None:
    """Assert that two runs in a row give what the kernels and onnxruntime give."""
    truths = [session(text, "ReferenceExecutionProvider", **arrays).run(None, dict(feeds))]
    if peer:
        serialized = model(text, **arrays).SerializeToString()
        truths.append(onnxruntime.InferenceSession(serialized).run(None, dict(feeds)))
    ran = session(text, **arrays)
    for turn in range(2):
        for results in zip(ran.run(None, dict(feeds)), *truths, strict=True):
            for other in results[1:]:
                assert (results[0].shape, results[0].dtype) == (other.shape, other.dtype), turn
                outcome = compare(results[0], other, "approximate")
                assert outcome.passes, f"turn {turn}: {outcome}"


@pytest.mark.parametrize("rounds", [0, 1, 3, 4, 15, 16, 17, 33, 300])
@pytest.mark.parametrize("rows", [0, 1, 5])
def test_a_loop_carries_and_piles_up_in_one_call(rounds: int, rows: int, calls: list[bool]) -> None:
    check(PILED, {"m": np.array(rounds), "x": floats(rows, rows, 4)}, peer=rows > 0)
    assert calls == [rounds >= 3] * 2


@pytest.mark.parametrize("nbytes", [1, 20, 100])
def test_stacks_grow_again_and_again(nbytes: int, calls: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(round_memory, "FIRST_ROUNDS", 1)
    monkeypatch.setattr(round_memory, "FIRST_NBYTES", nbytes)  # stacks of 8 and of 48 bytes begin with unlike room
    check(PILED, {"m": np.array(75), "x": floats(1, 3, 4)})
    check(UNTIL, {"go": np.array(True), "x": np.ones((2, 4), np.float32), "limit": np.array(1e6, np.float32)})
    check(SCANNED, {"first": floats(1, 3), "x": floats(2, 4, 30, 3), "z": floats(3, 30, 3)}, zero=np.array([0]))
    assert all(calls)


@pytest.mark.parametrize("limit", [-1.0, 3.0, 1e6])
@pytest.mark.parametrize("go", [True, False])
def test_a_loop_without_a_count_ends_where_its_body_says_so(limit: float, go: bool, calls: list[bool]) -> None:
    check(UNTIL, {"go": np.array(go), "x": np.ones((2, 4), np.float32), "limit": np.array(limit, np.float32)})
    assert calls == [go, go]


@pytest.mark.parametrize("rounds", [3, 4, 40])
def test_carried_values_change_places_and_results_are_returned_twice(rounds: int, calls: list[bool]) -> None:
    feeds = {"m": np.array(rounds), "a": floats(1, 7) / 2, "b": floats(2, 7) / 2}
    check(SWAPPED, feeds)
    assert calls == [True, True]


@pytest.mark.parametrize("steps", [1, 3, 8])
def test_a_scan_goes_along_axes_in_both_directions(steps: int, calls: list[bool]) -> None:
    feeds = {"first": floats(1, 3), "x": floats(2, 4, steps, 3), "z": floats(3, steps, 3)}
    check(SCANNED, feeds, zero=np.array([0]))
    assert calls == [steps >= 3] * 2


@pytest.mark.parametrize("rounds", [2, 4])
def test_a_few_rounds_are_run_one_by_one(rounds: int, calls: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_rounds, "LEAST_ROUNDS", 4)
    check(PILED, {"m": np.array(rounds), "x": floats(1, 3, 4)})
    assert calls == [rounds == 4] * 2


def test_a_state_that_grows_is_left_to_the_kernels(calls: list[bool]) -> None:
    check(GROWING, {"m": np.array(5), "x": floats(1, 3)})
    assert not any(calls)


@pytest.mark.parametrize("rounds", [4, 9])
def test_an_index_out_of_bounds_in_a_later_round_is_the_kernels_error(rounds: int, calls: list[bool]) -> None:
    feeds = {"m": np.array(rounds), "table": floats(1, 6, 4), "start": np.array([0, 2])}
    one = np.array([1])
    if rounds == 4:
        check(INDEXED, feeds, one=one)
        assert calls == [True, True]
        return
    with pytest.raises(ort.OrtError, match=r"(?i)index|bound"):
        session(INDEXED, one=one).run(None, feeds)
    assert calls == [False]
    check(INDEXED, {**feeds, "m": np.array(4)}, one=one)  # what failed leaves nothing behind


@pytest.mark.parametrize(("outer", "inner"), [(3, 4), (5, 0), (4, 100)])
def test_a_loop_within_a_loop_is_native_round_by_round(outer: int, inner: int, calls: list[bool]) -> None:
    check(NESTED, {"m": np.array(outer), "k": np.array(inner), "x": floats(1, 3, 4) / 4})
    assert calls.count(True) >= (outer if inner else 0)


def test_results_are_memory_of_their_own(calls: list[bool]) -> None:
    ran = session(PILED)
    feeds = {"m": np.array(20), "x": floats(1, 3, 4)}
    first = ran.run(None, feeds)
    kept = [array.copy() for array in first]
    ran.run(None, {"m": np.array(20), "x": floats(2, 3, 4)})
    assert all(np.array_equal(array, copy) for array, copy in zip(first, kept, strict=True))
    assert not any(np.shares_memory(array, feeds["x"]) for array in first)
    assert calls == [True, True]


def test_many_threads_run_the_same_loop_with_several_shapes(calls: list[bool]) -> None:
    ran, truth = session(PILED), session(PILED, "ReferenceExecutionProvider")
    feeds = [{"m": np.array(10 + n % 3), "x": floats(n, 1 + n % 4, 4)} for n in range(12)]
    assert_right_in_many_threads(ran, truth, feeds, turns=20)
    assert all(calls)


def test_an_endless_loop_is_ended_by_another_thread(calls: list[bool]) -> None:
    ran, options = session(UNTIL), ort.RunOptions()
    feeds = {"go": np.array(True), "x": np.zeros((1, 4), np.float32), "limit": np.array(1.0, np.float32)}

    def stop() -> None:
        time.sleep(0.05)
        options.terminate = True

    thread = threading.Thread(target=stop)
    thread.start()
    with pytest.raises(ort.OrtError, match="terminate"):
        ran.run(None, feeds, options)
    thread.join()
    assert calls == []  # it raised


def test_what_piles_up_is_refused_where_it_would_take_too_much(calls: list[bool]) -> None:
    options = ort.SessionOptions()
    options.max_allocation_bytes = 1 << 21
    ran = ort.InferenceSession(model(PILED).SerializeToString(), options, providers=["CPUExecutionProvider"])
    with pytest.raises(ort.OrtError, match="scan outputs of Loop"):
        ran.run(None, {"m": np.array(10**6), "x": floats(1, 50, 4)})


@pytest.mark.parametrize("dtype", [np.float64, np.float16, np.int32, np.int8, np.bool_])
def test_carried_values_of_other_types_keep_them(dtype: type, calls: list[bool]) -> None:
    kind = {np.float64: "double", np.float16: "float16", np.int32: "int32", np.int8: "int8", np.bool_: "bool"}[dtype]
    text = carried_text(kind)
    x = (floats(3, 9) / 2).astype(dtype) if np.dtype(dtype).kind == "f" else np.arange(9).astype(dtype)
    check(text, {"m": np.array(7), "x": x}, peer=False)
    is_native = dtype is not np.float16 or converts_halves(host_target())
    assert calls == ([True, True] if is_native else [])


def test_explain_says_that_rounds_are_a_native_call() -> None:
    (told,) = (each.execution for each in session(PILED).explain().nodes if each.op_type == "Loop")
    assert (told.how, told.step) == ("native", "1 Loop, a native call")
