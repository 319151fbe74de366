"""CUDA C++ run on the CPU, through a C++ compiler: the results of kernels are checked without a GPU, not their speed.

Blocks run one after the other. The threads of a block run one after the other too, unless the source synchronizes or
shuffles: then each is a fiber, or a thread of the system where there are no fibers. Static ``__shared__`` arrays,
barriers, shuffles of whole warps and ``atomicAdd`` work; dynamic shared memory and textures do not.

Checked kernels note what has no visible result here and may have any on a device: overflows, addresses that are not
aligned, barriers that not all threads reach. They run in either order, from shared memory that holds a pattern.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ort_core.errors import Fail
from ort_core.testing.cuda_checks_posix import CHECK_FLAGS, CHECKS, HAS_CHECKS, NO_CHECKS
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
#define __launch_bounds__(...)
struct emu_dim3 { unsigned x, y, z; };
static thread_local emu_dim3 threadIdx, blockIdx;
static emu_dim3 blockDim, gridDim;
template <typename To, typename From> static To emu_bits(From v) { To r; std::memcpy(&r, &v, sizeof r); return r; }
static float __fmul_rn(float a, float b) { return a * b; }
static double __dmul_rn(double a, double b) { return a * b; }
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
@CHECKS@
@BLOCKS@
static std::vector<unsigned long long> emu_exchange;
static unsigned emu_thread() { return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); }
template <int LINE> static void emu_warp(unsigned mask = 0xffffffffu) { emu_wait(LINE, mask); }
template <typename T> static T emu_lane(int line, unsigned mask, T v, unsigned lane) {
  const unsigned me = emu_thread(), wanted = me - me % 32 + lane;
  const unsigned source = lane < 32 && wanted < emu_exchange.size() ? wanted : me;
  unsigned long long word = 0; std::memcpy(&word, &v, sizeof v); emu_exchange[me] = word;
  emu_wait(line, mask); word = emu_exchange[source]; emu_wait(line, mask);
  T r; std::memcpy(&r, &word, sizeof r); return r;
}
#define __syncthreads() emu_wait(__LINE__, 0)  // macros: a barrier is known by its line
#define __syncwarp(...) emu_warp<__LINE__>(__VA_ARGS__)
#define __shfl_sync(mask, v, lane) emu_lane(__LINE__, mask, v, (unsigned)(lane) % 32)
#define __shfl_xor_sync(mask, v, bits) emu_lane(__LINE__, mask, v, (emu_thread() % 32) ^ (unsigned)(bits))
#define __shfl_down_sync(mask, v, by) emu_lane(__LINE__, mask, v, emu_thread() % 32 + (unsigned)(by))
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
static void emu_wait(int, unsigned) { emu_barrier->wait(); }
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
  const unsigned count = g[3] * g[4] * g[5], blocks = g[0] * g[1] * g[2];
  for (unsigned turn = 0; turn < blocks; ++turn) {
    const unsigned b = emu_is_reversed ? blocks - 1 - turn : turn;
    const emu_dim3 block = {b % g[0], b / g[0] % g[1], b / (g[0] * g[1])};
    blockIdx = block;
    emu_begin_block();
    if (!@SYNCHRONIZES@) {
      for (unsigned n = 0; n < count; ++n) {
        const unsigned t = emu_is_reversed ? count - 1 - n : n;
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

_SHORTENED = re.compile(r"warning: .*'long long(?: int)?' to '(?:unsigned int|int)'")  # gcc and clang

Scalar = np.generic | int | float | bool


def find_compiler() -> str | None:
    """Return a C++ compiler (``CXX``, else the usual names), or ``None`` when there is none to emulate with."""
    wanted = os.environ.get("CXX")
    return next((found for name in (wanted, *_COMPILERS) if name and (found := shutil.which(name))), None)


def emulate(source: str, entries: Sequence[str], folder: Path, *, checked: bool = False) -> dict[str, EmulatedKernel]:
    """Compile a CUDA source for the CPU; returns its kernels by name.

    Args:
        source: CUDA C++.
        entries: the names of its ``__global__`` functions.
        folder: where the compiled library is put; it must outlive the kernels.
        checked: whether kernels note what they do wrong; with gcc and clang on Linux.

    Raises:
        Fail: there is no C++ compiler, or the source does not compile; the message has the compiler's words.
    """
    compiler = find_compiler()
    if compiler is None:
        raise Fail(f"emulating CUDA kernels needs a C++ compiler; none of CXX, {', '.join(_COMPILERS)} was found")
    if checked and not HAS_CHECKS:
        raise Fail("emulated CUDA kernels are checked on Linux alone")
    name = f"{entries[0]}.checked" if checked else entries[0]
    text, library = folder / f"{name}.cpp", folder / f"{name}.emulated"
    text.write_text(_as_cpp(source, entries, checked=checked), encoding="utf-8")
    flags = ["-std=c++17", "-O1", "-w", "-pthread", "-fPIC", "-ffp-contract=off"]
    if not checked:
        _call([compiler, *flags, "-shared", str(text), "-o", str(library)], entries[0])
    else:  # in two steps: linked with these flags the library would call the sanitizer's own functions
        compiled = str(folder / f"{name}.o")
        _call([compiler, *flags, *CHECK_FLAGS, "-c", str(text), "-o", compiled], entries[0])
        _call([compiler, "-shared", "-pthread", compiled, "-o", str(library)], entries[0])
    loaded = ctypes.CDLL(str(library))
    if checked:
        loaded.emu_what_was_found.restype = ctypes.c_char_p
    checks = loaded if checked else None
    return {entry: EmulatedKernel(getattr(loaded, f"emu_launch_{entry}"), entry, checks) for entry in entries}


def find_shortened(source: str, entries: Sequence[str], folder: Path) -> list[str]:
    """Return where a CUDA source keeps an integer of 64 bits in one of 32 without a cast, in the compiler's words.

    A position that is shortened so is wrong from 2**31 on, and no test has tensors so large.

    Raises:
        Fail: there is no C++ compiler, or the source does not compile.
    """
    compiler = find_compiler()
    if compiler is None:
        raise Fail("finding shortened integers needs a C++ compiler; none was found")
    text = folder / "shortened.cpp"
    text.write_text(_as_cpp(source, entries, checked=False), encoding="utf-8")
    said = _call([compiler, "-std=c++17", "-fsyntax-only", "-Wconversion", str(text)], "the source")
    return [line for line in said.splitlines() if _SHORTENED.search(line)]


def _as_cpp(source: str, entries: Sequence[str], *, checked: bool) -> str:
    """Return the whole text of a library."""
    synchronizes = any(word in source for word in _SYNCHRONIZES)
    blocks, includes = (FIBERS, FIBER_INCLUDES) if HAS_FIBERS else (_THREADS, _THREAD_INCLUDES)
    header = _HEADER.replace("@CHECKS@", CHECKS if checked else NO_CHECKS)
    header = header.replace("@BLOCKS@", blocks).replace("@INCLUDES@", includes)
    launchers = [_ENTRY.replace("@ENTRY@", entry) for entry in entries]
    parts = (header, f'#line 1 "{entries[0]}.cu"', source, _LAUNCHER, *launchers)
    return "\n".join(parts).replace("@SYNCHRONIZES@", "1" if synchronizes else "0")


def _call(command: Sequence[str], entry: str) -> str:
    """Run a compiler and return what it says."""
    plain = {**os.environ, "LC_ALL": "C"}  # its words and quotes as they are read
    done = subprocess.run(command, capture_output=True, text=True, env=plain)
    if done.returncode:
        raise Fail(f"{entry} does not compile as CUDA C++ on the CPU:\n{done.stderr.strip()}")
    return done.stderr


class KernelFault(AssertionError):
    """A checked kernel did what C++ or CUDA leaves undefined."""


class EmulatedKernel:
    """One compiled kernel, from ``emulate``."""

    def __init__(self, launch: Any, entry: str = "", checks: Any = None) -> None:  # Any: a ctypes function, a library
        self._launch, self._entry, self._checks = launch, entry, checks

    def launch(
        self,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        arguments: Sequence[np.ndarray | Scalar | None],
        *,
        is_reversed: bool = False,
        pattern: int = 0xFF,
    ) -> None:
        """Run the kernel and wait for it. Arrays must be contiguous, and as long as the kernel takes them to be.

        An array is passed as its pointer, ``None`` as a null pointer, a numpy scalar as its own type, a Python int as
        ``long long``, a float as ``double``, a bool as ``bool``.

        Args:
            grid: how many blocks.
            block: how many threads each has.
            arguments: of the kernel.
            is_reversed: of a checked kernel: whether the last block and its last thread come first.
            pattern: of a checked kernel: the byte that shared memory is filled with.

        Raises:
            KernelFault: the kernel is checked, and does what is undefined.
        """
        words = [_word(argument) for argument in arguments]
        addresses = (ctypes.c_void_p * len(words))(*[ctypes.addressof(word) for word in words])
        if self._checks is not None:
            self._checks.emu_set(int(is_reversed), pattern)
        self._launch(addresses, (ctypes.c_uint * 6)(*grid, *block))
        if self._checks is not None and (found := self._checks.emu_what_was_found()):
            raise KernelFault(f"{self._entry}: {found.decode()}")


def _word(argument: np.ndarray | Scalar | None) -> Any:  # Any: ctypes has no public base of simple values
    if argument is None:
        return ctypes.c_void_p(None)
    if isinstance(argument, np.ndarray):
        if not argument.flags.c_contiguous:
            raise ValueError("an array that is given to a kernel must be contiguous")
        return ctypes.c_void_p(argument.ctypes.data)
    content = np.asarray(argument).tobytes()  # numpy's own types of int and float are 64 bits wide
    return (ctypes.c_char * len(content)).from_buffer_copy(content)
