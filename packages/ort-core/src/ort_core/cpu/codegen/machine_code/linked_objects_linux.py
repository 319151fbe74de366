"""Object files made callable without LLVM, on Linux: sections laid one behind the other, addresses filled in.

The files are those that LLVM writes for the large code model of x86-64: position-independent functions and constants,
which reach each other by their distance from a table of addresses (``_GLOBAL_OFFSET_TABLE_``) and the C library through
that table. So there is little to link; importing LLVM for it takes 0.1 s and 45 MB. What is not among the few sections
and relocations here is left to LLVM's own loader.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import struct
import sys
import weakref
from collections.abc import Mapping, Sequence

from ort_core.plugin import Rejection, frozen

assert sys.platform == "linux"

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QIIq")  # place, kind, symbol, addend
_WORD = struct.Struct("<q")
_X86_64, _RELOCATABLE = 62, 1
_PROGBITS, _SYMTAB, _RELA, _UNWIND = 1, 2, 4, 0x70000001
_WRITE, _ALLOCATED = 1, 2
_TABLE = b"_GLOBAL_OFFSET_TABLE_"
_RELATIVE, _FROM_TABLE, _ENTRY_FROM_TABLE, _TABLE_RELATIVE = _KINDS = 24, 25, 27, 29  # all of 64 bits
_PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
_IN_PLACE = mmap.MAP_PRIVATE | 0x10  # MAP_FIXED
_MFD_EXEC = 0x10  # since Linux 6.3, which may refuse to execute such files otherwise; older ones refuse the flag
_RUNNABLE = mmap.PROT_READ | mmap.PROT_EXEC
_FAILED = ctypes.c_void_p(-1).value


@frozen
class _Section:
    kind: int
    flags: int
    offset: int
    nbytes: int
    link: int
    target: int  # of relocations: the section that they change
    alignment: int


@frozen
class _Symbol:
    name: bytes
    section: int  # 0: found elsewhere
    value: int


@frozen
class _Relocation:
    at: int
    kind: int
    symbol: _Symbol
    addend: int


class LinkedObject:
    """Functions in executable memory, which is given back with this object."""

    __slots__ = ("__weakref__", "functions")

    def __init__(self, functions: Mapping[str, int]) -> None:
        self.functions = functions


def link(object_code: bytes) -> LinkedObject | Rejection:
    """Return the functions of an object file, ready to be called, or why that needs LLVM.

    Constants lie in the same memory as the code: it can be read and executed, and no longer be written.

    Raises:
        struct.error, LookupError, ValueError: the bytes are not an object file, or a cut one.
    """
    magic, kind, machine, *_ = header = _HEADER.unpack_from(object_code)  # the table of sections: 6 and 12
    if magic[:6] != b"\x7fELF\x02\x01" or (kind, machine) != (_RELOCATABLE, _X86_64):
        return Rejection("it is not a relocatable ELF file for x86-64")
    sections = _sections(object_code, header[6], header[12])
    symbols = _symbols(object_code, sections)
    kept = [number for number, section in enumerate(sections) if section.flags & _ALLOCATED and section.nbytes]
    kept = [number for number in kept if sections[number].kind != _UNWIND]  # nothing unwinds through these functions
    if any(sections[number].kind != _PROGBITS or sections[number].flags & _WRITE for number in kept):
        return Rejection("it has variables")
    places, end = {}, 0
    for number in kept:
        places[number] = _aligned(end, sections[number].alignment)
        end = places[number] + sections[number].nbytes
    relocations = [
        _Relocation(places[section.target] + offset, kind, symbols[symbol], addend)
        for section in sections
        if section.kind == _RELA and section.target in places
        for offset, kind, symbol, addend in _RELOCATION.iter_unpack(_content(object_code, section))
    ]
    unknown = next((each for each in relocations if each.kind not in _KINDS), None)
    if unknown is not None:
        return Rejection(f"it has a relocation of kind {unknown.kind} of the symbol {unknown.symbol.name!r}")
    outside = _outside(symbols)
    if isinstance(outside, Rejection):
        return outside
    content = bytearray(end)
    for number, at in places.items():
        content[at : at + sections[number].nbytes] = _content(object_code, sections[number])
    return _placed(content, symbols, places, relocations, outside)


def _placed(
    content: bytearray, symbols: Sequence[_Symbol], places: Mapping[int, int], relocations: Sequence[_Relocation],
    outside: Mapping[_Symbol, int],
) -> LinkedObject | Rejection:  # fmt: skip
    """Put sections and, behind them, the table of addresses into memory of their own, and fill in all addresses."""
    table = _aligned(len(content), _WORD.size)
    through_table = dict.fromkeys(each.symbol for each in relocations if each.kind == _ENTRY_FROM_TABLE)
    entries = {symbol: table + _WORD.size * index for index, symbol in enumerate(through_table)}
    image = content.ljust(table + _WORD.size * (len(entries) + 1), b"\0")
    start = _library().mmap(None, len(image), mmap.PROT_READ | mmap.PROT_WRITE, _PRIVATE, -1, 0)
    if start == _FAILED:
        return Rejection(f"the system gives no memory (errno {ctypes.get_errno()})")
    own = {each: start + places[each.section] + each.value for each in symbols if each.section in places}
    found = LinkedObject({symbol.name.decode(): at for symbol, at in own.items() if symbol.name})
    # Not at the end of the process: threads may still stand in the code.
    weakref.finalize(found, _library().munmap, start, len(image)).atexit = False
    addresses = {**outside, **own, **{each: start + table for each in symbols if each.name == _TABLE}}
    for symbol, at in entries.items():
        _WORD.pack_into(image, at, addresses[symbol])
    for each in relocations:
        if each.kind == _ENTRY_FROM_TABLE:
            value = entries[each.symbol] - table
        else:
            value = addresses[each.symbol] - start - (table if each.kind == _FROM_TABLE else each.at)
        _WORD.pack_into(image, each.at, value + each.addend)
    ctypes.memmove(start, bytes(image), len(image))
    if not _library().mprotect(start, len(image), _RUNNABLE) or _is_mapped_from_file(bytes(image), start):
        return found
    return Rejection("the system does not let memory be executed that was written")


def can_execute() -> bool:
    """Return whether the system lets memory be executed that was written, which LLVM's own loader takes for granted.

    Hardened services (``MemoryDenyWriteExecute`` of systemd, ``PR_SET_MDWE``, SELinux's ``deny_execmem``) may not.
    """
    library, nbytes = _library(), mmap.PAGESIZE
    start = library.mmap(None, nbytes, mmap.PROT_READ | mmap.PROT_WRITE, _PRIVATE, -1, 0)
    if start == _FAILED:
        return True  # another matter: whoever asks for more is told
    found = library.mprotect(start, nbytes, _RUNNABLE) == 0
    library.munmap(start, nbytes)
    return found


def _is_mapped_from_file(image: bytes, start: int) -> bool:
    """Map code from a file in memory, where it may not become executable once it could be written; tell whether it is.

    Such a mapping could never be written.
    """
    try:
        try:
            file = os.memfd_create("ort-code", os.MFD_CLOEXEC | _MFD_EXEC)
        except OSError:
            file = os.memfd_create("ort-code", os.MFD_CLOEXEC)
    except OSError:
        return False
    try:
        written = 0
        while written < len(image):
            written += os.write(file, image[written:])
        return bool(_library().mmap(start, len(image), _RUNNABLE, _IN_PLACE, file, 0) == start)
    except OSError:
        return False
    finally:
        os.close(file)


def _content(object_code: bytes, section: _Section) -> bytes:
    found = object_code[section.offset : section.offset + section.nbytes]
    if len(found) < section.nbytes:
        raise ValueError("a section is cut")
    return found


def _sections(object_code: bytes, offset: int, count: int) -> list[_Section]:
    found = [_SECTION.unpack_from(object_code, offset + _SECTION.size * index) for index in range(count)]
    return [
        _Section(kind, flags, offset, nbytes, link, target, alignment)
        for _, kind, flags, _, offset, nbytes, link, target, alignment, _ in found
    ]


def _symbols(object_code: bytes, sections: Sequence[_Section]) -> list[_Symbol]:
    (symtab,) = (section for section in sections if section.kind == _SYMTAB)
    names = _content(object_code, sections[symtab.link])
    return [
        _Symbol(names[name : names.index(b"\0", name)], section, value)
        for name, _, _, section, value, _ in _SYMBOL.iter_unpack(_content(object_code, symtab))
    ]


def _outside(symbols: Sequence[_Symbol]) -> dict[_Symbol, int] | Rejection:
    """Return the addresses of what the file only names, in what this process has loaded."""
    found = {}
    for symbol in symbols:
        if symbol.section or symbol.name in (b"", _TABLE):
            continue
        function = getattr(_library(), symbol.name.decode(), None)
        address = None if function is None else ctypes.cast(function, ctypes.c_void_p).value
        if address is None:
            return Rejection(f"this process has no function {symbol.name.decode()}")
        found[symbol] = address
    return found


@functools.cache
def _library() -> ctypes.CDLL:
    """Return what this process has loaded: the C library, and all that it needs."""
    library = ctypes.CDLL(None, use_errno=True)
    address, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    library.mmap.restype, library.mmap.argtypes = address, (address, size, number, number, number, ctypes.c_long)
    library.munmap.argtypes, library.mprotect.argtypes = (address, size), (address, size, number)
    return library


def _aligned(nbytes: int, alignment: int) -> int:
    return -(-nbytes // max(1, alignment)) * max(1, alignment)
