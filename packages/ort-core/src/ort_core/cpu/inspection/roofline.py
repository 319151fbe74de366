"""What this processor can do: multiply-adds per second, and bytes read per second from caches and memory."""

from __future__ import annotations

import time

import numpy as np

from ort_core.cpu.codegen.llvm_ir.emitter import module_text
from ort_core.cpu.codegen.machine_code.code_cache import compiled
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.codegen.products.packing import aligned_empty
from ort_core.cpu.codegen.roofline_kernels import (
    LINE_NBYTES,
    block_nbytes,
    kinds_of,
    multiply_add_flops,
    multiply_add_kernel,
    read_kernel,
)
from ort_core.cpu.threads.pool import ThreadPool
from ort_core.plugin import Bandwidth, Roofline

SIZES = (1 << 15, 1 << 18, 1 << 21, 1 << 24, 1 << 27)  # bytes for each thread: first cache to main memory
ROUNDS = 2_000_000  # some 10 ms
MIN_READ = 1 << 28  # bytes per measurement and thread, read over and over where the data is smaller: 3 to 20 ms
MOST_NBYTES = 1 << 31  # of all threads together: beyond the caches of any processor
REPEATS = 3  # the best counts: whatever else runs only slows down

_measured: dict[tuple[Target, int], Roofline] = {}


def measure_roofline(target: Target, pool: ThreadPool) -> Roofline:
    """Measure with all threads of a pool; takes about half a second and 128 MiB for each thread.

    What was measured counts for the rest of the process, and for no other: the machine may be another by then.
    """
    found = _measured.get((target, pool.num_threads))
    if found is None:
        found = _measured[target, pool.num_threads] = _measure(target, pool)
    return found


def _measure(target: Target, pool: ThreadPool) -> Roofline:
    out = np.zeros(pool.num_threads * LINE_NBYTES + LINE_NBYTES, np.uint8)
    flops = {}
    for kind in kinds_of(target):
        name, kernel = multiply_add_kernel(target, kind)
        module = compiled(module_text([kernel]), target)
        out[:] = 0
        seconds, threads = _best(pool, module.address(name), [out.ctypes.data, ROUNDS])
        flops[kind] = multiply_add_flops(target, ROUNDS, kind) * threads / seconds
    name, kernel = read_kernel(target)
    module = compiled(module_text([kernel]), target)
    sizes = sizes_of(pool.num_threads)
    data = aligned_empty((sizes[-1] * pool.num_threads // 4,))
    data.fill(0.5)  # pages that nobody wrote to are all the same one
    bandwidths = []
    for size in sizes:
        nbytes = block_nbytes(target, size)
        passes = max(1, MIN_READ // nbytes)
        words = [out.ctypes.data, data.ctypes.data, nbytes, passes]
        seconds, threads = _best(pool, module.address(name), words)
        bandwidths.append(Bandwidth(nbytes * threads, nbytes * threads * passes / seconds))
    return Roofline(pool.num_threads, flops["float32"], tuple(bandwidths), flops)


def sizes_of(num_threads: int) -> list[int]:
    """Return the bytes for each thread that are read: all of ``SIZES`` where so many threads do not take too much."""
    largest = max(MOST_NBYTES // num_threads, SIZES[0])
    return [size for size in SIZES if size < largest] + [min(SIZES[-1], largest)] * (largest <= SIZES[-1])


def _best(pool: ThreadPool, kernel: int, words: list[int]) -> tuple[float, int]:
    """Return the shortest time of a kernel in seconds, and how many threads it ran on."""
    table = np.array(words, np.int64)
    step = np.array([kernel, table.ctypes.data, 0, 0], np.int64)
    times = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        threads = pool.run(step.ctypes.data, 1)
        times.append((time.perf_counter() - begin, threads))
    return min(times)
