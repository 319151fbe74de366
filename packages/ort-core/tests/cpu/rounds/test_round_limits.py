"""Native rounds at their limits: memory that grows, refusals, turns, and which bodies are compiled."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import parser

import ort_core as ort
from ort_core.cpu.partition import shared_programs
from ort_core.cpu.partition.native_calls import LEAST_ROUNDS
from ort_core.cpu.rounds import bound_rounds
from ort_core.cpu.rounds.bound_rounds import BoundRounds
from ort_core.cpu.rounds.native_rounds import TURN_NS, next_turn
from ort_core.cpu.rounds.round_memory import MOST_FIRST_NBYTES, Stack

HEADER = '<ir_version: 9, opset_import: ["" : 21]>\n'
# A round of 50 x 4 floats and a number: 808 bytes, of which stacks have room for different numbers of rounds.
PILED = """
g (int64 m, float[N,4] x) => (float[K,N,4] steps, int64[K] numbers) {
    last, steps, numbers = Loop (m, , x) <body = b (int64 i, bool c, float[N,4] h) =>
        (bool more, float[N,4] out, float[N,4] seen, int64 n) {
        more = Identity(c)
        out = Tanh(h)
        seen = Sigmoid(out)
        n = Add(i, i)
    }>
}"""
SCANNED = """
g (float[3] first, float[T,3] x) => (float[3] last, float[T,3] sums) {
    last, sums = Scan <num_scan_inputs = 1, scan_input_directions = [INPUT], scan_output_directions = [OUTPUT],
        body = b (float[3] h, float[3] now) => (float[3] after, float[3] made) {
        after = Add(h, now)
        made = Tanh(after)
    }> (first, x)
}"""


def session(text: str, provider: str = "CPUExecutionProvider", limit: int | None = None) -> ort.InferenceSession:
    options = ort.SessionOptions()
    if limit is not None:
        options.max_allocation_bytes = limit
    return ort.InferenceSession(parser.parse_model(HEADER + text).SerializeToString(), options, providers=[provider])


def feeds(rounds: int) -> dict[str, np.ndarray]:
    x = np.random.default_rng(1).standard_normal((50, 4)).astype(np.float32)
    return {"m": np.array(rounds), "x": x}


def test_stacks_of_different_sizes_grow_together() -> None:
    steps, numbers = session(PILED).run(None, feeds(3000))
    truth = session(PILED, "ReferenceExecutionProvider").run(None, feeds(3000))
    np.testing.assert_allclose(steps, truth[0], atol=1e-6)
    np.testing.assert_array_equal(numbers, 2 * np.arange(3000))


@pytest.mark.parametrize("rounds", [2500, 2595])
def test_stacks_that_fit_the_limit_may_grow_to_it(rounds: int) -> None:
    steps, numbers = session(PILED, limit=2595 * 808).run(None, feeds(rounds))
    assert (len(steps), len(numbers)) == (rounds, rounds)


def test_the_first_round_above_the_limit_is_refused() -> None:
    with pytest.raises(ort.OrtError, match=f"scan outputs of Loop would take {2596 * 808} bytes"):
        session(PILED, limit=2595 * 808).run(None, feeds(2596))


@pytest.mark.parametrize(("given", "made", "name"), [(2, 0, "input"), (-1, 0, "input"), (0, 2, "output")])
def test_a_direction_that_is_none_is_refused(given: int, made: int, name: str) -> None:
    text = SCANNED.replace("INPUT", str(given)).replace("OUTPUT", str(made))
    with pytest.raises(ort.OrtError, match=f"scan_{name}_directions"):
        session(text).run(None, {"first": np.zeros(3, np.float32), "x": np.ones((20, 3), np.float32)})


def test_results_of_many_bytes_begin_with_few_rounds() -> None:
    assert Stack((MOST_FIRST_NBYTES,), np.dtype(np.int8), None).capacity == 1
    assert Stack((MOST_FIRST_NBYTES // 4,), np.dtype(np.int8), None).capacity == 4


def test_the_guard_is_asked_after_the_first_round(monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[tuple[int, int]] = []
    run = BoundRounds.run

    def spied(self: BoundRounds, first: int, limit: int) -> int:
        turns.append((first, limit))
        return run(self, first, limit)

    monkeypatch.setattr(BoundRounds, "run", spied)
    session(PILED).run(None, feeds(100))
    assert turns[0] == (0, 1)


def test_turns_of_rounds_take_a_few_milliseconds() -> None:
    assert next_turn(1, 1000) == 16
    assert next_turn(100, TURN_NS // 2) == 200
    assert next_turn(100, TURN_NS) == 100
    assert next_turn(100, 10 * TURN_NS) == 10
    assert next_turn(1, 10**10) == 1


def test_loading_makes_the_code_that_a_compiled_model_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bound_rounds, "_module", [])
    session(PILED)
    assert bound_rounds._module


def small_loops(count: int, rounds: int) -> ort.InferenceSession:
    """Return a model of loops whose bodies add numbers of their own."""
    loops = "\n".join(
        f"""y{n + 1} = Loop (m, , y{n}) <body = b (int64 i, bool c, float[4] h) => (bool c2, float[4] out) <
            float k = {{{n}.5}}> {{
            c2 = Identity(c)
            out = Add(h, k)
        }}>"""
        for n in range(count)
    )
    text = f"g (float[4] y0) => (float[4] y{count}) <int64 m = {{{rounds}}}> {{\n{loops}\n}}"
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    made: onnx.ModelProto = parser.parse_model(HEADER + text)
    return ort.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])


def native_loops(ran: ort.InferenceSession) -> int:
    return sum(
        each.execution is not None and "a native call" in each.execution.step
        for each in ran.explain().nodes
        if each.op_type == "Loop"
    )


def test_of_many_small_bodies_the_first_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_programs, "MAX_SMALL", 2)
    ran = small_loops(5, 10)
    assert native_loops(ran) == 2
    (y,) = ran.run(None, {"y0": np.zeros(4, np.float32)})
    np.testing.assert_array_equal(y, np.full(4, 10 * sum(n + 0.5 for n in range(5)), np.float32))


def test_small_bodies_of_a_few_rounds_are_not_compiled() -> None:
    assert native_loops(small_loops(2, LEAST_ROUNDS - 1)) == 0
    assert native_loops(small_loops(2, LEAST_ROUNDS)) == 2


def test_a_loop_that_is_the_model_is_compiled_from_two_rounds_on() -> None:
    assert native_loops(small_loops(1, 1)) == 0
    assert native_loops(small_loops(1, 2)) == 1
