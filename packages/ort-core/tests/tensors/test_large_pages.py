"""Arrays of some 100 KB lie side by side in pieces of memory, which go with the last of them."""

from __future__ import annotations

import gc
import itertools
import mmap
import weakref

import numpy as np
import pytest

from ort_core.plugin.memory import LargePages, large_memory
from ort_core.tensors import large_pages
from ort_core.tensors.mapped_pages import mapping_of

SIZES = [0, 1, 100, (1 << 16) - 1, 1 << 16, 99_999, 1 << 20, 3_000_001, (1 << 22) - 1, 1 << 22, 5_000_000]


def span(array):
    start = array.__array_interface__["data"][0]
    return start, start + array.nbytes


@pytest.mark.parametrize("nbytes", [1, 4096, 1 << 22, (1 << 22) + 1])
def test_memory_is_of_zeros_and_may_be_written(nbytes):
    memory = np.frombuffer(large_memory(nbytes), np.uint8)
    assert memory.size == nbytes
    assert not memory.any()
    memory[...] = 255
    assert memory.all()


def test_arrays_start_on_a_cache_line_and_do_not_overlap():
    pages, made = LargePages(), []
    for number, nbytes in enumerate(SIZES * 6):
        made.append(pages.empty(nbytes))
        made[-1][...] = number
    for number, (array, nbytes) in enumerate(zip(made, SIZES * 6, strict=True)):
        assert array.size == nbytes
        assert not nbytes or span(array)[0] % 64 == 0
        assert (array == number).all()
    spans = sorted(span(array) for array in made if array.size)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))


def test_copies_are_contiguous_and_equal():
    pages = LargePages()
    for array in (
        np.arange(300_000, dtype=np.int32).reshape(300, 1000).T,
        np.random.default_rng(1).random((7, 11)),
        np.zeros((0, 5), np.float32),
        np.float64(3.5),
    ):
        found = pages.copied(np.asarray(array))
        assert found.flags.c_contiguous
        assert found.dtype == np.asarray(array).dtype
        np.testing.assert_array_equal(found, array)


def test_arrays_of_a_middle_size_share_a_piece_that_goes_with_the_last_of_them():
    pages = LargePages()
    first, second = pages.empty(1 << 20), pages.empty(1 << 17)
    owner = mapping_of(first)
    assert isinstance(owner, mmap.mmap)
    assert mapping_of(second) is owner
    assert mapping_of(pages.empty(100)) is None
    piece = weakref.ref(owner)
    del owner, pages, first
    gc.collect()
    second[...] = 7
    assert piece() is not None
    del second
    gc.collect()
    assert piece() is None


def test_a_system_without_large_pages_gives_memory_all_the_same(monkeypatch):
    monkeypatch.setattr(large_pages, "_ADVICE", 4095)  # no advice that there is
    assert not any(large_memory(1 << 22)[:100])
    monkeypatch.setattr(large_pages, "_ADVICE", None)
    assert not any(large_memory(1 << 22)[:100])
