"""Rows of input files, streamed: Parquet, CSV, JSON lines, .npz, or a folder of images.

A row is a mapping from column to value. How columns become a model's inputs is said in ``columns``.
"""

from __future__ import annotations

import csv
import itertools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ort_serve.failures import InvalidRequest

Row = Mapping[str, Any]
IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff")
_PARQUET_ROWS = 1024  # read at once


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
    return reader(path, start)


def count_rows(path: Path) -> int | None:
    """Return how many rows there are where that is known without reading them."""
    if path.is_dir():
        return sum(1 for _ in _image_paths(path))
    if path.suffix.lower() == ".parquet":
        import pyarrow.parquet

        return int(pyarrow.parquet.ParquetFile(path).metadata.num_rows)
    return None


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
            for row in batch.to_pylist():
                if at >= start:
                    yield row
                at += 1


def _csv(path: Path, start: int) -> Iterator[Row]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        yield from itertools.islice(csv.DictReader(file), start, None)


def _json_lines(path: Path, start: int) -> Iterator[Row]:
    with path.open(encoding="utf-8") as file:
        lines = (line for line in file if line.strip())
        for line in itertools.islice(lines, start, None):
            try:
                found = json.loads(line)
            except (ValueError, RecursionError) as error:
                yield {"": f"not JSON: {error}"}
                continue
            yield found if isinstance(found, dict) else {"": found} if isinstance(found, str) else {"*": found}


def _npz(path: Path, start: int) -> Iterator[Row]:
    with np.load(path, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    counts = {array.shape[0] if array.ndim else -1 for array in arrays.values()}
    if len(counts) != 1 or -1 in counts:
        raise InvalidRequest(f"{path}: the first axis of every array is the row; found lengths {sorted(counts)}")
    for row in range(start, counts.pop()):
        yield {name: array[row] for name, array in arrays.items()}


def _images(folder: Path) -> Iterator[Row]:
    for path in _image_paths(folder):
        yield {"file": path}


def _image_paths(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.suffix.lower() in IMAGES)
