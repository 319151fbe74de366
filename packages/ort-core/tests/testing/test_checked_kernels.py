"""Checked emulation of CUDA kernels: what has no visible result on the processor is told, with its place."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ort_core.testing.cuda_checks_posix import HAS_CHECKS
from ort_core.testing.cuda_emulation import EmulatedKernel, KernelFault, emulate, find_compiler

pytestmark = [
    pytest.mark.skipif(find_compiler() is None, reason="CUDA is emulated by a C++ compiler; none is here"),
    pytest.mark.skipif(not HAS_CHECKS, reason="kernels are checked on Linux alone"),
]
SOURCE = """
extern "C" __global__ void total(const float* x, float* y, long long n) {
  __shared__ float parts[2];
  float sum = 0;
  for (long long i = threadIdx.x; i < n; i += blockDim.x) sum += x[i];
  for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x == 0) y[0] = parts[0] + parts[1];
}
extern "C" __global__ void lacks_a_barrier(const float* x, float* y) {
  __shared__ float parts[64];
  parts[threadIdx.x] = x[threadIdx.x];
  __syncwarp();
  y[threadIdx.x] = parts[63 - threadIdx.x];
}
extern "C" __global__ void reads_before_writing(float* y) {
  __shared__ float parts[64];
  y[threadIdx.x] = parts[threadIdx.x];
  __syncthreads();
  parts[threadIdx.x] = 1.0f;
}
extern "C" __global__ void overflows(int* y, int n) { y[0] = n * n; }
extern "C" __global__ void leaves_its_array(int* y, int n) { __shared__ int a[4]; a[n] = 1; y[0] = a[n]; }
extern "C" __global__ void parts_ways(int* y) {
  if (threadIdx.x < 5) __syncthreads();
  else __syncwarp(0xffffffe0u);
  __syncthreads();
  y[0] = 1;
}
extern "C" __global__ void writes_behind(float* y, int n) { y[n] = 1.0f; }
"""
NAMES = (
    "total",
    "lacks_a_barrier",
    "reads_before_writing",
    "overflows",
    "leaves_its_array",
    "parts_ways",
    "writes_behind",
)


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, EmulatedKernel]:
    return emulate(SOURCE, NAMES, tmp_path_factory.mktemp("checked"), checked=True)


def _run(kernel: EmulatedKernel, *arguments: object, **how: object) -> None:
    kernel.launch((1, 1, 1), (64, 1, 1), arguments, **how)  # type: ignore[arg-type]  # whatever a case passes


@pytest.mark.parametrize("is_reversed", [False, True])
def test_a_kernel_without_fault_gives_its_result_in_either_order(kernels, is_reversed: bool) -> None:
    x, y = np.arange(200, dtype=np.float32), np.zeros(1, np.float32)
    _run(kernels["total"], x, y, 200, is_reversed=is_reversed)
    assert y[0] == x.sum()


def test_a_missing_barrier_gives_other_results_in_the_other_order(kernels) -> None:
    x = np.arange(64, dtype=np.float32)
    found = [np.zeros(64, np.float32) for _ in range(2)]
    for y, is_reversed in zip(found, (False, True), strict=True):
        _run(kernels["lacks_a_barrier"], x, y, is_reversed=is_reversed)
    assert found[0].tobytes() != found[1].tobytes()


def test_shared_memory_holds_a_pattern_until_it_is_written(kernels) -> None:
    found = [np.zeros(64, np.float32) for _ in range(2)]
    for y, pattern in zip(found, (0xFF, 0x5A), strict=True):
        _run(kernels["reads_before_writing"], y, pattern=pattern)
    assert np.isnan(found[0]).all()
    assert not np.isnan(found[1]).any()


@pytest.mark.parametrize(
    ("name", "number", "words"),
    [
        ("overflows", 100_000, "a product overflows at total.cu:23"),
        ("leaves_its_array", 4, "an index beyond an array at total.cu:24"),
        ("parts_ways", None, "threads wait at different barriers"),
    ],
)
def test_what_is_undefined_is_told_with_its_line(kernels, name: str, number: int | None, words: str) -> None:
    arguments = [np.zeros(1, np.int32), *([] if number is None else [np.int32(number)])]
    with pytest.raises(KernelFault, match=f"{name}: {words}"):
        _run(kernels[name], *arguments)


def test_a_write_beside_memory_that_ends_within_a_page_is_seen(kernels) -> None:
    from ort_core.testing.guarded_memory_posix import GuardedMemory  # here: not every system has such memory

    memory = GuardedMemory(20, "begin")
    kernels["writes_behind"].launch((1, 1, 1), (1, 1, 1), (np.uint64(memory.address), np.int32(4)))
    assert memory.is_whole()
    kernels["writes_behind"].launch((1, 1, 1), (1, 1, 1), (np.uint64(memory.address), np.int32(5)))
    assert not memory.is_whole()


@pytest.mark.parametrize(("edge", "place"), [("end", 8), ("begin", -1)])
def test_a_write_beyond_the_guarded_edge_ends_the_process(edge: str, place: int) -> None:
    program = (
        "import ctypes\nfrom ort_core.testing.guarded_memory_posix import GuardedMemory\n"
        f"memory = GuardedMemory(32, {edge!r})\nmemory.array()[:] = 1\nprint('within', flush=True)\n"
        f"ctypes.c_float.from_address(memory.address + 4 * {place}).value = 1\nprint('beyond')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=Path.cwd(), check=False)
    assert (done.stdout.split(), done.returncode < 0) == (["within"], True)
