"""Ask a process of its own to compile, where there can be one: on Linux for x86-64, where objects are linked here.

Elsewhere LLVM links what it compiled, and has to be in this process.
"""

from __future__ import annotations

import importlib.util
import logging
import platform
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol, TypeVar

from ort_core.cpu.codegen.machine_code.compiled_module import compiling
from ort_core.plugin import Rejection

if TYPE_CHECKING:
    from ort_core.cpu.codegen.machine_code.module_text import ModuleText
    from ort_core.cpu.codegen.machine_code.target import Target

log = logging.getLogger(__name__)
T = TypeVar("T")


class Compiler(Protocol):
    """What a process that compiles is asked (``CompilerProcess``)."""

    def host(self) -> Target:
        """Return which processor this is."""

    def object_codes(self, texts: Iterable[ModuleText], target: Target, num_threads: int) -> list[bytes]:
        """Return the object code of modules."""


def start_early() -> None:
    """Start the process that compiles: its own imports take as long as reading a model."""
    _asked(lambda process: None)


def host_elsewhere() -> Target | Rejection:
    """Return what ``llvm_targets.host_target`` returns in the process that compiles, or why there is none."""
    return _asked(lambda process: process.host())


def object_codes_elsewhere(texts: Iterable[ModuleText], target: Target, num_threads: int) -> list[bytes] | Rejection:
    """Return the object code of modules, compiled in a process of its own, or why there is none.

    Raises:
        RuntimeError: a text is no valid LLVM IR; a bug of a generator.
    """
    return _asked(lambda process: process.object_codes(texts, target, num_threads))


def _asked(ask: Callable[[Compiler], T]) -> T | Rejection:
    if sys.platform == "linux" and platform.machine() == "x86_64":
        if sys.modules.get("llvmlite", sys) is None or importlib.util.find_spec("llvmlite") is None:
            return Rejection("llvmlite is not installed")
        from ort_core.cpu.codegen.machine_code import compiler_process_linux as processes  # of this system

        with compiling:
            process = processes.compiler_process()
            if isinstance(process, Rejection):
                return process
            try:
                return ask(process)
            except OSError as error:
                processes.give_up()
                log.info("the process that compiles has failed, this one goes on: %s", error)
                return Rejection(f"the process that compiles has failed: {error}")
            except BaseException:
                processes.give_up()  # it may still compile what was asked before
                raise
    return Rejection("LLVM links what it compiled, in this process")
