"""The thread pool: results with any number of threads, many callers, forked children, idleness, other systems."""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from kernel_calls import TARGETS, elementwise

from ort_core.cpu.codegen.machine_code.jit import assembly, compile_module
from ort_core.cpu.codegen.machine_code.llvm_targets import target_of
from ort_core.cpu.threads.pool import ThreadPool, _worker_memory, affinity_masks, pause_ns, shared_pool
from ort_core.cpu.threads.pool_code import (
    ALIVE,
    ALL,
    ALONE,
    AWAKE,
    BARRIER,
    IDLE_SPINS,
    PIECES_AT,
    SLEEPERS,
    SPINS,
    STARTED,
    pool_text,
)
from ort_core.cpu.threads.primitives import primitives_for
from ort_core.errors import InvalidArgument
from ort_core.plugin import ThreadOptions
from ort_core.plugin.ir import DataType
from ort_core.plugin.loops import element
from ort_core.plugin.machine import available_threads

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


# Piece after piece: counts[piece] += 1, threads[piece] = thread. A piece of a worker ends when the other ones are done.
_PIECES = """
define void @kernel(ptr %args, i64 %piece, i64 %pieces, i64 %thread) {
entry:
  %counts = load ptr, ptr %args
  %threads.p = getelementptr i64, ptr %args, i64 1
  %threads = load ptr, ptr %threads.p
  %done.p = getelementptr i64, ptr %args, i64 2
  %done = load ptr, ptr %done.p
  %count.p = getelementptr i64, ptr %counts, i64 %piece
  %before = atomicrmw add ptr %count.p, i64 1 seq_cst
  %thread.p = getelementptr i64, ptr %threads, i64 %piece
  store i64 %thread, ptr %thread.p
  %last = sub i64 %pieces, 1
  %is.worker = icmp ne i64 %thread, 0
  br i1 %is.worker, label %wait, label %out
wait:
  %now = load atomic i64, ptr %done seq_cst, align 8
  %rest = icmp ult i64 %now, %last
  br i1 %rest, label %wait, label %out
out:
  %all = atomicrmw add ptr %done, i64 1 seq_cst
  ret void
}
"""


def test_pieces_are_claimed_once_each_and_a_slow_thread_leaves_them_to_the_others() -> None:
    pool, each = ThreadPool(2), 8
    module = compile_module(_PIECES)
    counts, threads, done = (np.zeros(2 * each, np.int64) for _ in range(3))
    table = np.array([counts.ctypes.data, threads.ctypes.data, done.ctypes.data], np.int64)
    steps = np.array([[module.address("kernel"), table.ctypes.data, each << PIECES_AT | BARRIER, 0]], np.int64)
    for run in range(1, 20):
        done[:] = 0
        assert pool.run(int(steps.ctypes.data), 1) == 2
        assert counts.tolist() == [run] * (2 * each)
        assert np.count_nonzero(threads) <= 1, "the worker's only piece ends behind all others"
    pool.close()
    counts[:] = done[:] = 0
    assert pool.run(int(steps.ctypes.data), 1) == 1
    assert counts.tolist() == [1] + [0] * (2 * each - 1), "who runs alone does all the work as one piece"


def test_pool_goes_on_alone_when_it_is_closed() -> None:
    pool = ThreadPool(3)
    pool.close()
    np.testing.assert_array_equal(doubled(pool), X * 2 + 1)
    pool.close()


def _forgotten_pool() -> tuple[np.ndarray, int]:
    pool = ThreadPool(3, spins=0)
    wait_until(lambda: pool._word(SLEEPERS) == 2)
    return pool._memory, pool._address


