"""The thread pool: results with any number of threads, many callers, forked children, idleness, other systems."""

from __future__ import annotations

import os
import threading
import time

import numpy as np
import pytest
from kernel_calls import TARGETS, elementwise

from ort_core.cpu.codegen.jit import assembly, target_of
from ort_core.cpu.threads.pool import ThreadPool, available_threads, shared_pool
from ort_core.cpu.threads.pool_code import pool_text
from ort_core.cpu.threads.primitives import primitives_for
from ort_core.plugin.ir import DataType
from ort_core.plugin.loops import element

X = np.arange(40_000, dtype=np.float32).reshape(8, 5000)


def doubled(pool: ThreadPool, x: np.ndarray = X) -> np.ndarray:
    return elementwise(element(0, DataType.FLOAT) * 2.0 + 1.0, x.shape, [x], pool, TARGETS["host"]())


@pytest.mark.parametrize("count", [1, 2, 3, 4])
@pytest.mark.parametrize("spins", [0, 3000])
def test_pool_gives_the_same_result_with_any_number_of_threads(count: int, spins: int) -> None:
    pool = ThreadPool(count, spins)
    for _ in range(50):
        np.testing.assert_array_equal(doubled(pool), X * 2 + 1)
    pool.close()


def test_pool_goes_on_alone_when_it_is_closed() -> None:
    pool = ThreadPool(3)
    pool.close()
    np.testing.assert_array_equal(doubled(pool), X * 2 + 1)
    pool.close()


def test_pool_serves_sixteen_callers_at_once() -> None:
    pool = ThreadPool(4)
    wrong: list[int] = []
    start = threading.Barrier(16)

    def caller(number: int) -> None:
        mine = X + number
        start.wait()
        for _ in range(30):
            if not np.array_equal(doubled(pool, mine), mine * 2 + 1):
                wrong.append(number)

    threads = [threading.Thread(target=caller, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    pool.close()
    assert not wrong


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forked_child_has_workers_of_its_own() -> None:
    pool = ThreadPool(3)
    np.testing.assert_array_equal(doubled(pool), X * 2 + 1)
    child = os.fork()
    if child == 0:
        works = all(np.array_equal(doubled(pool), X * 2 + 1) for _ in range(10))
        os._exit(0 if works and _threads() >= 3 else 1)
    _, status = os.waitpid(child, 0)
    np.testing.assert_array_equal(doubled(pool), X * 2 + 1)
    pool.close()
    assert os.waitstatus_to_exitcode(status) == 0, "the child's pool computed something else, or has no workers"


def _threads() -> int:
    """Return how many threads this process has; 3 where the system does not say."""
    return len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 3


def test_idle_pool_uses_no_processor_time() -> None:
    pool = ThreadPool(4)
    doubled(pool)
    time.sleep(0.02)  # the spinning after a run ends by itself
    before = time.process_time()
    time.sleep(0.5)
    used = time.process_time() - before
    pool.close()
    assert used < 0.05, f"idle workers used {used:.3f} s in half a second"


@pytest.mark.parametrize(
    "triple",
    ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu", "arm64-apple-macosx14.0", "x86_64-apple-darwin22",
     "x86_64-pc-windows-msvc", "aarch64-pc-windows-msvc"],
)  # fmt: skip
def test_pool_compiles_for_every_system(triple: str) -> None:
    target = target_of(triple, "", "")
    text = assembly(pool_text(triple, primitives_for(triple)), target)
    assert "ort_pool_run" in text


def test_system_without_primitives_is_named_in_the_error() -> None:
    with pytest.raises(NotImplementedError, match="riscv64-unknown-freebsd"):
        primitives_for("riscv64-unknown-freebsd")


def test_shared_pool_is_one_for_each_number_of_threads() -> None:
    assert shared_pool(2) is shared_pool(2)
    assert shared_pool(0).num_threads == available_threads()
