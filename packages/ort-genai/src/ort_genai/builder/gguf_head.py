"""The head of a GGUF file, walked once before it is read: whether its counts and lengths fit into the file.

The reader of the package ``gguf`` trusts them: behind the end of a file it finds empty arrays, as many as an array says
that it has entries. The layout: magic, version, number of tensors, number of key-values; then key-values (a text, a
type, a value), then tensors (a text, number of axes, axes, type, offset). A text is a length and bytes.
"""

from __future__ import annotations

import mmap
import struct
import sys
from pathlib import Path

from ort_genai.errors import InvalidModelFolder

_WIDTHS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # bytes of each type of a number
_TEXT, _ARRAY = 8, 9
_MOST_AXES = 8


def check_head(path: Path) -> None:
    """Refuse a file whose head claims more than there is.

    Raises:
        InvalidModelFolder: it does.
        OSError: it cannot be opened.
    """
    with path.open("rb") as opened:
        size = path.stat().st_size
        if size < 24:
            raise InvalidModelFolder(f"{str(path)!r} cannot be read as GGUF: it has {size} bytes, and its head more")
        with mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data:
            _Walk(data, path).check()


class _Walk:
    """A place in the head that goes on."""

    def __init__(self, data: mmap.mmap, path: Path) -> None:
        self._data, self._path, self._at = data, path, 8

    def check(self) -> None:
        if struct.unpack_from("=I", self._data, 4)[0] & 0xFFFF == 0:  # the reader would take numbers for others
            self._refuse(f"numbers of another byte order than {sys.byteorder}-endian; gguf-convert-endian changes it")
        tensors, values = self._number(8), self._number(8)
        for _ in range(values):
            self._text()
            self._value(self._number(4))
        for _ in range(tensors):
            self._text()
            axes = self._number(4)
            if axes > _MOST_AXES:
                self._refuse(f"a tensor of {axes} axes, more than {_MOST_AXES}")
            self._skip(8 * axes + 4 + 8)

    def _value(self, kind: int) -> None:
        if kind == _TEXT:
            self._text()
        elif kind == _ARRAY:
            self._array(self._number(4), self._number(8))
        else:
            self._skip(self._width(kind))

    def _array(self, kind: int, count: int) -> None:
        if kind == _ARRAY:
            self._refuse("an array of arrays, which no model has")
        if kind != _TEXT:
            self._skip(count * self._width(kind))
            return
        for _ in range(count):
            self._text()

    def _width(self, kind: int) -> int:
        if kind not in _WIDTHS:
            self._refuse(f"a value of type {kind}, which is not known")
        return _WIDTHS[kind]

    def _text(self) -> None:
        self._skip(self._number(8))

    def _number(self, width: int) -> int:
        start = self._at
        self._skip(width)
        return int(struct.unpack_from("=I" if width == 4 else "=Q", self._data, start)[0])

    def _skip(self, count: int) -> None:
        if count > len(self._data) - self._at:
            self._refuse(f"{count} bytes more at {self._at}, of {len(self._data)}: it is cut, or broken")
        self._at += count

    def _refuse(self, why: str) -> None:
        raise InvalidModelFolder(f"{str(self._path)!r} cannot be read as GGUF: its head holds {why}")
