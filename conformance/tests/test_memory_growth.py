"""Growth of memory is judged rightly: leaks into free memory are seen, what happens once is not taken for one.

Each case has a process of its own: what thousands of tests left in this one is given back at any time.
"""

from __future__ import annotations

import mmap
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from ort_conformance.memory_growth import WINDOWS, growth_of

PIECE = 64 << 10  # small enough that allocators serve it from memory that they keep
COUNT = 50
ALL = COUNT * PIECE


def piece() -> np.ndarray:
    return np.ones(PIECE, np.uint8)


def leaks_into_memory_that_is_held_free() -> float:
    held = [piece() for _ in range(16 * COUNT)]
    del held[::2]  # holes that the next pieces go into
    kept: list[np.ndarray] = []
    return growth_of(lambda: kept.append(piece()), COUNT)


def leaks_while_others_give_back() -> float:
    large, kept = [np.ones(4 * ALL, np.uint8)], []

    def leaks() -> None:
        kept.append(piece())
        large.clear()

    return growth_of(leaks, COUNT)


def leaks_while_the_system_takes_pages_of_files() -> float:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "pages")
        file.write_bytes(bytes(ALL))
        with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as pages:
            assert not any(pages[:: mmap.PAGESIZE]), "all pages were read"
            kept: list[np.ndarray] = []

            def leaks() -> None:
                pages.madvise(mmap.MADV_DONTNEED, len(kept) * PIECE, PIECE)
                kept.append(piece())

            return growth_of(leaks, COUNT)


def leaks_what_malloc_did_not_give() -> float:
    kept: list[mmap.mmap] = []

    def leaks() -> None:
        kept.append(mmap.mmap(-1, PIECE))
        kept[-1].write(b"\1" * PIECE)

    return growth_of(leaks, COUNT)


def leaks_what_is_not_resident() -> float:
    kept: list[np.ndarray] = []
    return growth_of(lambda: kept.append(np.empty(PIECE, np.uint8)), COUNT)


def keeps_something_once() -> float:
    kept: list[np.ndarray] = []

    def fills_a_cache() -> None:
        if not kept:
            kept.append(np.ones(4 * ALL, np.uint8))

    return growth_of(fills_a_cache, COUNT)


CASES = (
    leaks_into_memory_that_is_held_free, leaks_while_others_give_back, leaks_while_the_system_takes_pages_of_files,
    leaks_what_malloc_did_not_give, leaks_what_is_not_resident, keeps_something_once,
)  # fmt: skip
OF_LINUX = (
    leaks_into_memory_that_is_held_free, leaks_what_is_not_resident, leaks_while_the_system_takes_pages_of_files,
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_growth_is_what_was_leaked(case):
    if case in OF_LINUX and sys.platform != "linux":
        pytest.skip("only Linux tells pages of files, and glibc what it holds free, apart")
    done = subprocess.run([sys.executable, __file__, case.__name__], capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    growth = float(done.stdout)
    assert growth < ALL if case is keeps_something_once else 0.8 * ALL < growth < 2 * ALL, f"{growth} of {ALL} bytes"


def test_the_median_is_one_of_the_windows():
    assert WINDOWS % 2 == 1


if __name__ == "__main__":
    (chosen,) = [case for case in CASES if case.__name__ == sys.argv[1]]
    print(chosen())  # noqa: T201 - the test reads it
