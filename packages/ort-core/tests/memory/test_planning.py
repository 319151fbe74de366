"""Liveness and offsets: no two buffers that live together overlap, and the arena is not larger than it must be."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ort_core.memory.liveness import Interval, StepUse, last_readers, live_intervals
from ort_core.memory.offsets import assign_offsets

CHAIN = [
    StepUse(("x",), ("a",)),
    StepUse(("a",), ("b",)),
    StepUse(("a", "b"), ("c",)),
    StepUse(("c",), ("y", "unused")),
]


def test_value_lives_from_its_writer_to_its_last_reader() -> None:
    intervals = live_intervals(CHAIN, kept=["y"])
    assert intervals == {
        "a": Interval(0, 2), "b": Interval(1, 2), "c": Interval(2, 3), "y": Interval(3, 4), "unused": Interval(3, 3),
    }  # fmt: skip


def test_last_readers_release_each_value_once_and_keep_outputs() -> None:
    assert [set(step) for step in last_readers(CHAIN, kept=["y"])] == [set(), set(), {"a", "b"}, {"c", "unused"}]


def test_offsets_reuse_the_place_of_dead_buffers() -> None:
    layout = assign_offsets(
        {"a": 64, "b": 64, "c": 64}, {"a": Interval(0, 1), "b": Interval(1, 2), "c": Interval(2, 3)}
    )
    assert layout.nbytes == 128
    assert layout.offsets["a"] == layout.offsets["c"]


buffers = st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 12), st.integers(0, 6)), min_size=1, max_size=24)


@given(buffers)
def test_offsets_never_overlap_while_alive_and_are_aligned(drawn: list[tuple[int, int, int]]) -> None:
    sizes = {i: size for i, (size, _, _) in enumerate(drawn)}
    intervals = {i: Interval(first, first + length) for i, (_, first, length) in enumerate(drawn)}
    layout = assign_offsets(sizes, intervals)
    for i in sizes:
        assert layout.offsets[i] % 64 == 0
        assert layout.offsets[i] + sizes[i] <= layout.nbytes
        for j in range(i):
            if intervals[i].overlaps(intervals[j]) and sizes[i] and sizes[j]:
                a, b = layout.offsets[i], layout.offsets[j]
                assert a + sizes[i] <= b or b + sizes[j] <= a


@given(buffers)
def test_arena_is_at_least_the_peak_and_at_most_the_sum(drawn: list[tuple[int, int, int]]) -> None:
    sizes = {i: -(-size // 64) * 64 for i, (size, _, _) in enumerate(drawn)}
    intervals = {i: Interval(first, first + length) for i, (_, first, length) in enumerate(drawn)}
    peak = max(sum(sizes[i] for i in sizes if intervals[i].first <= t <= intervals[i].last) for t in range(20))
    assert peak <= assign_offsets(sizes, intervals).nbytes <= sum(sizes.values())
