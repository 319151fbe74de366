"""Memory of large outputs: given again only when the caller has let go of all of it."""

from __future__ import annotations

import ml_dtypes  # noqa: F401 - makes its types known to numpy by name
import numpy as np

from ort_core.cpu.output_memory import ALIGNMENT, LEAST, OutputMemory

FLOATS = LEAST // 4
F32 = np.dtype(np.float32)


def test_memory_of_a_dropped_array_serves_the_next_one() -> None:
    memory = OutputMemory()
    memory.keep(4 * LEAST)
    first = memory.empty((FLOATS + 8,), F32)
    address = first.ctypes.data
    assert address % ALIGNMENT == 0
    del first
    assert memory.empty((2, FLOATS // 2 + 4), F32).ctypes.data == address
    assert memory.empty((FLOATS + 9,), F32).ctypes.data == address, "a slightly larger one fits, too"


def test_a_view_that_lives_keeps_the_memory() -> None:
    memory = OutputMemory()
    memory.keep(4 * LEAST)
    first = memory.empty((FLOATS,), F32)
    first[:] = 1
    view = first[5:9]
    del first
    second = memory.empty((FLOATS,), F32)
    second[:] = 2
    assert not np.may_share_memory(view, second)
    assert view.tolist() == [1] * 4


def test_no_more_memory_lies_idle_than_is_to_be_kept() -> None:
    memory = OutputMemory()
    memory.keep(3 * LEAST)
    arrays = [memory.empty((FLOATS,), F32) for _ in range(10)]
    arrays.clear()
    assert sum(block.nbytes for block in memory._idle) <= 3 * LEAST


def test_small_arrays_and_all_types_have_their_shape_and_type() -> None:
    memory = OutputMemory()
    for dtype in ("bool", "int64", "int32", "float32", "uint8", "bfloat16", "float8_e5m2", "int4"):
        for shape in ((), (3, 0), (LEAST, 3)):
            array = memory.empty(shape, np.dtype(dtype))
            assert (array.shape, array.dtype, array.flags.c_contiguous, array.flags.writeable) == (
                shape, np.dtype(dtype), True, True,
            )  # fmt: skip


def test_an_array_that_goes_while_its_thread_holds_the_lock_comes_back_later() -> None:
    memory = OutputMemory()
    memory.keep(4 * LEAST)
    first = memory.empty((FLOATS,), F32)
    address = first.ctypes.data
    with memory._lock:  # as when the garbage collector runs in the middle of it
        del first
    assert memory.empty((FLOATS,), F32).ctypes.data == address
