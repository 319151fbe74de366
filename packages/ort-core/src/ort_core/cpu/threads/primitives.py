"""What a thread pool needs of an operating system, as LLVM IR: start a thread, wait on a word, wake its waiters.

Each file beside this one gives ``primitives(triple)``: IR that defines

* ``i32 @ort_start(ptr %entry, ptr %argument, ptr %id)``: start a thread that calls ``entry(argument)``; 0 when it
  worked;
* ``void @ort_wait(ptr %word, i32 %seen)``: sleep while the word is ``seen``; may return early;
* ``void @ort_wake(ptr %word)``: wake all who sleep on the word;
* ``void @ort_pin(ptr %mask, i64 %nbytes)``: let the calling thread run only on the processors whose bits are set; where
  a system can't, it does nothing.
"""

from __future__ import annotations

import importlib


def primitives_for(triple: str) -> str:
    """Return the IR for the system of a target triple.

    Raises:
        NotImplementedError: no file for that system.
    """
    system = "linux" if "linux" in triple else "macos" if "darwin" in triple or "macos" in triple else ""
    if "windows" in triple:
        system = "windows"
    if not system:
        raise NotImplementedError(f"no thread primitives for {triple}; add a file to ort_core/cpu/threads")
    text: str = importlib.import_module(f"ort_core.cpu.threads.{system}").primitives(triple)
    return text
