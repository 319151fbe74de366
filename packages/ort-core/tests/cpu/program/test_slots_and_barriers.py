"""Slots and barriers by property: values alive together share no memory, threads meet between writer and reader."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ort_core.cpu.lowering.early_stores import side_by_side, stored_early
from ort_core.cpu.lowering.steps import Step
from ort_core.cpu.lowering.views import Buffer, Place
from ort_core.cpu.program.order import MAX_PIECES, PIECE_WORK, SERIAL_WORK, StepOrder
from ort_core.cpu.program.slots import Slots
from ort_core.cpu.threads.pool_code import BARRIER, OWNER_AT, PIECES_AT, SERIAL
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
        part = written if draw(st.integers(0, 2)) == 0 else None
        most_pieces = draw(st.sampled_from([None, None, 1, 3]))
        over = (draw(st.sampled_from(reads)), written) if reads and written is known[-1] else None
        steps.append(
            Step(f"kernel{number}", (), tuple(reads), tuple(writes), 1, part=part, most_pieces=most_pieces, over=over)
        )
    return steps


def must_follow(step: Step, earlier: Step, find: Callable[[Buffer], object]) -> bool:
    """Whether two steps touch the same memory, and one of them writes it, but where each writes a part of its own."""
    reads, writes, earlier_reads, earlier_writes = (
        {find(b) for b in buffers if b.place is not Place.SCRATCH}
        for buffers in (step.reads, step.writes, earlier.reads, earlier.writes)
    )
    if step.part is not None and step.part is earlier.part:
        writes, earlier_writes = writes - {find(step.part)}, earlier_writes - {find(step.part)}
    return bool((reads | writes) & earlier_writes or writes & earlier_reads)


def lifetimes(steps: list[Step]) -> dict[Buffer, tuple[int, int]]:
    found: dict[Buffer, tuple[int, int]] = {}
    for number, step in enumerate(steps):
        for buffer in (*step.reads, *step.writes):
            found[buffer] = (found.get(buffer, (number, 0))[0], number)
    return found


def overwrites(steps: list[Step], left: Buffer, right: Buffer, first: int, end: int) -> bool:
    """Return whether a step that makes ``left`` may write it over ``right``, which nobody reads later."""
    return first == end and steps[first].over == (right, left) and left.count == right.count


@settings(max_examples=300, deadline=None)
@given(step_lists())
def test_a_step_writes_over_what_it_reads_where_that_is_read_last_and_equally_large(steps: list[Step]) -> None:
    slots, spans = Slots(steps), lifetimes(steps)
    for number, step in enumerate(steps):
        if step.over is None or step.over[1].place is not Place.ARENA or spans[step.over[1]][0] != number:
            continue
        old, new = step.over
        fits = old.place is Place.ARENA and old.count == new.count and spans[old][1] == number
        written = any(old in earlier.writes for earlier in steps[:number])
        if fits and written:
            assert slots.of(old) == slots.of(new)


@settings(max_examples=300, deadline=None)
@given(step_lists())
def test_values_alive_together_never_share_a_slot(steps: list[Step]) -> None:
    slots = Slots(steps)
    alive = [(b, span) for b, span in lifetimes(steps).items() if b.place in (Place.ARENA, Place.SCRATCH)]
    for index, (left, (first, last)) in enumerate(alive):
        for right, (start, end) in alive[:index]:
            if slots.of(left) == slots.of(right) and not overwrites(steps, left, right, first, end):
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


WORK = st.sampled_from([10, 10, SERIAL_WORK - 1, SERIAL_WORK, 20_000, 50_000, 10**6])


@settings(max_examples=600, deadline=None)
@given(step_lists(), st.lists(WORK, min_size=12, max_size=12), st.integers(1, 4))
def test_threads_meet_between_steps_that_touch_the_same_memory(
    steps: list[Step], work: list[int], threads: int
) -> None:
    slots = Slots(steps)
    bounds = [step.most_pieces for step in steps if step.most_pieces is not None]
    flags = StepOrder.of(steps, slots.find).flags(work[: len(steps)], threads, bounds)
    owners = [int(flag) >> OWNER_AT if flag & SERIAL else None for flag in flags]
    for later, step in enumerate(steps):
        assert (owners[later] or 0) < threads
        for earlier in range(later):
            by_one_thread = owners[earlier] is not None and owners[earlier] == owners[later]
            if not by_one_thread and must_follow(step, steps[earlier], slots.find):
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


def branches(count: int, length: int) -> list[Step]:
    """Return chains that begin with one value, one after the other, and a step that joins their ends in parts."""
    first, joined = (Buffer(DataType.FLOAT, 8 * count, Place.ARENA) for _ in range(2))
    steps = [Step("first", (), (), (first,), 1)]
    for _ in range(count):
        last = first
        for _ in range(length - 1):
            here = Buffer(DataType.FLOAT, 8, Place.ARENA)
            steps.append(Step("kernel", (), (last,), (here,), 1))
            last = here
        steps.append(Step("end", (), (last,), (joined,), 1, part=joined))
    return [*steps, Step("join", (), (joined,), (Buffer(DataType.FLOAT, 8, Place.OUTPUT),), 1)]


@pytest.mark.parametrize("threads", [2, 4])
def test_branches_of_short_steps_are_given_to_one_thread_each(threads: int) -> None:
    steps = branches(4, 3)
    flags = StepOrder.of(steps, Slots(steps).find).flags([10, *[6_000] * 12, 10], threads)
    owners = [int(flag) >> OWNER_AT for flag in flags[1:-1]]
    assert all(flags[1:-1] & SERIAL)
    assert [set(owners[at : at + 3]) for at in range(0, 12, 3)] == [{branch % threads} for branch in range(4)]
    assert [number for number, flag in enumerate(flags) if flag & BARRIER] == [0, 12]


def test_branches_are_shared_by_all_where_a_thread_would_have_nothing_to_do() -> None:
    steps = branches(1, 6)
    flags = StepOrder.of(steps, Slots(steps).find).flags([10, *[20_000] * 6, 10], 2)
    assert not (flags[1:-1] & SERIAL).any(), "one branch: its steps are cut"
    steps = branches(3, 2)
    flags = StepOrder.of(steps, Slots(steps).find).flags([10, 60_000, 60_000, 10, 10, 10, 10, 10], 2)
    assert not (flags[1:3] & SERIAL).any(), "one of three branches has all the work"


def test_steps_that_one_thread_alone_can_do_are_done_side_by_side_however_long() -> None:
    steps = [replace(step, most_pieces=1) if step.kernel == "kernel" else step for step in branches(2, 2)]
    flags = StepOrder.of(steps, Slots(steps).find).flags([10**6, 10**7, 10, 10**7, 10, 10], 2, [1, 1])
    assert [int(flags[number]) >> OWNER_AT for number in (1, 3)] == [0, 1]
    assert not (flags[1:3] & BARRIER).any()
    flags = StepOrder.of(steps, Slots(steps).find).flags([10**6, 10**7, 10, 10**7, 10, 10], 2, [2, 2])
    assert not (flags[1] | flags[3]) & SERIAL, "threads can share them"


def test_what_few_threads_can_share_comes_as_late_as_it_can() -> None:
    steps = branches(2, 3)
    first, a, b, a_end, c, d, c_end, join = steps
    narrow = [replace(each, most_pieces=1) for each in (b, d)]
    given = [first, a, narrow[0], c, narrow[1], a_end, c_end, join]
    assert side_by_side(given) == [first, a, c, narrow[0], a_end, narrow[1], c_end, join]
    assert side_by_side(steps) == steps


@settings(max_examples=300, deadline=None)
@given(step_lists())
def test_steps_that_wait_stay_behind_what_they_need_and_before_what_needs_them(steps: list[Step]) -> None:
    moved = side_by_side(steps)
    place = {id(step): number for number, step in enumerate(moved)}
    assert len(place) == len(moved) == len(steps)
    for later, step in enumerate(steps):
        for earlier in steps[:later]:
            if must_follow(step, earlier, lambda buffer: buffer):
                assert place[id(earlier)] < place[id(step)]


def test_a_small_buffer_takes_no_memory_of_another_branch() -> None:
    steps = branches(2, 4)
    slots = Slots(steps)
    of_branches = [{slots.of(step.writes[0]) for step in steps[at : at + 3]} for at in (1, 5)]
    assert of_branches[0].isdisjoint(of_branches[1])
    assert len(of_branches[0]) == 2, "in a branch they take turns"


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


def test_pieces_are_as_long_as_steps_ask() -> None:
    least = 5 * PIECE_WORK
    steps = [replace(step, least_piece=asked) for step, asked in zip(chain(4), (0, least, 1, least), strict=True)]
    order = StepOrder.of(steps, Slots(steps).find)
    assert order.least_pieces == {1: least, 3: least}
    work = [3 * 2 * least, 3 * 2 * least, 3 * 2 * PIECE_WORK, 3 * 2 * least - 1]
    assert (order.flags(work, 3) >> PIECES_AT).tolist() == [MAX_PIECES, 2, 2, 0]


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
