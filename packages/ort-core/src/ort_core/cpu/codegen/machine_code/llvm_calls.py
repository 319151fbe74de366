"""LLVM's two long calls, optimizing and emitting, without the lock that llvmlite holds around every call.

The lock keeps two threads out of one LLVM context, which LLVM does not allow. Modules that have a context and a target
machine of their own share nothing: LLVM compiles them at once, as its own linker does. What is short goes through the
lock; so does everything where llvmlite does not have the functions that it wraps.
"""

from __future__ import annotations

from ctypes import string_at
from typing import Any

import llvmlite.binding as llvm
from llvmlite.binding import ffi


def run_passes(passes: llvm.ModulePassManager, module: llvm.ModuleRef, builder: llvm.PassBuilder) -> None:
    """Run passes over a module that no other thread touches meanwhile."""
    _unlocked(ffi.lib.LLVMPY_RunNewModulePassManager)(passes, module, builder)


def emit_object(machine: llvm.TargetMachine, module: llvm.ModuleRef) -> bytes:
    """Return the object code of a module that no other thread touches meanwhile, nor its target machine.

    Raises:
        RuntimeError: LLVM cannot write the module for this target.
    """
    with ffi.OutputString() as error:
        memory = _unlocked(ffi.lib.LLVMPY_TargetMachineEmitToMemory)(machine, module, 1, error)
        if not memory:
            raise RuntimeError(str(error))
    try:
        return string_at(ffi.lib.LLVMPY_GetBufferStart(memory), ffi.lib.LLVMPY_GetBufferSize(memory))
    finally:
        ffi.lib.LLVMPY_DisposeMemoryBuffer(memory)


def _unlocked(function: Any) -> Any:
    """Return the function of the library that llvmlite wraps, or the wrapper where it holds none."""
    return getattr(function, "_cfn", function)
