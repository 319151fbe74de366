"""load_object(): object files become machine code in this process.

On Linux they are linked here (``linked_objects_linux``); elsewhere, and where that does not suffice, by LLVM.
"""

from __future__ import annotations

import logging
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from ort_core.cpu.codegen.machine_code.compiled_module import CompiledModule
from ort_core.plugin import Rejection, environment_value

if TYPE_CHECKING:
    from ort_core.cpu.codegen.machine_code.target import Target

log = logging.getLogger(__name__)


class BadObject(ValueError):
    """Bytes that should be an object file are none; LLVM's loader does not survive such."""


_BY_LLVM: ContextVar[bool] = ContextVar("linked_by_llvm", default=False)
_ELF = b"\x7fELF"
_STARTS = (_ELF, b"\xcf\xfa\xed\xfe", b"\x64\x86", b"\x64\xaa")  # ELF, Mach-O, COFF of x86-64 and of ARM64
_ELF_HEADER_NBYTES = 64


def load_object(object_code: bytes, target: Target | None = None) -> CompiledModule:
    """Make object code from an earlier ``jit.compile_module`` callable; without a target it is this machine's.

    Raises:
        BadObject: it is not an object file.
        NoExecutableMemory: the system lets this process execute nothing that it has written.
    """
    if not _is_whole(object_code):
        raise BadObject(f"{len(object_code)} bytes are not an object file, or a part of one")
    linked = _linked(object_code)
    if not isinstance(linked, Rejection):
        return linked
    log.debug("an object file is loaded by LLVM: %s", linked)
    # It imports llvmlite, which a load out of the cache can do without.
    from ort_core.cpu.codegen.machine_code.llvm_loader import load_by_llvm

    return load_by_llvm(object_code, target)


def _is_whole(object_code: bytes) -> bool:
    """Return whether bytes begin as object files do; of ELF, whether its table of sections, the last part, is there."""
    if not object_code.startswith(_ELF):
        return object_code.startswith(_STARTS)
    if len(object_code) < _ELF_HEADER_NBYTES:
        return False
    (table,) = struct.unpack_from("<Q", object_code, 40)
    entry_nbytes, count = struct.unpack_from("<HH", object_code, 58)
    return 0 < table <= table + entry_nbytes * count <= len(object_code)


@contextmanager
def linked_by_llvm() -> Iterator[None]:
    """Leave the linking of objects that are loaded meanwhile, in this thread, to LLVM."""
    token = _BY_LLVM.set(True)
    try:
        yield
    finally:
        _BY_LLVM.reset(token)


def _linked(object_code: bytes) -> CompiledModule | Rejection:
    if sys.platform == "linux":
        if _BY_LLVM.get() or not environment_value("ORT_SHORT_CUTS"):
            return Rejection("short cuts are switched off")
        from ort_core.cpu.codegen.machine_code.linked_objects_linux import link  # of this system

        try:
            found = link(object_code)
        except (struct.error, LookupError, ValueError) as error:
            return Rejection(f"it is not an object file as LLVM writes it: {error}")
        if isinstance(found, Rejection):
            return found
        return CompiledModule(object_code, lambda function: found.functions.get(function, 0), found)
    return Rejection("object files are linked here on Linux only")
