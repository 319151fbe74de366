"""What a job has written so far: parts of a fixed number of rows, each written whole or not at all.

A part is renamed into place when it is complete, so that a killed job loses only the part that it was at, and a job
taken up again gives each row once. The last step joins the parts into one file.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ort_core.whole_files import written_whole
from ort_serve.failures import InvalidRequest

_JOB = "job.json"


class Parts:
    """The parts of one output file.

    Args:
        output: the file that the parts become: .parquet or .jsonl.
        job: what the job is of; parts of another job are not mixed with it.
    """

    def __init__(self, output: Path, job: Mapping[str, object]) -> None:
        if output.suffix.lower() not in (".parquet", ".jsonl"):
            raise InvalidRequest(f"{output}: results are written as .parquet or .jsonl")
        self.output = output
        self.folder = output.with_name(output.name + ".parts")
        self._suffix = output.suffix.lower()
        self._open(job)

    def done(self) -> int:
        """Return how many parts are complete, counted from the first to one that is missing."""
        return next(number for number in itertools.count() if not self.has(number))

    def has(self, number: int) -> bool:
        """Return whether a part is complete. Parts behind a missing one may be: many machines write them."""
        return self._path(number).exists()

    def write(self, number: int, rows: Sequence[Mapping[str, Any]], failures: Sequence[Mapping[str, Any]]) -> None:
        """Write a part. Raises ``InvalidRequest`` where another process has joined the parts meanwhile."""
        with self._not_joined_by_others():
            if failures:
                _write_lines(self._failures(number), failures)
            write = _write_parquet if self._suffix == ".parquet" else _write_lines
            write(self._path(number), rows)

    def join(self) -> tuple[int, int]:
        """Make one file of all parts, and one of the rows that failed; return their counts of rows.

        Raises:
            InvalidRequest: another process has joined them meanwhile.
        """
        with self._not_joined_by_others():
            if not (self.folder / _JOB).exists():  # no part is there then: nothing may be made of that
                raise FileNotFoundError(self.folder / _JOB)
            return self._join()

    def _join(self) -> tuple[int, int]:
        count = self.done()
        paths = [self._path(number) for number in range(count)]
        join = _join_parquet if self._suffix == ".parquet" else _join_lines
        rows = join(self.output, paths)
        failed = [path for number in range(count) if (path := self._failures(number)).exists()]
        failures = _join_lines(self.failures_path, failed) if failed else 0
        if not failed:
            self.failures_path.unlink(missing_ok=True)  # an earlier job's
        joined = self.folder.with_name(f"{self.folder.name}.joined-{os.getpid()}")
        self.folder.rename(joined)  # at once: who sees some of the parts would take them for all
        shutil.rmtree(joined)
        return rows, failures

    @contextmanager
    def _not_joined_by_others(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            if (self.folder / _JOB).exists():
                raise
            raise InvalidRequest(
                f"another process ran the same job and has joined its parts; the results are in {self.output}"
            ) from error

    @property
    def failures_path(self) -> Path:
        """Where rows that failed stand, with the reason."""
        return self.output.with_name(self.output.stem + ".failed.jsonl")

    def _open(self, job: Mapping[str, object]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        stamp = self.folder / _JOB
        is_other = stamp.exists() and _job_of(stamp) != dict(job)
        if is_other and any(self.folder.glob("part-*")):  # without one, the other job has failed before it began
            raise InvalidRequest(
                f"{self.folder} holds parts of another job (its model, input or options differ); --restart begins anew"
            )
        if is_other or not stamp.exists():
            _replace(stamp, json.dumps(job, indent=1).encode())

    def _path(self, number: int) -> Path:
        return self.folder / f"part-{number:08d}{self._suffix}"

    def _failures(self, number: int) -> Path:
        return self.folder / f"failed-{number:08d}.jsonl"


def _job_of(stamp: Path) -> object:
    try:
        return json.loads(stamp.read_text(encoding="utf-8"))
    except ValueError:
        return None  # not what this writes


def _replace(path: Path, content: bytes) -> None:
    with written_whole(path) as place, place.open("wb") as file:  # two may write one part, the last one stays
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _write_lines(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    _replace(path, b"".join(json.dumps(row).encode() + b"\n" for row in rows))


def _write_parquet(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    import pyarrow
    import pyarrow.parquet

    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([dict(row) for row in rows]), sink)
    _replace(path, sink.getvalue().to_pybytes())


def _join_lines(output: Path, paths: Sequence[Path]) -> int:
    count = 0
    with written_whole(output) as place, place.open("wb") as file:
        for path in paths:
            with path.open("rb") as part:
                for line in part:
                    file.write(line)
                    count += 1
    return count


def _join_parquet(output: Path, paths: Sequence[Path]) -> int:
    import pyarrow
    import pyarrow.parquet

    schema = pyarrow.unify_schemas(list(_schemas(paths)), promote_options="permissive") if paths else pyarrow.schema([])
    count = 0
    with written_whole(output) as place, pyarrow.parquet.ParquetWriter(place, schema) as writer:
        for path in paths:
            table = pyarrow.parquet.read_table(path)
            if table.num_rows:
                writer.write_table(table.cast(schema))
                count += table.num_rows
    return count


def _schemas(paths: Sequence[Path]) -> Iterator[Any]:
    import pyarrow.parquet

    for path in paths:
        found = pyarrow.parquet.read_schema(path)
        if len(found.names):  # a part whose rows all failed has no columns
            yield found
