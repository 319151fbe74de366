"""EntryFile: one file of the cache. A header that binds the content to its key, and the content.

The header, of fixed length so that what is aligned within the content is aligned in memory: a line (format, length of
the content, check sum, digest of the key) and, behind it, what the entry is about. The check sum is that of the check
sums of each 16 MiB of content (``piece_sum``), of the key's digest and of what the entry is about: an intact file
under the name of another key is none. Several threads check a large entry.

What is read is copied into memory of this process, and the copy is checked. Mapping the file would save the copy, but
whoever truncates a mapped file in place, as ``cp`` does with the file that it writes over, kills each process that
looks at it, and whoever writes into it changes what has been checked.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ort_core.cache.digests import check_sum
from ort_core.frozen import frozen
from ort_core.side_threads import side_threads
from ort_core.tensors.large_pages import large_memory

if TYPE_CHECKING:
    import io

FAMILY, VERSION = b"ort-core-artefact-", 5  # of this format
MAGIC = b"%s%d" % (FAMILY, VERSION)
START_NBYTES = 32
HEADER_NBYTES = 512
_LINE_NBYTES = 128
_ABOUT_NBYTES = HEADER_NBYTES - _LINE_NBYTES
PIECE_NBYTES = 1 << 20  # read and summed in turns: it lies in the second cache between both
CHUNK_NBYTES = 16 * PIECE_NBYTES  # read by one thread
_ROW_LENGTH = 2048  # words


class Damaged(ValueError):
    """A file is not the entry of its key as it was written."""


@frozen
class Head:
    """What a header states."""

    nbytes: int
    about: bytes
    header: bytes


def version_of(start: bytes) -> int | None:
    """Return the version of the format that a file starts with, ``None`` if that is no such file."""
    number = start.removeprefix(FAMILY).partition(b" ")[0]
    return int(number) if start.startswith(FAMILY) and number.isdigit() else None


def encode_about(about: str) -> bytes:
    """Return a text as it stands in a header; of one that is too long, no text is left."""
    text = about.encode("utf-8", "surrogateescape")
    return text if len(text) <= _ABOUT_NBYTES and b"\0" not in text else b""


def about_of(header: bytes) -> str:
    """Return what a header says that its entry is about."""
    return header[_LINE_NBYTES:].rstrip(b"\0").decode("utf-8", "replace")


def header_of(name: str, nbytes: int, about: bytes, sums: Sequence[int]) -> bytes:
    """Return the header of an entry of ``nbytes``, ``name`` being the digest of its key."""
    covered = b"".join((name.encode(), b"\0", about, b"\0", *(each.to_bytes(4, "little") for each in sums)))
    line = (b"%s %d %08x %s" % (MAGIC, nbytes, check_sum(covered), name.encode())).ljust(_LINE_NBYTES - 1) + b"\n"
    return line + about.ljust(_ABOUT_NBYTES, b"\0")


def read_head(descriptor: int, file_nbytes: int) -> Head:
    """Read what the header says, not yet checked.

    Raises:
        Damaged: there is no header, or the length in it is not that of the file.
    """
    header = os.read(descriptor, HEADER_NBYTES)
    words = header[:_LINE_NBYTES].split()
    if len(header) != HEADER_NBYTES or len(words) != 4 or words[0] != MAGIC or not words[1].isdigit():
        raise Damaged("it has no header")
    if int(words[1]) != file_nbytes - HEADER_NBYTES:
        raise Damaged(f"it should have {int(words[1])} bytes and has {file_nbytes - HEADER_NBYTES}")
    return Head(int(words[1]), header[_LINE_NBYTES:].rstrip(b"\0"), header)


def read_content(descriptor: int, head: Head, name: str) -> mmap.mmap | bytes:
    """Return the content in memory of its own, which begins at a page, after checking it.

    Raises:
        Damaged: the content, or the key, is not what the header was written for.
        OSError: the file cannot be read.
    """
    if not head.nbytes:
        content, sums = None, [0]
    else:
        content = large_memory(head.nbytes)
        sums = _read(descriptor, memoryview(content))
    if header_of(name, head.nbytes, head.about, sums) != head.header:
        raise Damaged("its check sum is another, or it belongs to another key")
    return content if content is not None else b""


def write_entry(file: io.FileIO, name: str, about: bytes, parts: Sequence[bytes | memoryview]) -> None:
    """Write an entry into an empty file, its content in parts.

    Raises:
        OSError: it does not take all.
    """
    file.write(bytes(HEADER_NBYTES))
    sums = _write(file, parts)
    file.seek(0)
    file.write(header_of(name, sum(map(len, parts)), about, sums))


def _read(descriptor: int, content: memoryview) -> list[int]:
    """Fill the content and return the check sum of each chunk of it; one chunk more than are full, as in ``_write``."""
    starts = range(0, len(content) + 1, CHUNK_NBYTES)
    if len(starts) == 1 or not hasattr(os, "preadv"):
        return [_read_chunk(descriptor, content, start) for start in starts]
    with side_threads(min(4, os.cpu_count() or 1)) as pool:
        return list(pool.map(lambda start: _read_chunk(descriptor, content, start), starts))


def _read_chunk(descriptor: int, content: memoryview, start: int) -> int:
    found, end = 0, min(start + CHUNK_NBYTES, len(content))
    for at in range(start, end, PIECE_NBYTES):
        piece = content[at : min(at + PIECE_NBYTES, end)]
        _read_piece(descriptor, piece, HEADER_NBYTES + at)
        found = piece_sum(piece, found)
    return found


def _read_piece(descriptor: int, piece: memoryview, at: int) -> None:
    while len(piece):
        if hasattr(os, "preadv"):
            count = os.preadv(descriptor, [piece], at)
        else:
            os.lseek(descriptor, at, os.SEEK_SET)  # Windows; one thread reads there
            part = os.read(descriptor, len(piece))
            count = len(part)
            piece[:count] = part
        if not count:
            raise Damaged("it became shorter while it was read")
        piece, at = piece[count:], at + count


def piece_sum(piece: memoryview, start: int = 0) -> int:
    """Return what tells damage in a piece, behind those whose sum is ``start``.

    Of a whole piece, taken for a table of words, it is the CRC-32 of the sums of all rows and of all columns: any
    changed word shows, and any two words or rows that changed places. It takes a fifth of the time of a CRC-32 of all.
    """
    if len(piece) != PIECE_NBYTES:
        return check_sum(piece, start)
    words = np.frombuffer(piece, np.uint64).reshape(-1, _ROW_LENGTH)
    return check_sum(np.add.reduce(words, 0).data, check_sum(np.add.reduce(words, 1).data, start))


def _write(file: io.FileIO, parts: Sequence[bytes | memoryview]) -> list[int]:
    """Write the parts behind each other and return the check sum of each chunk of them."""
    sums, found = [0], 0
    for piece in _pieces(parts):
        rest = piece
        while len(rest):
            rest = rest[file.write(rest) :]
        sums[-1] = piece_sum(piece, sums[-1])
        found += len(piece)
        if found % CHUNK_NBYTES == 0:
            sums.append(0)
    return sums


def _pieces(parts: Sequence[bytes | memoryview]) -> Iterator[memoryview]:
    """Yield the joined parts in pieces, all but the last whole; copies what two parts share."""
    shared = bytearray()
    for part in parts:
        rest = memoryview(part).cast("B")
        if shared:
            taken = PIECE_NBYTES - len(shared)
            shared += rest[:taken]
            rest = rest[taken:]
            if len(shared) < PIECE_NBYTES:
                continue
            yield memoryview(bytes(shared))
            shared.clear()
        whole = len(rest) // PIECE_NBYTES * PIECE_NBYTES
        for at in range(0, whole, PIECE_NBYTES):
            yield rest[at : at + PIECE_NBYTES]
        shared += rest[whole:]
    if shared:
        yield memoryview(bytes(shared))
