"""The machine code of a partition as bytes: what ``CpuPartition.serialize`` gives and its provider's ``load`` takes.

A module is named by the digest of its text and target, so lowering the same graph asks for the same names: what it does
not find is compiled. Layout: a line that names the format, the SHA-256 of the rest, then for each module its name (32
bytes), the length of its object file (8 bytes, little-endian) and the file.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence

from ort_core.cpu.codegen.code_cache import adopt, names_of
from ort_core.cpu.codegen.compiled_module import CompiledModule
from ort_core.plugin import Rejection

_MAGIC = b"ort-core-cpu-code-1\n"
_DIGEST_NBYTES = 32
_ENTRY = struct.Struct(f"<{_DIGEST_NBYTES}sQ")


def encode_modules(modules: Sequence[CompiledModule]) -> bytes:
    """Return the object files of modules, each once, in the order of their names."""
    named = sorted(names_of(modules).items())
    content = b"".join(_ENTRY.pack(name, len(module.object_code)) + module.object_code for name, module in named)
    return _MAGIC + hashlib.sha256(content).digest() + content


def adopted(blob: bytes) -> list[CompiledModule] | Rejection:
    """Make stored modules known to the compiler for as long as the list is held, or say why the bytes are wrong."""
    start = len(_MAGIC) + _DIGEST_NBYTES
    content = blob[start:]
    if blob[: len(_MAGIC)] != _MAGIC or hashlib.sha256(content).digest() != blob[len(_MAGIC) : start]:
        return Rejection("the bytes are not the machine code that was stored: they were cut or changed")
    modules: list[CompiledModule] = []
    at = 0
    while at < len(content):
        if at + _ENTRY.size > len(content):
            return Rejection("the list of modules ends in the middle of one")
        name, nbytes = _ENTRY.unpack_from(content, at)
        at += _ENTRY.size
        if at + nbytes > len(content):
            return Rejection("an object file is cut")
        modules.append(adopt(name, content[at : at + nbytes]))
        at += nbytes
    return modules
