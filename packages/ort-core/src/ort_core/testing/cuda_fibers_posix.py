"""C++ text: the threads of an emulated CUDA block as fibers of one thread, where the system has ``ucontext.h``.

A barrier costs a switch of stacks instead of a system call: a block of 512 threads that shuffles takes milliseconds
instead of seconds. Fibers run in turn, each up to its next barrier, so that all have passed the one before.
"""

from __future__ import annotations

import sys

HAS_FIBERS = sys.platform == "linux"  # macOS has ucontext.h but deprecates it, Windows has its own

FIBER_INCLUDES = "#include <ucontext.h>"
FIBERS = r"""
#define EMU_LOCK
struct EmuFibers {
  static const unsigned stack_nbytes = 65536;
  std::vector<ucontext_t> contexts; std::vector<char> done, stacks; ucontext_t main; unsigned current = 0;
  void (*run)(void**) = nullptr; void** arguments = nullptr;
};
static EmuFibers* emu_fibers = nullptr;
static void emu_fiber() {
  EmuFibers* f = emu_fibers;
  f->run(f->arguments);
  f->done[f->current] = 1;
  swapcontext(&f->contexts[f->current], &f->main);
}
static void emu_wait() {
  EmuFibers* f = emu_fibers;
  swapcontext(&f->contexts[f->current], &f->main);
}
static void emu_block(void (*run)(void**), void** a, unsigned count, const unsigned* g) {
  static EmuFibers fibers;
  emu_fibers = &fibers;
  fibers.run = run; fibers.arguments = a;
  fibers.contexts.resize(count); fibers.done.assign(count, 0);
  if (fibers.stacks.size() < (size_t)count * EmuFibers::stack_nbytes)
    fibers.stacks.resize((size_t)count * EmuFibers::stack_nbytes);
  for (unsigned t = 0; t < count; ++t) {
    getcontext(&fibers.contexts[t]);
    fibers.contexts[t].uc_stack.ss_sp = &fibers.stacks[(size_t)t * EmuFibers::stack_nbytes];
    fibers.contexts[t].uc_stack.ss_size = EmuFibers::stack_nbytes;
    fibers.contexts[t].uc_link = nullptr;
    makecontext(&fibers.contexts[t], emu_fiber, 0);
  }
  for (unsigned left = count; left;) {
    left = 0;
    for (unsigned t = 0; t < count; ++t) {
      if (fibers.done[t]) continue;
      fibers.current = t; threadIdx = {t % g[3], t / g[3] % g[4], t / (g[3] * g[4])};
      swapcontext(&fibers.main, &fibers.contexts[t]);
      left += !fibers.done[t];
    }
  }
}
"""
"""Defines ``emu_wait`` (a barrier) and ``emu_block`` (all threads of one block)."""
