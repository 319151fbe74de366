"""A file is mapped once for all who hold it at the same time, and anew when it is another file or was changed."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import numpy as np
import pytest

from ort_core.tensors import mapped_files
from ort_core.tensors.mapped_files import map_file, map_place, place_of


def _address(content: memoryview) -> int:
    return np.frombuffer(content, np.uint8).ctypes.data


def test_two_who_hold_a_file_see_it_at_one_address(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(b"content")
    first, second = map_file(path), map_file(path)
    assert bytes(first) == b"content"
    assert first.readonly
    assert _address(first) == _address(second)


def test_a_replaced_file_is_mapped_anew_and_the_old_one_stays_as_it_was(tmp_path: Path) -> None:
    path, other = tmp_path / "weights", tmp_path / "other"
    path.write_bytes(b"content")
    old = map_file(path)
    if os.name == "nt":  # there a file that is mapped cannot be replaced
        path = other
    other.write_bytes(b"CONTENT")
    other.replace(path)
    new = map_file(path)
    assert (bytes(old), bytes(new)) == (b"content", b"CONTENT")
    assert _address(old) != _address(new)


def test_a_file_changed_in_place_is_another(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(b"content")
    first = map_file(path)
    os.utime(path, ns=(1, 1))
    assert _address(map_file(path)) != _address(first)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no time of change that programs cannot set")
def test_a_file_changed_in_place_whose_time_was_set_back_is_another(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(b"content")
    os.utime(path, ns=(1, 1))
    first = map_file(path)
    time.sleep(0.02)  # the clock of files ticks every 4 to 10 ms
    with path.open("r+b") as file:
        file.write(b"CONTENT")
    os.utime(path, ns=(1, 1))
    assert _address(map_file(path)) != _address(first)


def test_what_is_mapped_tells_its_place_and_is_found_there_until_the_file_changes(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(bytes(range(100)))
    part = np.frombuffer(map_file(path), np.uint8)[30:].view(np.uint16)[:4]
    place = place_of(part)
    assert place is not None
    assert (place[0], place[2]) == (str(path), 30)
    assert bytes(map_place(place, part.nbytes)) == part.tobytes()
    assert place_of(part.copy()) is None
    with pytest.raises(OSError, match="does not have 71 bytes at 30"):
        map_place(place, 71)
    os.utime(path, ns=(1, 1))
    with pytest.raises(OSError, match="has changed"):
        map_place(place, part.nbytes)


def test_an_empty_file_is_no_bytes(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.touch()
    assert bytes(map_file(path)) == b""


def test_a_file_that_becomes_shorter_while_it_is_opened_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, stat = tmp_path / "weights", os.fstat
    path.write_bytes(bytes(100))

    def cut_behind(descriptor: int) -> os.stat_result:
        status = stat(descriptor)
        os.truncate(path, 10)
        return status

    monkeypatch.setattr(os, "fstat", cut_behind)
    with pytest.raises(OSError, match="became shorter than 100 bytes"):
        map_file(path)
    monkeypatch.setattr(mapped_files, "_FileMapping", no_memory)
    path.write_bytes(bytes(100))
    with pytest.raises(OSError, match="became shorter than 100 bytes"):
        map_file(path)


def no_memory(*_: object, **__: object) -> None:
    """Refuse a mapping that is longer than its file as Windows does."""
    raise OSError(errno.ENOMEM, "not enough memory")


def test_a_mapping_that_the_system_refuses_for_itself_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "weights"
    path.write_bytes(bytes(100))
    monkeypatch.setattr(mapped_files, "_FileMapping", no_memory)
    with pytest.raises(OSError, match="not enough memory"):
        map_file(path)
