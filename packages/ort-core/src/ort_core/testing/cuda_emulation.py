"""CUDA C++ run on the CPU, through a C++ compiler: the results of kernels are checked without a GPU, not their speed.

Blocks run one after the other. The threads of a block run one after the other too, unless the source synchronizes or
shuffles: then each is a fiber, or a thread of the system where there are no fibers. Static ``__shared__`` arrays,
barriers, shuffles of whole warps and ``atomicAdd`` work; dynamic shared memory and textures do not.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ort_core.errors import Fail
from ort_core.testing.cuda_fibers_posix import FIBER_INCLUDES, FIBERS, HAS_FIBERS

_COMPILERS = ("c++", "g++", "clang++")
_SYNCHRONIZES = ("__sync", "__shfl", "cooperative_groups")
_HEADER = r"""
@INCLUDES@
#include <cmath>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>
using std::fabs; using std::sqrt; using std::floor; using std::ceil; using std::rint; using std::trunc; using std::fma;
#define __global__
#define __device__
#define __host__
#define __constant__ static const
#define __forceinline__ inline
#define __shared__ static
#define __launch_bounds__(...)
struct emu_dim3 { unsigned x, y, z; };
static thread_local emu_dim3 threadIdx, blockIdx;
static emu_dim3 blockDim, gridDim;
template <typename To, typename From> static To emu_bits(From v) { To r; std::memcpy(&r, &v, sizeof r); return r; }
static int __float_as_int(float v) { return emu_bits<int>(v); }
static float __int_as_float(int v) { return emu_bits<float>(v); }
static long long __double_as_longlong(double v) { return emu_bits<long long>(v); }
static double __longlong_as_double(long long v) { return emu_bits<double>(v); }
#define rsqrtf(v) (1.0f / std::sqrt((float)(v)))  // macros: libraries may declare functions of these names
#define cospif(v) ((float)std::cos(3.14159265358979323846 * (double)(v)))
#define cospi(v) std::cos(3.14159265358979323846 * (double)(v))
#define __expf(v) std::exp((float)(v))
#define __logf(v) std::log((float)(v))
#define __fdividef(a, b) ((float)(a) / (float)(b))
@BLOCKS@
static std::vector<unsigned long long> emu_exchange;
static unsigned emu_thread() { return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); }
static void __syncthreads() { emu_wait(); }
static void __syncwarp(unsigned = 0xffffffffu) { emu_wait(); }
template <typename T> static T emu_shuffle(T v, unsigned source) {
  unsigned long long word = 0; std::memcpy(&word, &v, sizeof v); emu_exchange[emu_thread()] = word;
  __syncthreads(); word = emu_exchange[source]; __syncthreads();
  T r; std::memcpy(&r, &word, sizeof r); return r;
}
template <typename T> static T emu_lane(T v, unsigned lane) {
  const unsigned me = emu_thread(), source = me - me % 32 + lane;
  return emu_shuffle(v, lane < 32 && source < emu_exchange.size() ? source : me);
}
template <typename T> static T __shfl_sync(unsigned, T v, int lane) { return emu_lane(v, lane % 32); }
template <typename T> static T __shfl_xor_sync(unsigned, T v, int mask) {
  return emu_lane(v, (emu_thread() % 32) ^ mask);
}
template <typename T> static T __shfl_down_sync(unsigned, T v, unsigned by) {
  return emu_lane(v, emu_thread() % 32 + by);
}
template <typename T> static T atomicAdd(T* at, T v) {
  EMU_LOCK const T old = *at; *at = old + v; return old;
}
"""
_THREAD_INCLUDES = "#include <condition_variable>\n#include <mutex>\n#include <thread>"
_THREADS = r"""
static std::mutex emu_atomics;
#define EMU_LOCK std::lock_guard<std::mutex> lock(emu_atomics);
class EmuBarrier {  // threads that leave early are no longer waited for
  std::mutex mutex; std::condition_variable changed; unsigned expected, waiting = 0, turn = 0;
  void release() { waiting = 0; ++turn; changed.notify_all(); }
 public:
  explicit EmuBarrier(unsigned count) : expected(count) {}
  void wait() {
    std::unique_lock<std::mutex> lock(mutex);
    const unsigned mine = turn;
    if (++waiting == expected) release(); else changed.wait(lock, [&] { return turn != mine; });
  }
  void leave() { std::unique_lock<std::mutex> lock(mutex); if (--expected == waiting && expected) release(); }
};
static EmuBarrier* emu_barrier = nullptr;
static void emu_wait() { emu_barrier->wait(); }
static void emu_block(void (*run)(void**), void** a, unsigned count, const unsigned* g) {
  EmuBarrier barrier(count); emu_barrier = &barrier;
  const emu_dim3 block = blockIdx;
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < count; ++t) threads.emplace_back([=] {
    blockIdx = block; threadIdx = {t % g[3], t / g[3] % g[4], t / (g[3] * g[4])};
    run(a);
    emu_barrier->leave();
  });
  for (auto& thread : threads) thread.join();
  emu_barrier = nullptr;
}
"""
_LAUNCHER = r"""
template <typename... P, std::size_t... I> static void emu_call(void (*f)(P...), void** a, std::index_sequence<I...>) {
  f(*(typename std::remove_cv<P>::type*)a[I]...);
}
template <typename... P> static void emu_run(void (*f)(P...), void** a) {
  emu_call(f, a, std::index_sequence_for<P...>());
}
static void emu_launch(void (*run)(void**), void** a, const unsigned* g) {
  gridDim = {g[0], g[1], g[2]}; blockDim = {g[3], g[4], g[5]};
  const unsigned count = g[3] * g[4] * g[5];
  for (unsigned b = 0; b < g[0] * g[1] * g[2]; ++b) {
    const emu_dim3 block = {b % g[0], b / g[0] % g[1], b / (g[0] * g[1])};
    blockIdx = block;
    if (!@SYNCHRONIZES@) {
      for (unsigned t = 0; t < count; ++t) {
        threadIdx = {t % g[3], t / g[3] % g[4], t / (g[3] * g[4])};
        run(a);
      }
      continue;
    }
    emu_exchange.assign(count, 0);
    emu_block(run, a, count, g);
  }
}
"""
_ENTRY = """
static void emu_run_@ENTRY@(void** a) { emu_run(&@ENTRY@, a); }
extern "C" void emu_launch_@ENTRY@(void** a, const unsigned* g) { emu_launch(&emu_run_@ENTRY@, a, g); }
"""

Scalar = np.generic | int | float | bool


def find_compiler() -> str | None:
    """Return a C++ compiler (``CXX``, else the usual names), or ``None`` when there is none to emulate with."""
    wanted = os.environ.get("CXX")
    return next((found for name in (wanted, *_COMPILERS) if name and (found := shutil.which(name))), None)


def emulate(source: str, entries: Sequence[str], folder: Path) -> dict[str, EmulatedKernel]:
    """Compile a CUDA source for the CPU; returns its kernels by name.

    Args:
        source: CUDA C++.
        entries: the names of its ``__global__`` functions.
        folder: where the compiled library is put; it must outlive the kernels.

    Raises:
        Fail: there is no C++ compiler, or the source does not compile; the message has the compiler's words.
    """
    compiler = find_compiler()
    if compiler is None:
        raise Fail(f"emulating CUDA kernels needs a C++ compiler; none of CXX, {', '.join(_COMPILERS)} was found")
    synchronizes = any(word in source for word in _SYNCHRONIZES)
    launchers = [_ENTRY.replace("@ENTRY@", entry) for entry in entries]
    blocks, includes = (FIBERS, FIBER_INCLUDES) if HAS_FIBERS else (_THREADS, _THREAD_INCLUDES)
    header = _HEADER.replace("@BLOCKS@", blocks).replace("@INCLUDES@", includes)
    parts = (header, f'#line 1 "{entries[0]}.cu"', source, _LAUNCHER, *launchers)
    text, library = folder / f"{entries[0]}.cpp", folder / f"{entries[0]}.emulated"
    text.write_text("\n".join(parts).replace("@SYNCHRONIZES@", "1" if synchronizes else "0"), encoding="utf-8")
    flags = ("-std=c++17", "-O1", "-w", "-pthread", "-shared", "-fPIC", "-ffp-contract=off")
    done = subprocess.run([compiler, *flags, str(text), "-o", str(library)], capture_output=True, text=True)
    if done.returncode:
        raise Fail(f"{entries[0]} does not compile as CUDA C++ on the CPU:\n{done.stderr.strip()}")
    loaded = ctypes.CDLL(str(library))
    return {entry: EmulatedKernel(getattr(loaded, f"emu_launch_{entry}")) for entry in entries}


class EmulatedKernel:
    """One compiled kernel, from ``emulate``."""

    def __init__(self, launch: Any) -> None:  # Any: a ctypes function
        self._launch = launch

    def launch(
        self,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        arguments: Sequence[np.ndarray | Scalar | None],
    ) -> None:
        """Run the kernel and wait for it. Arrays must be contiguous, and as long as the kernel takes them to be.

        An array is passed as its pointer, ``None`` as a null pointer, a numpy scalar as its own type, a Python int as
        ``long long``, a float as ``double``, a bool as ``bool``.
        """
        words = [_word(argument) for argument in arguments]
        addresses = (ctypes.c_void_p * len(words))(*[ctypes.addressof(word) for word in words])
        self._launch(addresses, (ctypes.c_uint * 6)(*grid, *block))


def _word(argument: np.ndarray | Scalar | None) -> Any:  # Any: ctypes has no public base of simple values
    if argument is None:
        return ctypes.c_void_p(None)
    if isinstance(argument, np.ndarray):
        if not argument.flags.c_contiguous:
            raise ValueError("an array that is given to a kernel must be contiguous")
        return ctypes.c_void_p(argument.ctypes.data)
    content = np.asarray(argument).tobytes()  # numpy's own types of int and float are 64 bits wide
    return (ctypes.c_char * len(content)).from_buffer_copy(content)
