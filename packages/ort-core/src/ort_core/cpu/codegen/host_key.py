"""What machine code for this host depends on, told without LLVM where the system says what processor it is."""

from __future__ import annotations

import functools
import importlib.util
import os
import sys

from ort_core.cpu.codegen.target_setting import setting_key
from ort_core.plugin import Rejection


@functools.cache
def host_key() -> str:
    """Return what code that was compiled for this host depends on: processor, compiler, settings of the process.

    Raises:
        ImportError: llvmlite is not installed.
    """
    processor = _processor()
    if isinstance(processor, Rejection):
        from ort_core.cpu.codegen.jit import host_target  # imports llvmlite

        return f"{host_target().key}|{setting_key()}"
    return f"{processor}|{_compiler()}|{setting_key()}"


def _processor() -> str | Rejection:
    if sys.platform != "linux":
        return Rejection("only Linux shows all features of a processor in a file")
    from ort_core.cpu.codegen.processor_linux import processor_text  # of this system

    return processor_text()


def _compiler() -> str:
    """Return what tells the installed llvmlite, and with it its LLVM: the place, size and times of its files."""
    spec = importlib.util.find_spec("llvmlite")
    if spec is None or spec.origin is None:
        raise ImportError("llvmlite is not installed")
    status = os.stat(spec.origin)
    return f"{spec.origin}|{status.st_size}|{status.st_mtime_ns}|{status.st_ctime_ns}"
