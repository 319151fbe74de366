"""Pages of mapped files can be read ahead and given back, and never change what an array holds."""

from __future__ import annotations

import mmap
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import psutil
import pytest

from ort_core.tensors.mapped_pages import map_few_pages, read_ahead, release_pages

COUNT = 1 << 22  # float32: 16 MiB


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "weights"
    np.arange(COUNT, dtype=np.float32).tofile(path)
    return path


@pytest.mark.parametrize("view", [slice(None), slice(5, -7), slice(100, 100), slice(3, 9), slice(None, None, -3)])
def test_mapped_array_holds_the_same_after_its_pages_went(file: Path, view: slice) -> None:
    array = np.memmap(file, np.float32, "r")[view]
    expected = np.arange(COUNT, dtype=np.float32)[view]
    for advise in (read_ahead, release_pages, map_few_pages, read_ahead):
        advise(array)
        np.testing.assert_array_equal(array, expected)


def test_array_over_a_view_of_a_mapping_is_found_through_memoryviews(file: Path) -> None:
    with file.open("rb") as opened:
        mapping = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
    array = np.frombuffer(memoryview(mapping)[4096:], np.float32).reshape(-1, 1024).T
    before = array.copy()
    release_pages(array)
    np.testing.assert_array_equal(array, before)


def test_changes_to_a_private_mapping_stay(file: Path) -> None:
    array = np.memmap(file, np.float32, "c")
    array[:] = 7
    release_pages(array)
    assert (array == 7).all(), "what was written only to memory is lost"


def test_memory_of_the_process_itself_stays() -> None:
    array = np.arange(COUNT, dtype=np.float32)
    release_pages(array)
    read_ahead(array)
    assert array[-1] == COUNT - 1


@pytest.mark.skipif(sys.platform != "linux", reason="other systems take the advice later, or not at all")
def test_released_pages_are_no_longer_resident(file: Path) -> None:
    array = np.memmap(file, np.float32, "r")
    array.sum()
    release_pages(array[1000:])
    resident = next(int(part.rss) for part in psutil.Process().memory_maps() if part.path == str(file))
    assert resident < COUNT, f"{resident} bytes of {4 * COUNT} are still resident"


@pytest.mark.skipif(sys.platform != "linux", reason="no other system maps large pages of files unasked")
def test_part_that_is_mapped_in_small_pages_is_that_part_alone(file: Path) -> None:
    array = np.memmap(file, np.float32, "r")
    map_few_pages(array[COUNT // 2 :])
    parts = pairwise(Path("/proc/self/smaps").read_text(errors="replace").split("\nVmFlags:"))
    kinds = ["nh" in flags.split("\n")[0].split() for facts, flags in parts if str(file) in facts]
    assert kinds == [False, True], "small pages were asked for the second half"
