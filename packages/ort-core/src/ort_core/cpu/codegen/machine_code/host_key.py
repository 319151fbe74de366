"""What machine code for this host depends on, told without LLVM where the system says what processor it is."""

from __future__ import annotations

import functools
import importlib.util
import os
import sys

from ort_core.cpu.codegen.machine_code.target_setting import setting_key
from ort_core.plugin import Rejection
from ort_core.plugin.files import changed_ns


def host_key() -> str:
    """Return what code that was compiled for this host depends on: processor, compiler, settings of the process.

    Raises:
        ImportError: llvmlite is not installed, and nothing else tells the processor.
    """
    return f"{machine_key()}|{_compiler()}"


def machine_key() -> str:
    """Return what machine code must be made for to run here as it is: processor, and settings of the process.

    Raises:
        ImportError: as of ``host_key``.
    """
    return f"{_processor()}|{setting_key()}"


@functools.cache
def _processor() -> str:
    shown = _shown_processor()
    if isinstance(shown, Rejection):
        from ort_core.cpu.codegen.machine_code.llvm_targets import host_target  # imports llvmlite

        return host_target().key
    return shown


def _shown_processor() -> str | Rejection:
    if sys.platform != "linux":
        return Rejection("only Linux shows all features of a processor in a file")
    from ort_core.cpu.codegen.machine_code.processor_linux import processor_text  # of this system

    return processor_text()


def _compiler() -> str:
    """Return what tells the installed llvmlite, and with it its LLVM."""
    return _installed_compiler(sys.modules.get("llvmlite", sys) is not None)


@functools.cache
def _installed_compiler(may_be_imported: bool) -> str:
    """Return its version, or where it has none its file."""
    spec = importlib.util.find_spec("llvmlite") if may_be_imported else None
    if spec is None or spec.origin is None:
        return "no compiler"
    installed = os.path.dirname(os.path.dirname(spec.origin))
    versions = [name for name in os.listdir(installed) if name.startswith("llvmlite-") and name.endswith(".dist-info")]
    if len(versions) == 1:
        return versions[0].removesuffix(".dist-info")
    status = os.stat(spec.origin)
    return f"{spec.origin}|{status.st_size}|{status.st_mtime_ns}|{changed_ns(spec.origin, status)}"
