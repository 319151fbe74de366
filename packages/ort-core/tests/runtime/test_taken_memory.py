"""Overlaps of memory: the same answer as numpy's for each pair."""

from __future__ import annotations

import numpy as np
import pytest

from ort_core.runtime.taken_memory import TakenMemoryState


@pytest.mark.parametrize("count", [3, 8, 9, 60])
def test_overlap_is_found_as_numpy_finds_it_pair_by_pair(count):
    random, memory = np.random.default_rng(count), np.zeros(2000, np.uint8)
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
