"""Reading FlatBuffers tables: offsets into one buffer, each checked; what a file cannot hold is refused.

A table begins with the signed distance back to its vtable, which lists where each field lies, in the order of the
schema, from the table's start; 0 means that the field has its default. Strings, vectors and tables are reached by
unsigned distances from where they are named. All numbers are little-endian.
"""

from __future__ import annotations

import struct

import numpy as np

from ort_core.errors import InvalidProtobuf

_U16, _U32, _I32 = struct.Struct("<H"), struct.Struct("<I"), struct.Struct("<i")
_CODES = {"i8": "<b", "u8": "<B", "i32": "<i", "u32": "<I", "i64": "<q", "f32": "<f"}
_NUMBERS = {name: struct.Struct(code) for name, code in _CODES.items()}
_SMALLEST_TABLE = 4  # bytes: a table is at least the distance to its vtable


class Buffer:
    """The bytes of a file, the strings found in it, and how many tables it may still give.

    A file holds no more tables than its bytes have room for; one that is named again and again is no honest file.
    """

    def __init__(self, content: bytes | memoryview) -> None:
        self.content = memoryview(content)
        self._tables_left = len(self.content) // _SMALLEST_TABLE + 1
        self._strings: dict[int, bytes] = {}

    def root(self) -> Table:
        """Return the table that the file is."""
        return self.table(0)

    def table(self, at: int) -> Table:
        """Return the table that is named at a position."""
        self._tables_left -= 1
        if self._tables_left < 0:
            raise InvalidProtobuf("the file names more tables than it has room for")
        return Table(self, at + self.number(_U32, at))

    def number(self, kind: struct.Struct, at: int) -> int:
        """Return an integer at a position.

        Raises:
            InvalidProtobuf: it lies outside the file.
        """
        self._check(at, kind.size)
        found: int = kind.unpack_from(self.content, at)[0]
        return found

    def string(self, at: int) -> bytes:
        """Return the string that is named at a position."""
        start = at + self.number(_U32, at)
        if start not in self._strings:
            length = self.number(_U32, start)
            self._check(start + 4, length)
            self._strings[start] = bytes(self.content[start + 4 : start + 4 + length])
        return self._strings[start]

    def vector(self, at: int, itemsize: int) -> tuple[int, int]:
        """Return where the vector that is named at a position begins, and how many items it has."""
        start = at + self.number(_U32, at)
        count = self.number(_U32, start)
        self._check(start + 4, count * itemsize)
        return start + 4, count

    def _check(self, at: int, nbytes: int) -> None:
        if at < 0 or at + nbytes > len(self.content):
            raise InvalidProtobuf(f"the file ends within its tables: {nbytes} bytes at {at} of {len(self.content)}")


class Table:
    """One table; fields are named by their number in the schema, from 0."""

    def __init__(self, buffer: Buffer, at: int) -> None:
        self._buffer, self._at = buffer, at
        self._fields = at - buffer.number(_I32, at)
        self._nbytes = buffer.number(_U16, self._fields)

    def _where(self, field: int) -> int | None:
        slot = 4 + 2 * field
        if slot + 2 > self._nbytes:
            return None
        distance = self._buffer.number(_U16, self._fields + slot)
        return self._at + distance if distance else None

    def number(self, field: int, kind: str = "i32", default: float = 0) -> float:
        """Return a number: ``i8``, ``u8``, ``i32``, ``u32``, ``i64`` or ``f32``."""
        at = self._where(field)
        return default if at is None else self._buffer.number(_NUMBERS[kind], at)

    def integer(self, field: int, kind: str = "i32", default: int = 0) -> int:
        """Return an integer."""
        return int(self.number(field, kind, default))

    def string(self, field: int) -> bytes:
        """Return a string as bytes, empty when there is none."""
        at = self._where(field)
        return b"" if at is None else self._buffer.string(at)

    def table(self, field: int) -> Table | None:
        """Return a table, ``None`` when there is none."""
        at = self._where(field)
        return None if at is None else self._buffer.table(at)

    def tables(self, field: int) -> list[Table]:
        """Return a vector of tables."""
        return [self._buffer.table(at) for at in self._items(field)]

    def strings(self, field: int) -> list[bytes]:
        """Return a vector of strings."""
        return [self._buffer.string(at) for at in self._items(field)]

    def array(self, field: int, dtype: str) -> np.ndarray:
        """Return a vector of numbers, not copied; ``dtype`` is numpy's, little-endian."""
        at = self._where(field)
        if at is None:
            return np.empty(0, dtype)
        start, count = self._buffer.vector(at, np.dtype(dtype).itemsize)
        return np.frombuffer(self._buffer.content, dtype, count, start)

    def _items(self, field: int) -> range:
        at = self._where(field)
        if at is None:
            return range(0)
        start, count = self._buffer.vector(at, 4)
        return range(start, start + 4 * count, 4)
