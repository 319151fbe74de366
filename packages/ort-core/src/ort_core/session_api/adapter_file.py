"""The file format of adapters (``.onnx_adapter``): named tensors in a FlatBuffer with the identifier ``TORT``.

Two tables: Adapter (format, adapter and model version, parameters) and Parameter (name, dims, element type, bytes).
Offsets in a file are never trusted: reading outside the content is an error, not a crash.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping

import numpy as np

from ort_core.errors import InvalidAdapter, InvalidArgument
from ort_core.ir.types import DataType
from ort_core.tensors.packing import pack_bits, unpack_bits

FORMAT_VERSION = 1
_IDENTIFIER = b"TORT"
_MAX_PARAMETERS = 1 << 20  # far above any adapter; bounds what a broken count can make us do


def write_adapter(adapter_version: int, model_version: int, parameters: Mapping[str, np.ndarray]) -> bytes:
    """Return the content of a file."""
    writer = _Writer()
    writer.content += struct.pack("<I", 0) + _IDENTIFIER
    root = writer.table((4, 4, 4, 4))
    writer.point(0, root.start)
    for index, version in enumerate((FORMAT_VERSION, adapter_version, model_version)):
        struct.pack_into("<i", writer.content, root.fields[index], version)
    vector = writer.vector(len(parameters), 4, bytes(4 * len(parameters)))
    writer.point(root.fields[3], vector)
    for index, name in enumerate(sorted(parameters)):  # sorted by name: readers may search by halves
        array = parameters[name]
        table = writer.table((4, 4, 4, 4))
        writer.point(vector + 4 + 4 * index, table.start)
        text = name.encode()
        writer.point(table.fields[0], writer.vector(len(text), 1, text + b"\0"))
        writer.point(table.fields[1], writer.vector(array.ndim, 8, struct.pack(f"<{array.ndim}q", *array.shape)))
        dtype = _data_type(name, array)
        struct.pack_into("<i", writer.content, table.fields[2], int(dtype))
        raw = _to_bytes(array, dtype)
        writer.point(table.fields[3], writer.vector(len(raw), 8, raw))
    return bytes(writer.content)


def read_adapter(content: bytes | memoryview) -> tuple[int, int, int, dict[str, np.ndarray]]:
    """Return format, adapter and model version, and the parameters (views of ``content``).

    Raises:
        InvalidAdapter: the content is not an adapter.
    """
    try:
        if bytes(content[4:8]) != _IDENTIFIER:
            raise ValueError(f"the identifier is {bytes(content[4:8])!r}, expected {_IDENTIFIER!r}")
        reader = _Reader(memoryview(content))
        root = reader.target(0)
        versions = [reader.number(root, index) for index in range(3)]
        found: dict[str, np.ndarray] = {}
        for table in reader.tables(root, 3):
            name = bytes(reader.vector(table, 0, 1)).decode()
            shape = np.frombuffer(reader.vector(table, 1, 8), "<i8").tolist()
            found[name] = _from_bytes(reader.vector(table, 3, 1), DataType(reader.number(table, 2)), shape)
    except (ValueError, struct.error, IndexError, OverflowError) as error:
        raise InvalidAdapter(f"the content does not appear to be a valid lora parameter format: {error}") from error
    return versions[0], versions[1], versions[2], found


def _data_type(name: str, array: np.ndarray) -> DataType:
    if array.dtype.kind == "O":
        raise InvalidArgument(f"adapter parameter {name!r} is a tensor of strings; adapters hold numbers")
    return DataType.from_numpy(array.dtype)


def _to_bytes(array: np.ndarray, dtype: DataType) -> bytes:
    flat = np.ascontiguousarray(array).reshape(-1)
    return (pack_bits(flat.view(np.uint8), dtype.bits) if dtype.bits < 8 else flat).tobytes()


def _from_bytes(raw: memoryview, dtype: DataType, shape: list[int]) -> np.ndarray:
    count = math.prod(shape)
    if not dtype.bits or any(size < 0 for size in shape) or len(raw) != -(-count * dtype.bits // 8):
        sizes = ", ".join(map(str, shape[:8])) + (", …" if len(shape) > 8 else "")
        raise ValueError(f"{len(raw)} bytes do not make a tensor({dtype.text}) of shape [{sizes}]")
    flat = np.frombuffer(raw, np.uint8)
    return (unpack_bits(flat, dtype, count) if dtype.bits < 8 else flat.view(dtype.numpy)).reshape(shape)


class _Table:
    def __init__(self, start: int, fields: list[int]) -> None:
        self.start, self.fields = start, fields


class _Writer:
    """Appends parts in order, parents first: an offset in a FlatBuffer points forward."""

    def __init__(self) -> None:
        self.content = bytearray()

    def table(self, sizes: tuple[int, ...]) -> _Table:
        """Append a table with its layout in front of it."""
        self._align(4)
        layout = len(self.content)
        inner = 4 + sum(sizes)
        offsets = [4 + sum(sizes[:index]) for index in range(len(sizes))]
        self.content += struct.pack(f"<HH{len(sizes)}H", 4 + 2 * len(sizes), inner, *offsets)
        self._align(4)
        start = len(self.content)
        self.content += struct.pack("<i", start - layout) + bytes(sum(sizes))
        return _Table(start, [start + offset for offset in offsets])

    def vector(self, count: int, alignment: int, content: bytes) -> int:
        """Append a vector and return where its count stands."""
        while len(self.content) % 4 or (len(self.content) + 4) % alignment:
            self.content.append(0)
        start = len(self.content)
        self.content += struct.pack("<I", count) + content
        return start

    def point(self, place: int, target: int) -> None:
        """Write the offset from a place to what it refers to."""
        struct.pack_into("<I", self.content, place, target - place)

    def _align(self, alignment: int) -> None:
        self.content += bytes(-len(self.content) % alignment)


class _Reader:
    """Reads tables and vectors; every access is inside the content or raises."""

    def __init__(self, content: memoryview) -> None:
        self._content = content

    def target(self, place: int) -> int:
        """Return what the offset at a place refers to."""
        return place + struct.unpack_from("<I", self._content, place)[0]

    def field(self, table: int, index: int) -> int | None:
        """Return where a field stands, ``None`` when it is not stored."""
        layout = table - struct.unpack_from("<i", self._content, table)[0]
        if layout < 0:
            raise ValueError("a table's layout lies outside")
        if struct.unpack_from("<H", self._content, layout)[0] <= 4 + 2 * index:
            return None
        offset = struct.unpack_from("<H", self._content, layout + 4 + 2 * index)[0]
        return table + offset if offset else None

    def number(self, table: int, index: int) -> int:
        """Return an int32 field, 0 when it is not stored."""
        place = self.field(table, index)
        return 0 if place is None else struct.unpack_from("<i", self._content, place)[0]

    def vector(self, table: int, index: int, itemsize: int) -> memoryview:
        """Return the bytes of a vector field."""
        place = self.field(table, index)
        if place is None:
            return self._content[:0]
        start = self.target(place)
        nbytes = struct.unpack_from("<I", self._content, start)[0] * itemsize
        if start + 4 + nbytes > len(self._content):
            raise ValueError("a vector ends outside")
        return self._content[start + 4 : start + 4 + nbytes]

    def tables(self, table: int, index: int) -> list[int]:
        """Return where the tables of a vector field stand."""
        place = self.field(table, index)
        if place is None:
            return []
        start = self.target(place)
        count = struct.unpack_from("<I", self._content, start)[0]
        if count > _MAX_PARAMETERS:
            raise ValueError(f"{count} parameters")
        return [self.target(start + 4 + 4 * item) for item in range(count)]
