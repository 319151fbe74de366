"""Rows of input files, streamed: Parquet, CSV, JSON lines, .npz, or a folder of images.

A row is a mapping from column to value. How columns become a model's inputs is said in ``columns``.
"""

from __future__ import annotations

import csv
import itertools
import json
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ort_serve.failures import InvalidRequest

Row = Mapping[str | None, Any]
UNREADABLE = None  # the column that holds why a row could not be read; no file has a column without a name
IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff")
_PARQUET_ROWS = 1024  # read at once
_LONGEST_FIELD = 1 << 30  # of CSV: a field may hold all elements of a tensor


def read_rows(path: Path, start: int) -> Iterator[Row]:
    """Yield the rows of a file from row ``start`` on, without holding more than a few of them.

    Raises:
        InvalidRequest: the file is of no kind that is read here, or cannot be read.
    """
    if path.is_dir():
        return itertools.islice(_images(path), start, None)
    reader = {".parquet": _parquet, ".csv": _csv, ".jsonl": _json_lines, ".ndjson": _json_lines, ".npz": _npz}.get(
        path.suffix.lower()
    )
    if reader is None:
        raise InvalidRequest(f"{path}: rows are read from .parquet, .csv, .jsonl, .ndjson, .npz or a folder of images")
    if not path.is_file():
        raise InvalidRequest(f"there is no {path}")
    return _told(path, reader(path, start))


def count_rows(path: Path, *, is_needed: bool = False) -> int | None:
    """Return how many rows there are.

    Args:
        path: the file or folder.
        is_needed: read it through where they are not known otherwise, rather than return None.
    """
    if path.is_dir():
        return sum(1 for _ in _image_paths(path))
    if path.suffix.lower() == ".parquet":
        import pyarrow.parquet

        return int(pyarrow.parquet.ParquetFile(path).metadata.num_rows)
    return sum(1 for _ in read_rows(path, 0)) if is_needed else None


def _told(path: Path, rows: Iterator[Row]) -> Iterator[Row]:
    try:
        yield from rows
    except (UnicodeDecodeError, csv.Error, zipfile.BadZipFile, OSError, ValueError) as error:
        if isinstance(error, InvalidRequest):
            raise
        raise InvalidRequest(f"{path} cannot be read: {error}") from error


def _parquet(path: Path, start: int) -> Iterator[Row]:
    import pyarrow.parquet

    file = pyarrow.parquet.ParquetFile(path)
    at = 0
    for group in range(file.num_row_groups):
        rows = file.metadata.row_group(group).num_rows
        if at + rows <= start:  # whole groups are passed over unread
            at += rows
            continue
        for batch in file.iter_batches(_PARQUET_ROWS, row_groups=[group]):
            if at + batch.num_rows > start:
                yield from batch.slice(max(start - at, 0)).to_pylist()
            at += batch.num_rows


def _csv(path: Path, start: int) -> Iterator[Row]:
    csv.field_size_limit(_LONGEST_FIELD)
    with path.open(newline="", encoding="utf-8-sig") as file:
        for row in itertools.islice(csv.DictReader(file), start, None):
            if None in row:
                yield {UNREADABLE: f"{len(row[None])} fields stand behind the last column"}
            else:
                yield row


def _json_lines(path: Path, start: int) -> Iterator[Row]:
    with path.open(encoding="utf-8") as file:
        lines = (line for line in file if line.strip())
        for line in itertools.islice(lines, start, None):
            try:
                found = json.loads(line)
            except (ValueError, RecursionError) as error:
                yield {UNREADABLE: f"not JSON: {error}"}
                continue
            yield found if isinstance(found, dict) else {"*": found}


def _npz(path: Path, start: int) -> Iterator[Row]:
    with zipfile.ZipFile(path) as archive:
        members = [_Member(archive, name) for name in archive.namelist() if name.endswith(".npy")]
        counts = {member.rows for member in members}
        if len(counts) != 1 or -1 in counts:
            raise InvalidRequest(f"{path}: the first axis of every array is the row; found lengths {sorted(counts)}")
        for member in members:
            member.skip(start)
        for _ in range(start, counts.pop()):
            yield {member.name: member.next_row() for member in members}


class _Member:
    """One array of an archive, read row by row."""

    def __init__(self, archive: zipfile.ZipFile, name: str) -> None:
        self.name = name.removesuffix(".npy")
        self._file = archive.open(name)
        major = np.lib.format.read_magic(self._file)[0]
        read = np.lib.format.read_array_header_1_0 if major == 1 else np.lib.format.read_array_header_2_0
        shape, is_fortran, self._dtype = read(self._file)
        if self._dtype.hasobject:
            raise InvalidRequest(f"array {self.name!r} holds Python's objects, which are not read: save texts as such")
        self.rows = shape[0] if shape else -1
        self._shape = shape[1:]
        self._nbytes = int(np.prod(self._shape, dtype=np.int64)) * self._dtype.itemsize
        if is_fortran and len(shape) > 1:  # its rows do not lie one behind the other
            whole = np.frombuffer(self._file.read(), self._dtype).reshape(shape[::-1]).T
            self._columns: Iterator[np.ndarray] | None = iter(whole)
        else:
            self._columns = None

    def skip(self, rows: int) -> None:
        if self._columns is not None:
            next(itertools.islice(self._columns, rows, rows), None)
            return
        left = rows * self._nbytes
        while left > 0:
            part = len(self._file.read(min(left, 1 << 20)))
            if not part:
                return
            left -= part

    def next_row(self) -> np.ndarray:
        if self._columns is not None:
            return next(self._columns)
        raw = self._file.read(self._nbytes)
        if len(raw) != self._nbytes:
            raise InvalidRequest(f"array {self.name!r} ends too early")
        return np.frombuffer(raw, self._dtype).reshape(self._shape)


def _images(folder: Path) -> Iterator[Row]:
    for path in _image_paths(folder):
        yield {"file": path}


def _image_paths(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.suffix.lower() in IMAGES)