def test_workers_of_a_forgotten_pool_leave_and_their_memory_stays() -> None:
    words, address = _forgotten_pool()
    gc.collect()
    wait_until(lambda: int(words[ALIVE // 8]) & 0xFFFFFFFF == 0)
    assert any(raw.ctypes.data <= address < raw.ctypes.data + raw.nbytes for raw, _ in _worker_memory)


def test_threads_that_ask_at_once_share_one_pool() -> None:
    start, found = threading.Barrier(8), []
    options = ThreadOptions(2, spin_duration_us=77)  # what no other test asks for

    def ask() -> None:
        start.wait()
        found.append(shared_pool(options))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(map(id, found))) == 1


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
    tasks = _tasks()
    pool = ThreadPool(4)
    doubled(pool)
    wait_until(lambda: pool._word(SLEEPERS) == 3)  # the spinning after a run ends by itself
    used = _seconds_of(_tasks() - tasks)
    assert _sleep_on(pool, 3)
    used = _seconds_of(_tasks() - tasks) - used
    pool.close()
    assert used < 0.05, f"idle workers used {used:.3f} s in half a second"


def _sleep_on(pool: ThreadPool, workers: int) -> bool:
    """Whether all workers stay in the system's wait for half a second: who is woken for nothing goes back at once."""
    looks = [time.sleep(0.001) or pool._word(SLEEPERS) == workers for _ in range(500)]
    return looks.count(True) >= 480


def _tasks() -> set[str]:
    """Return the threads of this process, where the system lists them."""
    return set(os.listdir("/proc/self/task")) if sys.platform == "linux" else set()


def _seconds_of(tasks: set[str]) -> float:
    """Return the processor time that threads have used: of nobody else in this process."""
    stats = [Path("/proc/self/task", task, "stat").read_text(encoding="ascii") for task in tasks]
    ticks = sum(sum(map(int, stat.rpartition(")")[2].split()[11:13])) for stat in stats)
    return ticks / os.sysconf("SC_CLK_TCK") if stats else 0.0


@pytest.mark.parametrize(
    "triple",
    ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu", "arm64-apple-macosx14.0", "x86_64-apple-darwin22",
     "x86_64-pc-windows-msvc", "aarch64-pc-windows-msvc"],
)  # fmt: skip
def test_pool_compiles_for_every_system(triple: str) -> None:
    target = target_of(triple, "", "")
    text = assembly(pool_text(triple, primitives_for(triple)), target)
    assert "ort_pool_run" in text


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait until something that other threads do has come about; the limit is for what never does."""
    limit = time.monotonic() + 200
    while not condition() and time.monotonic() < limit:
        time.sleep(0.001)
    assert condition()


def test_run_that_wants_awake_threads_goes_alone_while_they_sleep() -> None:
    pool = ThreadPool(3, spins=0)
    wait_until(lambda: pool._word(SLEEPERS) == 2)
    assert pool.run(0, 0, AWAKE) == 1
    assert pool.run(0, 0, ALL) == 3
    pool.close()


def test_run_that_wants_awake_threads_finds_those_that_spin() -> None:
    pool = ThreadPool(3, spins=1 << 30)
    wait_until(lambda: pool._word(STARTED) == 2)
    assert pool.run(0, 0, AWAKE) == 3
    assert pool.run(0, 0, ALONE) == 1
    pool.close()


def test_run_that_goes_alone_wakes_the_others_for_the_next() -> None:
    pool = ThreadPool(2, spins=500_000)  # at least 5 ms
    wait_until(lambda: pool._word(SLEEPERS) == 1)
    assert pool.run(0, 0, AWAKE) == 1
    wait_until(lambda: pool.run(0, 0, AWAKE) == 2)
    pool.close()


def test_system_without_primitives_is_named_in_the_error() -> None:
    with pytest.raises(NotImplementedError, match="riscv64-unknown-freebsd"):
        primitives_for("riscv64-unknown-freebsd")


def test_shared_pool_is_one_for_the_same_options() -> None:
    assert shared_pool(ThreadOptions(2)) is shared_pool(ThreadOptions(2))
    assert shared_pool(ThreadOptions(2)) is not shared_pool(ThreadOptions(2, allow_spinning=False))
    assert shared_pool().num_threads == available_threads()


@pytest.mark.parametrize("name", ["allow_spinning", "spin_between_runs"])
def test_threads_that_may_not_spin_sleep_right_after_a_run(name: str) -> None:
    pool = shared_pool(ThreadOptions(3, **{name: False}))
    doubled(pool)
    wait_until(lambda: pool._word(SLEEPERS) == 2)
    assert _sleep_on(pool, 2)
    assert pool._word(IDLE_SPINS) == 0
    assert (pool._word(SPINS) == 0) == (name == "allow_spinning"), "between steps they may, unless they never may"


def test_spin_duration_is_how_long_workers_stay_awake() -> None:
    tasks = _tasks()
    pool = shared_pool(ThreadOptions(2, spin_duration_us=200_000))
    doubled(pool)
    wait_until(lambda: pool._word(SLEEPERS) == 1)  # else it goes on spinning
    used = _seconds_of(_tasks() - tasks)
    assert sys.platform != "linux" or used > 0.02, f"it used {used:.3f} s of the 0.2 s that it was told to spin"
    assert pool._word(IDLE_SPINS) * pause_ns() == pytest.approx(200e6, rel=1e-3)
    assert _sleep_on(pool, 1)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows the affinity of a thread")
def test_workers_run_on_the_processors_that_they_were_given() -> None:
    processor = min(os.sched_getaffinity(0))
    tasks = set(os.listdir("/proc/self/task"))
    pool = ThreadPool(3, affinities=((processor,), (processor,)))
    for _ in range(20):
        doubled(pool)
    workers = set(os.listdir("/proc/self/task")) - tasks
    assert len(workers) == 2
    assert [os.sched_getaffinity(int(worker)) for worker in workers] == [{processor}] * 2
    assert os.sched_getaffinity(0) != {processor} or len(os.sched_getaffinity(0)) == 1, "the caller was moved too"
    pool.close()


def test_affinity_masks_have_a_bit_for_each_processor() -> None:
    masks = affinity_masks([(0, 9), (1023,)])
    assert [np.flatnonzero(np.unpackbits(mask, bitorder="little")).tolist() for mask in masks] == [[0, 9], [1023]]


def test_another_number_of_threads_leaves_all_else() -> None:
    options = ThreadOptions(3, False, 7, False, ((0,), (1,)))
    assert options.with_threads(3) == options
    assert ThreadOptions(0, False, 7, False).with_threads(2) == replace(
        ThreadOptions(0, False, 7, False), num_threads=2
    )
    with pytest.raises(InvalidArgument, match="names 2 groups"):
        options.with_threads(2)
