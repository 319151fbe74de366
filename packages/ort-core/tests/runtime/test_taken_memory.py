"""Overlaps of memory: the same answer as numpy's for each pair."""

from __future__ import annotations

import numpy as np
import pytest

from ort_core.runtime.taken_memory import TakenMemoryState, are_apart, may_share


class Lender:
    """Memory of which an array knows nothing but its owner."""

    owns_memory = True

    def __init__(self, array):
        self.array, self.__array_interface__ = array, array.__array_interface__


MEMORY = {
    "own": lambda: np.zeros(2000, np.uint8),
    "foreign": lambda: np.frombuffer(bytearray(2000), np.uint8),
    "lent": lambda: np.asarray(Lender(np.zeros(2000, np.uint8))).view(np.int8),
    "mapped": lambda: np.zeros(2000, np.uint8).view(np.memmap),
}


@pytest.mark.parametrize("kind", MEMORY)
@pytest.mark.parametrize("count", [3, 8, 9, 60])
def test_overlap_is_found_as_numpy_finds_it_pair_by_pair(count, kind):
    random, memory = np.random.default_rng(count), MEMORY[kind]()
    for _ in range(40):
        taken, arrays = TakenMemoryState(), []
        for _ in range(count):
            start, size = random.integers(0, 1900), random.integers(0, 60)
            array = memory[start : start + size : random.integers(1, 4)]
            assert taken.overlaps(array) == any(np.may_share_memory(array, other) for other in arrays)
            taken.add(array)
            arrays.append(array)
        apart = taken.copy()
        apart.add(memory)
        assert apart.overlaps(memory[5:6])
        assert taken.overlaps(memory[:1]) == any(np.may_share_memory(memory[:1], other) for other in arrays)


def test_a_result_shares_with_what_it_is_a_view_of():
    feed = np.zeros((4, 4), np.float32)
    part, own = feed[1:3], np.zeros(16, np.float32)
    framed = np.lib.stride_tricks.sliding_window_view(feed, 2, axis=0)
    for result in (feed, feed.reshape(-1), feed[2:], framed, framed[0], own, own[3:], feed.T, feed[:0]):
        for other in (feed, part, part[:1]):
            assert may_share(result, other) == np.may_share_memory(result, other)


def test_arrays_of_several_owners_are_found_beside_each_other():
    random, memories = np.random.default_rng(1), [make() for make in MEMORY.values() for _ in range(3)]
    for _ in range(60):
        taken, arrays = TakenMemoryState(), []
        for _ in range(30):
            memory = memories[random.integers(len(memories))]
            start, size = random.integers(0, 1900), random.integers(0, 60)
            array = memory[start : start + size]
            assert taken.overlaps(array) == any(np.may_share_memory(array, other) for other in arrays)
            taken.add(array)
            arrays.append(array)


def test_results_are_apart_where_each_owns_what_no_feed_shows():
    feed, one, other = np.zeros((4, 4), np.float32), np.ones(3), np.ones((2, 2))
    view, fixed = feed[1:], np.ones(2)
    fixed.flags.writeable = False
    assert are_apart([one, other], [feed, view])
    assert are_apart([], [feed])
    for results in ([one, one], [feed], [one, view], [other.T], [fixed], [[one]], [np.float32(1)], [one[:2]]):
        assert not are_apart(results, [feed]), results
    assert not are_apart([feed], [view])
    assert not are_apart([one], [[other]]), "what a feed of another kind holds nobody knows"


def test_results_whose_owner_numpy_does_not_know_are_apart_from_all_but_views_of_them():
    feed, own = np.zeros((4, 4), np.float32), np.ones(3)
    one, other = (np.asarray(Lender(np.zeros((6, 2), np.float32))) for _ in range(2))
    assert are_apart([one, own, other], [feed])
    assert are_apart([other], [one, one[1:]])
    for results in ([one, one], [one, one[:2]], [one[1:]], [one.T], [one.view(np.int32)]):
        assert not are_apart(results, [feed]), results
    for fed in (one, one[2:], one[2:].T, one.reshape(-1)[3:5]):
        assert not are_apart([one], [fed])
    fixed = np.asarray(Lender(np.zeros(2)))
    fixed.flags.writeable = False
    assert not are_apart([fixed], [feed])
    assert not are_apart([np.frombuffer(bytearray(8), np.uint8)], [feed]), "its memory may be anybody's"
