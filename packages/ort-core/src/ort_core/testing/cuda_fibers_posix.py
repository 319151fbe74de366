"""C++ text: the threads of an emulated CUDA block as fibers of one thread, where the system has ``ucontext.h``.

A barrier costs a switch of stacks instead of a system call: a block of 512 threads that shuffles takes milliseconds
instead of seconds. A barrier of a block opens when all threads that are left stand at it, one of a warp when those of
its mask do. Until a barrier of the block a warp runs alone, and its lanes run one after the other until one of the
warp: what lacks a barrier reads too early in one order of threads, or in the other.
"""

from __future__ import annotations

import sys

HAS_FIBERS = sys.platform == "linux"  # macOS has ucontext.h but deprecates it, Windows has its own

FIBER_INCLUDES = "#include <ucontext.h>"
FIBERS = r"""
#define EMU_LOCK
struct EmuFiber { ucontext_t context; int line; unsigned mask; bool is_done; };  // line: of a barrier, 0: it runs on
struct EmuFibers {
  static const unsigned stack_nbytes = 65536;
  std::vector<EmuFiber> each; std::vector<char> stacks; ucontext_t main; unsigned current = 0;
  void (*run)(void**) = nullptr; void** arguments = nullptr;
};
static EmuFibers* emu_fibers = nullptr;
static void emu_leave() { swapcontext(&emu_fibers->each[emu_fibers->current].context, &emu_fibers->main); }
static void emu_fiber() {
  emu_fibers->run(emu_fibers->arguments);
  emu_fibers->each[emu_fibers->current].is_done = true;
  emu_leave();
}
static void emu_wait(int line, unsigned mask) {
  EmuFiber& mine = emu_fibers->each[emu_fibers->current];
  mine.line = line; mine.mask = mask;
  emu_leave();
}
static bool emu_open(unsigned first, unsigned last, unsigned mask) {  // the barrier of some threads, if all are there
  std::vector<EmuFiber>& each = emu_fibers->each;
  int line = 0;
  for (unsigned t = first; t < last; ++t) {
    if (each[t].is_done || (mask && !(mask >> (t - first) & 1))) continue;
    if (!each[t].line || each[t].mask != mask || (line && each[t].line != line)) return false;
    line = each[t].line;
  }
  for (unsigned t = first; t < last; ++t)
    if (!each[t].is_done && each[t].mask == mask) each[t].line = 0;
  return line != 0;
}
static void emu_run_warp(unsigned first, unsigned last, const unsigned* g) {  // as far as it goes by itself
  for (bool goes_on = true; goes_on;) {
    for (unsigned n = first; n < last; ++n) {
      const unsigned t = emu_is_reversed ? first + last - 1 - n : n;
      EmuFiber& fiber = emu_fibers->each[t];
      if (fiber.is_done || fiber.line) continue;
      emu_fibers->current = t; threadIdx = {t % g[3], t / g[3] % g[4], t / (g[3] * g[4])};
      swapcontext(&emu_fibers->main, &fiber.context);
    }
    goes_on = false;
    for (unsigned t = first; t < last; ++t) {
      const EmuFiber& one = emu_fibers->each[t];
      if (!one.is_done && one.line && one.mask) goes_on |= emu_open(first, last, one.mask);
    }
  }
}
static void emu_block(void (*run)(void**), void** a, unsigned count, const unsigned* g) {
  static EmuFibers fibers;
  emu_fibers = &fibers;
  fibers.run = run; fibers.arguments = a;
  fibers.each.resize(count);
  if (fibers.stacks.size() < (size_t)count * EmuFibers::stack_nbytes)
    fibers.stacks.resize((size_t)count * EmuFibers::stack_nbytes);
  for (unsigned t = 0; t < count; ++t) {
    EmuFiber& fiber = fibers.each[t];
    fiber.line = 0; fiber.mask = 0; fiber.is_done = false;
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = &fibers.stacks[(size_t)t * EmuFibers::stack_nbytes];
    fiber.context.uc_stack.ss_size = EmuFibers::stack_nbytes;
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, emu_fiber, 0);
  }
  const unsigned warps = (count + 31) / 32;
  for (unsigned left = count; left;) {
    for (unsigned n = 0; n < warps; ++n) {
      const unsigned first = (emu_is_reversed ? warps - 1 - n : n) * 32;
      emu_run_warp(first, first + 32 < count ? first + 32 : count, g);
    }
    left = 0;
    for (const EmuFiber& fiber : fibers.each) left += !fiber.is_done;
    if (!left || emu_open(0, count, 0)) continue;
    emu_note("threads wait at different barriers", nullptr);
    for (EmuFiber& fiber : fibers.each) fiber.line = 0;
  }
}
"""
"""Defines ``emu_wait`` (a barrier: of the lanes of a mask, or of all where it is 0) and ``emu_block`` (one block)."""
