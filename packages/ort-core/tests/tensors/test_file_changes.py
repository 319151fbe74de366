"""A file that was written again is another one, whatever times its writer gave it."""

from __future__ import annotations

import os
import time
from pathlib import Path

from ort_core.file_changes import changed_ns
from ort_core.session_api.file_identity import identity_of
from ort_core.tensors.mapped_files import map_file

SECONDS = 1_000_000_000


def write_again(path: Path, content: bytes) -> None:
    """Write into a file in place, and give it its old times."""
    status = path.stat()
    time.sleep(0.05)  # clocks of files tick every 10 ms
    with path.open("r+b") as file:
        file.write(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def test_content_written_in_place_shows_although_the_time_of_content_is_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(b"first")
    before, identity = path.stat(), identity_of(path)
    changed = changed_ns(path, before)
    write_again(path, b"other")
    after = path.stat()
    assert (after.st_size, after.st_mtime_ns, after.st_ino) == (before.st_size, before.st_mtime_ns, before.st_ino)
    assert changed_ns(path, after) > changed
    assert identity_of(path) != identity


def test_path_and_descriptor_tell_the_same_time(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(b"content")
    told = changed_ns(path, path.stat())
    with path.open("rb") as file:
        assert changed_ns(file.fileno(), os.fstat(file.fileno())) == told
    assert abs(told - time.time_ns()) < 60 * SECONDS


def test_time_of_a_file_that_cannot_be_read_is_the_one_of_its_status(tmp_path: Path) -> None:
    status = tmp_path.stat()
    assert changed_ns(tmp_path / "absent", status) == status.st_ctime_ns


def test_mapping_of_a_file_written_in_place_is_a_new_one(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(b"first")
    held = map_file(path)
    write_again(path, b"other")
    found = map_file(path)
    assert found.obj is not held.obj
    assert bytes(found) == b"other"
