"""Slots and barriers by property: values alive together share no memory, threads meet between writer and reader."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ort_core.cpu.lowering.early_stores import stored_early
from ort_core.cpu.lowering.steps import Step
from ort_core.cpu.lowering.views import Buffer, Place
from ort_core.cpu.program.order import MAX_PIECES, PIECE_WORK, SERIAL_WORK, StepOrder
from ort_core.cpu.program.slots import Slots
from ort_core.cpu.threads.pool_code import BARRIER, PIECES_AT, SERIAL
from ort_core.plugin.ir import DataType, SymbolicDim

N = SymbolicDim.named("N")
COUNTS = (4, 5000, 5200, N, 2 * N)


@st.composite
def step_lists(draw: st.DrawFn) -> list[Step]:
    """Return steps that read inputs, outputs and what earlier steps wrote, and use scratch memory."""
    known = [Buffer(DataType.FLOAT, N, Place.INPUT, i) for i in range(2)]
    steps = []
    for number in range(draw(st.integers(1, 12))):
        reads = draw(st.lists(st.sampled_from(known), max_size=3, unique=True))
        again = [b for b in known if b.place is not Place.INPUT and b not in reads]
        if again and draw(st.integers(0, 4)) == 0:
            written = draw(st.sampled_from(again))  # another part of the same value, as Concat writes
        else:
            place = draw(st.sampled_from([Place.ARENA, Place.ARENA, Place.OUTPUT]))
            written = Buffer(DataType.FLOAT, draw(st.sampled_from(COUNTS)), place, number)
            known.append(written)
        writes = [written]
        if draw(st.booleans()):
            writes.append(Buffer(DataType.UINT8, draw(st.sampled_from((1024, 2048, N))), Place.SCRATCH))
        steps.append(Step(f"kernel{number}", (), tuple(reads), tuple(writes), 1))
    return steps


def lifetimes(steps: list[Step]) -> dict[Buffer, tuple[int, int]]:
    found: dict[Buffer, tuple[int, int]] = {}
    for number, step in enumerate(steps):
        for buffer in (*step.reads, *step.writes):
            found[buffer] = (found.get(buffer, (number, 0))[0], number)
    return found


@settings(max_examples=300, deadline=None)
@given(step_lists())
def test_values_alive_together_never_share_a_slot(steps: list[Step]) -> None:
    slots = Slots(steps)
    alive = [(b, span) for b, span in lifetimes(steps).items() if b.place in (Place.ARENA, Place.SCRATCH)]
    for index, (left, (first, last)) in enumerate(alive):
        for right, (start, end) in alive[:index]:
            if slots.of(left) == slots.of(right):
                assert last < start or end < first, "two values alive at one step share a slot"
                assert (left.place is Place.SCRATCH) == (right.place is Place.SCRATCH)
                if left.place is Place.SCRATCH:
                    assert left.count == right.count, "threads in different steps would meet in scratch memory"


@settings(max_examples=300, deadline=None)
@given(step_lists())
def test_slot_is_large_enough_for_every_value_in_it(steps: list[Step]) -> None:
    slots = Slots(steps)
    for buffer in lifetimes(steps):
        if buffer.place in (Place.ARENA, Place.SCRATCH):
            wanted, available = buffer.count * buffer.itemsize, slots.nbytes[slots.of(buffer)]
            assert wanted == available or wanted <= available  # type: ignore[operator]  # symbolic ones are equal


@settings(max_examples=300, deadline=None)
@given(step_lists(), st.lists(st.sampled_from([10, 10, SERIAL_WORK - 1, SERIAL_WORK, 10**6]), min_size=12, max_size=12))
def test_threads_meet_between_steps_that_touch_the_same_memory(steps: list[Step], work: list[int]) -> None:
    slots = Slots(steps)
    flags = StepOrder.of(steps, slots.find).flags(work[: len(steps)], 2)
    shared = [
        ({slots.find(b) for b in s.reads}, {slots.find(b) for b in s.writes if b.place is not Place.SCRATCH})
        for s in steps
    ]
    for later, (reads, writes) in enumerate(shared):
        for earlier in range(later):
            earlier_reads, earlier_writes = shared[earlier]
            by_one_thread = flags[earlier] & SERIAL and flags[later] & SERIAL
            if not by_one_thread and ((reads | writes) & earlier_writes or writes & earlier_reads):
                assert any(flags[earlier:later] & BARRIER), f"steps {earlier} and {later} race"


@pytest.fixture(autouse=True)
def no_pieces_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ORT_STEP_PIECES", raising=False)


def test_every_step_but_the_undivided_is_cut_and_shared_where_the_environment_asks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ORT_STEP_PIECES", "5")
    steps = [replace(step, is_divisible=number != 1) for number, step in enumerate(chain(3))]
    flags = StepOrder.of(steps, Slots(steps).find).flags([1, 1, 1], 2)
    assert (flags >> PIECES_AT).tolist() == [5, 0, 5]
    assert [bool(flag & BARRIER) for flag in flags] == [True, True, False]
    assert not (flags & SERIAL).any(), "a short step left to one thread tries nothing"


def chain(length: int) -> list[Step]:
    """Return steps that each read what the one before wrote."""
    buffers = [Buffer(DataType.FLOAT, 8, Place.ARENA) for _ in range(length + 1)]
    return [Step("kernel", (), (a,), (b,), 1) for a, b in itertools.pairwise(buffers)]


def test_small_steps_in_a_row_are_run_by_one_thread_without_meeting() -> None:
    steps = chain(6)
    flags = StepOrder.of(steps, Slots(steps).find).flags([10**6, 10, 10, 10, 10**6, 10**6], 1)
    assert flags.tolist() == [BARRIER, SERIAL, SERIAL, SERIAL | BARRIER, BARRIER, 0]


def test_a_small_step_alone_is_shared_by_all_threads() -> None:
    steps = chain(3)
    flags = StepOrder.of(steps, Slots(steps).find).flags([10**6, 10, 10**6], 1)
    assert flags.tolist() == [BARRIER, BARRIER, 0]


def test_long_steps_are_claimed_piece_by_piece_and_short_and_undivided_ones_are_not() -> None:
    steps = [replace(step, is_divisible=number != 1) for number, step in enumerate(chain(5))]
    order = StepOrder.of(steps, Slots(steps).find)
    long, shares = 10**9, 3 * 2 * PIECE_WORK - 1
    pieces = [flag >> PIECES_AT for flag in order.flags([long, long, shares, shares + 1, 10], 3).tolist()]
    assert pieces == [MAX_PIECES, 0, 0, 2, 0]
    assert order.flags([long] * 5, 1).tolist() == [BARRIER] * 4 + [0], "one thread has nobody to leave pieces to"


@settings(max_examples=300, deadline=None)
@given(step_lists(), st.integers(0, 6))
def test_stores_that_move_stay_behind_what_writes_their_inputs_and_others_keep_their_order(
    steps: list[Step], count: int
) -> None:
    late = {id(step) for step in steps[max(len(steps) - count, 0) :]}
    writers = [{buffer for buffer in step.writes if buffer.place is not Place.SCRATCH} for step in steps]
    if any(writers[at] & writers[other] for at in range(len(steps)) for other in range(at)):
        return  # parts of one value: none of the stores is one
    moved = stored_early(steps, late)
    assert sorted(map(id, moved)) == sorted(map(id, steps))
    assert [id(step) for step in moved if id(step) not in late] == [id(step) for step in steps if id(step) not in late]
    place = {id(step): number for number, step in enumerate(moved)}
    for at, step in enumerate(steps):
        for other in range(at):
            if writers[other] & set(step.reads):
                assert place[id(steps[other])] < place[id(step)]


def test_values_that_are_outputs_too_do_not_keep_their_memory_to_the_end() -> None:
    chain = [Buffer(DataType.FLOAT, 5000, Place.ARENA, number) for number in range(20)]
    steps = [Step("next", (), (before,), (after,), 1) for before, after in itertools.pairwise([_input(), *chain])]
    stores = [
        Step("store", (), (each,), (Buffer(DataType.FLOAT, 5000, Place.OUTPUT, number),), 1)
        for number, each in enumerate(chain)
    ]
    together = [*steps, *stores]
    assert len(Slots(together).nbytes) == 20
    assert len(Slots(stored_early(together, set(map(id, stores)))).nbytes) == 2


def _input() -> Buffer:
    return Buffer(DataType.FLOAT, 5000, Place.INPUT, 0)
