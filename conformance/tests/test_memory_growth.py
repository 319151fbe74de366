"""Growth of memory is judged rightly: leaks into free memory are seen, what happens once is not taken for one."""

from __future__ import annotations

import mmap
import sys
from pathlib import Path

import numpy as np
import pytest

from ort_conformance.memory_growth import WINDOWS, growth_of

PIECE = 64 << 10  # small enough that allocators serve it from memory that they keep
COUNT = 50


def piece() -> np.ndarray:
    return np.ones(PIECE, np.uint8)


def test_a_leak_is_seen_though_the_allocator_holds_more_than_that_free():
    if sys.platform != "linux":
        pytest.skip("only glibc can be asked to give back what it holds free")
    held = [piece() for _ in range(16 * COUNT)]
    del held[::2]  # holes that the next pieces go into
    kept: list[np.ndarray] = []
    assert growth_of(lambda: kept.append(piece()), COUNT) > 0.8 * COUNT * PIECE


def test_what_is_given_back_meanwhile_hides_no_leak():
    large, kept = [np.ones(4 * COUNT * PIECE, np.uint8)], []

    def leaks() -> None:
        kept.append(np.ones(16 * PIECE, np.uint8))
        large.clear()

    assert growth_of(leaks, COUNT) > 0.8 * COUNT * 16 * PIECE


def test_what_the_system_takes_away_meanwhile_hides_no_leak(tmp_path: Path):
    if sys.platform != "linux":
        pytest.skip("only Linux counts pages of files apart")
    file = tmp_path / "pages"
    file.write_bytes(bytes(COUNT * PIECE))
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as pages:
        assert not any(pages[:: mmap.PAGESIZE]), "all pages were read"
        kept: list[np.ndarray] = []

        def leaks() -> None:
            pages.madvise(mmap.MADV_DONTNEED, len(kept) * PIECE, PIECE)
            kept.append(piece())

        assert growth_of(leaks, COUNT) > 0.8 * COUNT * PIECE


def test_what_is_kept_once_is_no_leak():
    kept: list[np.ndarray] = []

    def fills_a_cache() -> None:
        if not kept:
            kept.append(np.ones(4 * COUNT * PIECE, np.uint8))

    assert growth_of(fills_a_cache, COUNT) < COUNT * PIECE
    assert WINDOWS % 2 == 1, "the median is one of the windows"
