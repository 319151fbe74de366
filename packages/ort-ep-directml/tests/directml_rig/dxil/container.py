"""The container of a shader: named parts, of which one holds LLVM bitcode and one may hold a root signature."""

from __future__ import annotations

import struct

from directml_rig.errors import UnsupportedShaderError

_HEADER = struct.Struct("<4s16sHHII")  # magic, digest, version, total bytes, number of parts
_PART = struct.Struct("<4sI")  # name, bytes
_PROGRAM = struct.Struct("<II4sIII")  # version, words; then magic, version, offset of the bitcode, its bytes


def parts_of(container: bytes) -> dict[str, bytes]:
    """Return the parts by name.

    Raises:
        UnsupportedShaderError: it is not a container.
    """
    if len(container) < _HEADER.size or container[:4] != b"DXBC":
        raise UnsupportedShaderError(f"a shader container begins with DXBC, not with {container[:4]!r}")
    count = _HEADER.unpack_from(container)[-1]
    parts = {}
    for offset in struct.unpack_from(f"<{count}I", container, _HEADER.size):
        name, nbytes = _PART.unpack_from(container, offset)
        begin = offset + _PART.size
        parts[name.decode("ascii")] = container[begin : begin + nbytes]
    return parts


def bitcode_of(container: bytes) -> bytes:
    """Return the LLVM bitcode of a shader.

    Raises:
        UnsupportedShaderError: it has none: a shader of the time before DXIL.
    """
    parts = parts_of(container)
    program = parts.get("DXIL")
    if program is None:
        raise UnsupportedShaderError(f"the shader has no DXIL, only the parts {', '.join(parts)}")
    offset, nbytes = _PROGRAM.unpack_from(program)[-2:]
    begin = 8 + offset  # counted from the second magic
    return program[begin : begin + nbytes]
