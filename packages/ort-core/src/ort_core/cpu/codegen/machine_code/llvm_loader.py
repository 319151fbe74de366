"""load_by_llvm(): LLVM's own loader of object files, where ours does not suffice."""

from __future__ import annotations

import sys

import llvmlite.binding as llvm

from ort_core.cpu.codegen.machine_code.compiled_module import CompiledModule, compiling
from ort_core.cpu.codegen.machine_code.llvm_targets import host_target, target_machine
from ort_core.cpu.codegen.machine_code.target import Target


class NoExecutableMemory(ImportError):
    """The system lets no memory be executed that this process has written: as if there were no compiler."""


def load_by_llvm(object_code: bytes, target: Target | None = None) -> CompiledModule:
    """Make object code callable by LLVM's loader, which knows every format of object files.

    Raises:
        NoExecutableMemory: the code could not be called; LLVM would not tell.
    """
    if not _can_execute():
        raise NoExecutableMemory("the system does not let this process execute memory that it has written")
    target = target or host_target()
    with compiling:
        # An engine for each: of several in one, MCJIT finds constants by the offset table of the first (x86-64).
        module = llvm.parse_assembly("")
        module.triple = target.triple
        engine = llvm.create_mcjit_compiler(module, target_machine(target))
        engine.add_object_file(llvm.ObjectFileRef.from_data(object_code))
        engine.finalize_object()

    def find(function: str) -> int:
        with compiling:
            return int(engine.get_function_address(function))

    return CompiledModule(object_code, find, engine)


def _can_execute() -> bool:
    if sys.platform == "linux":
        from ort_core.cpu.codegen.machine_code.linked_objects_linux import can_execute  # of this system

        return can_execute()
    return True
