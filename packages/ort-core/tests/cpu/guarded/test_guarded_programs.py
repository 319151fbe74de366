"""Guarded runs: a touch beside a buffer ends the process and names its step; memory that nobody wrote shows."""

from __future__ import annotations

import os
import subprocess
import sys
import weakref
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

from faulty_programs import COUNT, FAULTS, program  # isort: skip
import ort_core as ort
from ort_core.cpu.guarded.mode import GuardedMode, GuardViolation
from ort_core.cpu.guarded.program import GuardedProgram
from ort_core.cpu.guarded.region import GuardedRegion, Part
from ort_core.cpu.guarded.schedule import calls
from ort_core.cpu.program.program import NativeProgram
from ort_core.cpu.threads.pool import ThreadPool
from ort_core.cpu.threads.pool_code import ALL, BARRIER, OWNER_AT, PIECES_AT, SERIAL

MODES = ("end", "begin")
GIVEN = np.arange(COUNT, dtype=np.uint8)


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("ORT_GUARDED_MEMORY", request.param)
    return request.param


def run_alone(fault: str, mode: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a process of its own, whose end is looked at."""
    script = Path(__file__).with_name("faulty_programs.py")
    command = [sys.executable, "-X", "faulthandler", str(script), fault]
    environment = {**os.environ, "ORT_GUARDED_MEMORY": mode}
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)


def test_a_sound_program_gives_its_results(mode: str) -> None:
    made = program(FAULTS["none"], ThreadPool(1))
    assert isinstance(made, GuardedProgram)
    for _ in range(2):
        assert np.array_equal(made.run([GIVEN])[0], GIVEN)
    assert made.bind(((COUNT,),)) is None, "a direct call would not be guarded"


def test_a_run_keeps_the_constants_that_it_reads_when_another_thread_makes_them_anew(mode: str) -> None:
    made = program(FAULTS["none"], ThreadPool(1))
    assert isinstance(made, GuardedProgram)
    kept = weakref.ref(made.constants)
    seen: list[bool] = []

    def observe(step: int, begin: int, sizes: object) -> None:
        made._constants = None  # as the slower of two threads that both run a program first leaves it
        seen.append(kept() is not None)

    made.run([GIVEN], observe=observe)
    assert seen == [True, True]


def test_a_program_whose_values_are_all_looks_at_others_has_no_steps_and_runs(mode: str) -> None:
    looks = [
        helper.make_node("ReverseSequence", ["x", "lengths"], ["y"], batch_axis=1, time_axis=0),
        helper.make_node("Transpose", ["v"], ["t"]),
        helper.make_node("Expand", ["t", "shape"], ["u"]),
    ]
    constants = [numpy_helper.from_array(np.array(n, np.int64), s) for s, n in (("lengths", [2, 2, 2]), ("shape", []))]
    end = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    kept = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "kept", [], [end])
    other = helper.make_graph(looks, "other", [], [end], constants)
    node = helper.make_node("If", ["c"], ["y"], then_branch=kept, else_branch=other)
    types = {"c": (TensorProto.BOOL, []), "x": (TensorProto.FLOAT, [2, 3, 4]), "v": (TensorProto.FLOAT, [])}
    inputs = [helper.make_tensor_value_info(name, *given) for name, given in types.items()]
    model = helper.make_model(
        helper.make_graph([node], "g", inputs, [end]), opset_imports=[helper.make_opsetid("", 21)]
    )
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    found = session.run(None, {"c": np.array(False), "x": x, "v": np.array(1, np.float32)})[0]
    assert np.array_equal(found, x[::-1])


def test_a_program_that_reads_the_shape_of_text_runs(mode: str) -> None:
    text = (
        '<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]> g (string[N, 1] x) => (float[] y, float[] z) '
        "<float[3] table = {1, 2, 3}, int64 three = {3}> { w = com.microsoft.Tokenizer <mark = 1, mincharnum = 1, "
        'pad_value = "#", separators = [" "]> (x)  s = Shape(w)  y = ConstantOfShape(s)  m = Mod(s, three)  '
        "z = Gather(table, m) }"
    )
    session = ort.InferenceSession(parser.parse_model(text).SerializeToString())
    found = session.run(None, {"x": np.array([["a b"], ["c"]], object)})
    np.testing.assert_array_equal(found[0], np.zeros((2, 1, 4), np.float32))
    assert found[1].tolist() == [3, 2, 2]


def test_a_program_is_an_ordinary_one_unless_guarding_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ORT_GUARDED_MEMORY", raising=False)
    assert type(program(FAULTS["none"], ThreadPool(1))) is NativeProgram


@pytest.mark.parametrize(
    ("fault", "mode", "step"),
    [
        ("read_past_the_end", "end", "step 1 of 2, kernel second"),
        ("read_before_the_beginning", "begin", "step 1 of 2, kernel second"),
        ("write_past_the_end", "end", "step 0 of 2, kernel first"),
    ],
)
def test_a_touch_beside_a_buffer_ends_the_process_and_names_the_step(fault: str, mode: str, step: str) -> None:
    done = run_alone(fault, mode)
    assert done.returncode != 0
    assert step in done.stderr, done.stderr[-2000:]


@pytest.mark.parametrize("fault", ["gap_in_what_is_written", "nothing_in_the_output"])
def test_memory_that_nobody_wrote_shows_in_the_outputs(fault: str, mode: str) -> None:
    with pytest.raises(GuardViolation, match=r"'made'.*depend on memory that nobody wrote"):
        program(FAULTS[fault], ThreadPool(1)).run([GIVEN])


def test_a_write_on_the_other_side_of_a_buffer_is_seen_behind_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORT_GUARDED_MEMORY", "begin")
    with pytest.raises(GuardViolation, match="byte 13 of slot 0, of 13 bytes was written"):
        program(FAULTS["write_past_the_end"], ThreadPool(1)).run([GIVEN])


@pytest.mark.parametrize("mode", list(GuardedMode)[1:])
def test_buffers_lie_against_a_page_to_the_byte(mode: GuardedMode) -> None:
    sizes = (1, 13, 4096, 5000, 0)
    region = GuardedRegion([Part(size) for size in sizes], mode)
    for number, size in enumerate(sizes):
        address = region.addresses[number]
        assert (address + size if mode is GuardedMode.END else address) % 4096 == 0
        region.fill(number, 7)
        region.bytes_of(number)[...] = 9
        assert region.changed_beside(number) is None


def test_an_alignment_that_is_asked_for_is_kept_and_the_bytes_left_over_are_watched() -> None:
    region = GuardedRegion([Part(13, 8)], GuardedMode.END)
    region.fill(0, 7)
    assert (region.addresses[0] % 8, region.addresses[0] % 4096) == (0, 4096 - 16)
    region._view(region.addresses[0] + 13, 1)[...] = 1
    assert region.changed_beside(0) == 13


def made_calls(flags: list[int], threads: int, *, backwards: bool = False) -> list[tuple[int, int, int, int]]:
    return [(c.step, c.piece, c.pieces, c.thread) for c in calls(flags, threads, backwards=backwards)]


def test_a_thread_goes_on_to_the_next_step_until_all_must_meet() -> None:
    assert made_calls([0, BARRIER, 0], 2) == [
        (0, 0, 2, 0), (1, 0, 2, 0), (0, 1, 2, 1), (1, 1, 2, 1), (2, 0, 2, 0), (2, 1, 2, 1)
    ]  # fmt: skip
    assert made_calls([0, 0], 2, backwards=True) == [(0, 1, 2, 1), (1, 1, 2, 1), (0, 0, 2, 0), (1, 0, 2, 0)]


def test_each_piece_of_a_step_is_done_once() -> None:
    found = made_calls([SERIAL, 3 << PIECES_AT], 2, backwards=True)
    assert [c for c in found if c[0] == 0] == [(0, 0, 1, 0)]
    assert made_calls([SERIAL | 1 << OWNER_AT], 2) == [(0, 0, 1, 1)], "by its owner"
    assert made_calls([SERIAL | 1 << OWNER_AT], 1) == [(0, 0, 1, 0)], "by the only thread"
    assert sorted(piece for step, piece, pieces, _ in found if step == 1) == list(range(6))


def test_two_threads_that_do_not_meet_where_they_must_are_seen(mode: str) -> None:
    made = program(FAULTS["none"], ThreadPool(2))
    plan = made._plan(((COUNT,),))
    plan.flags[:], plan._wanted = 0, ALL  # no meeting between the step that writes and the one that reads

    def by(thread: int, step: int) -> Callable[[int, int, int, int], None]:
        kernel = made.kernels_by_step[step]
        return lambda *words: kernel(*words) if words[3] == thread else None

    made._kernels = (by(1, 0), by(0, 1))
    with pytest.raises(GuardViolation, match="order of threads"):
        made.run([GIVEN])
    plan.flags[0] = BARRIER
    assert np.array_equal(made.run([GIVEN])[0], GIVEN)
