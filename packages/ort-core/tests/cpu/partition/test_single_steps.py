"""Steps that are run by themselves: of arrays that native code reads, and of those that it leaves to Python."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from kernel_calls import TARGETS, compiled

from ort_core.cpu.codegen.llvm_ir.emitter import module_text
from ort_core.cpu.codegen.nests.iota import iota_kernel
from ort_core.cpu.partition import single_steps
from ort_core.cpu.partition.single_steps import IdleStepsState, SingleStep
from ort_core.cpu.threads.pool import ThreadPool
from ort_core.plugin import Rejection


class Named(np.ndarray):  # type: ignore[type-arg]  # of any type
    """A kind of array that native code does not know."""


def counting() -> int:
    """Return the address of a kernel that writes 0, 1, ...; its table: where to, and how many."""
    name, function = iota_kernel()
    return compiled(module_text([function]), TARGETS["host"](), is_vectorized=False).address(name)


@pytest.mark.parametrize("is_alone", [True, False])
def test_a_step_writes_where_arrays_lie(is_alone: bool, pools: list[ThreadPool]) -> None:
    for pool in pools:
        step = SingleStep(pool)
        for count in (1, 1000, 7):
            found = np.full(count + 1, -1)
            step.run(counting(), [found], [count], is_alone=is_alone)
            np.testing.assert_array_equal(found, [*range(count), -1])


def test_an_array_of_another_class_is_asked_by_python(pools: list[ThreadPool]) -> None:
    found = np.full(9, -1).view(Named)
    SingleStep(pools[0]).run(counting(), [found], [8], is_alone=True)
    np.testing.assert_array_equal(found, [*range(8), -1])


def test_python_does_it_where_direct_calls_cannot_be_made(
    pools: list[ThreadPool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(single_steps, "find_python_layout", lambda: Rejection("another interpreter"))
    found = np.full(5, -1)
    SingleStep(pools[1]).run(counting(), [found], [5], is_alone=False)
    np.testing.assert_array_equal(found, range(5))


def test_memory_grows_and_little_of_it_is_kept(pools: list[ThreadPool]) -> None:
    idle = IdleStepsState(pools[0], most_nbytes=80)
    first = idle.take()
    assert [first.memory(count)[0].size for count in (3, 10, 4)] == [3, 10, 10]
    idle.give(first)
    assert idle.take() is first
    first.memory(11)
    idle.give(first)
    assert idle.take() is not first


def test_threads_at_the_same_time_have_steps_of_their_own(pools: list[ThreadPool]) -> None:
    idle, kernel = IdleStepsState(pools[0]), counting()

    def run(count: int) -> bool:
        found = np.empty(count, np.int64)
        step = idle.take()
        step.run(kernel, [found], [count], is_alone=True)
        idle.give(step)
        return bool((found == np.arange(count)).all())

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(run, [*range(1, 200)] * 3))
