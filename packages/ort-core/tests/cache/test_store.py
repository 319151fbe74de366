"""The artefact cache gives back what was put, and treats anything else as absent."""

from __future__ import annotations

import errno
import itertools
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ort_core.cache import entry_file, store
from ort_core.cache.key import CacheKey
from ort_core.cache.store import ArtefactCache

KEY = CacheKey("test", b"graph", (b"w1", b"w2"), (("sdk", "1"), ("cpu", "x")))


def test_entry_comes_back_as_it_was_put(tmp_path: Path) -> None:
    cache = ArtefactCache(tmp_path)
    assert cache.get(KEY) is None
    assert cache.put(KEY, b"content\nwith lines")
    assert cache.get(KEY) == b"content\nwith lines"


@pytest.mark.parametrize(
    "other",
    [
        CacheKey("test", b"graph2", (b"w1", b"w2"), KEY.facts),
        CacheKey("test", b"graph", (b"w1w2",), KEY.facts),
        CacheKey("test", b"graph", (b"w2", b"w1"), KEY.facts),
        CacheKey("test", b"graph", (b"w1", b"w2"), (("sdk", "2"), ("cpu", "x"))),
        CacheKey("other", b"graph", (b"w1", b"w2"), KEY.facts),
    ],
)
def test_any_difference_of_the_key_is_another_entry(tmp_path: Path, other: CacheKey) -> None:
    cache = ArtefactCache(tmp_path)
    cache.put(KEY, b"content")
    assert cache.get(other) is None


def test_order_of_facts_does_not_matter() -> None:
    assert (
        CacheKey("t", b"", (), (("a", "1"), ("b", "2"))).digest()
        == CacheKey("t", b"", (), (("b", "2"), ("a", "1"))).digest()
    )


def cache_that_met(damage: bytes, folder: Path) -> ArtefactCache:
    """Return a cache that was asked for an entry with damaged contents; the entry is gone."""
    cache = ArtefactCache(folder)
    cache.put(KEY, b"content")
    (entry,) = cache.entries()
    entry.path.write_bytes(damage)
    assert cache.get(KEY) is None
    assert not entry.path.exists()
    return cache


@pytest.mark.parametrize("damage", [b"", b"garbage", b"ort-core-artefact-1 3 00\nabc"])
def test_damaged_entry_is_removed_and_can_be_rebuilt(tmp_path: Path, damage: bytes) -> None:
    cache = cache_that_met(damage, tmp_path)
    cache.put(KEY, b"content")
    assert cache.get(KEY) == b"content"


@pytest.fixture
def removes_no_open_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse to remove a file that the cache holds open, as Windows does."""
    held: dict[int, str] = {}
    open_entry, close, unlink = store.open_entry, os.close, os.unlink

    def noted(path: str) -> tuple[int, os.stat_result]:
        found = open_entry(path)
        held[found[0]] = path
        return found

    def noted_close(descriptor: int) -> None:
        close(descriptor)
        held.pop(descriptor, None)

    def refusing(path: str) -> None:
        if path in held.values():
            raise PermissionError(errno.EACCES, "in use by another process", path)
        unlink(path)

    monkeypatch.setattr(store, "open_entry", noted)
    monkeypatch.setattr(os, "close", noted_close)
    monkeypatch.setattr(os, "unlink", refusing)


@pytest.mark.usefixtures("removes_no_open_file")
@pytest.mark.parametrize("damage", [b"garbage", entry_file.FAMILY + b"4 of another version"])
def test_damaged_entry_is_removed_where_no_open_file_can_be(tmp_path: Path, damage: bytes) -> None:
    cache_that_met(damage, tmp_path)


def test_flipped_bit_is_noticed(tmp_path: Path) -> None:
    cache = ArtefactCache(tmp_path)
    cache.put(KEY, bytes(1000))
    (entry,) = cache.entries()
    stored = bytearray(entry.path.read_bytes())
    stored[500] ^= 1
    entry.path.write_bytes(stored)
    assert cache.get(KEY) is None


def test_least_recently_used_entries_go_first(tmp_path: Path) -> None:
    cache = ArtefactCache(tmp_path, max_nbytes=3 * (1000 + entry_file.HEADER_NBYTES))
    keys = [CacheKey("test", bytes([i])) for i in range(4)]
    for age, key in enumerate(keys[:3]):
        cache.put(key, bytes(1000))
        os.utime(cache._path(key), (age, age))
    assert cache.get(keys[0]) is not None  # used now, so the next oldest goes
    cache.put(keys[3], bytes(1000))
    assert [cache.get(key) is not None for key in keys] == [True, False, True, True]


@pytest.mark.parametrize("version", [b"4", b"2", b"1", b"17"])
def test_entries_of_other_versions_are_made_anew_without_a_warning(
    tmp_path: Path, version: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    cache = ArtefactCache(tmp_path)
    cache.put(KEY, bytes(1000))
    (entry,) = cache.entries()
    entry.path.write_bytes(entry.path.read_bytes().replace(entry_file.MAGIC, entry_file.FAMILY + version, 1))
    with caplog.at_level("INFO"):
        assert cache.get(KEY) is None
    assert [record.levelname for record in caplog.records] == ["INFO"]
    assert "another version of ort-core" in caplog.text
    assert not entry.path.exists()
    entry.path.write_bytes(entry_file.MAGIC + b" but broken")
    assert cache.get(KEY) is None
    assert "corrupt" in caplog.text


def test_what_nobody_reads_any_more_goes_first(tmp_path: Path) -> None:
    cache = ArtefactCache(tmp_path, max_nbytes=10_000)
    keys = [CacheKey("test", bytes([i])) for i in range(3)]
    for key in keys:
        cache.put(key, bytes(1000))
    newest = Path(cache._path(keys[2]))
    newest.write_bytes(newest.read_bytes().replace(entry_file.MAGIC, entry_file.FAMILY + b"2", 1))
    half, fresh = (tmp_path / "test" / f".writing-{name}" for name in ("half", "fresh"))
    for path in (half, fresh):
        path.write_bytes(b"unfinished")
    os.utime(half, (1e9, 1e9))
    assert cache.trim() == 1
    assert [cache.get(key) is not None for key in keys] == [True, True, False]
    assert (half.exists(), fresh.exists()) == (False, True)


def test_the_environment_says_how_large_a_cache_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ArtefactCache(tmp_path).max_nbytes == 4 << 30
    monkeypatch.setenv("ORT_CACHE_MAX_NBYTES", "2500")
    for number in range(4):
        assert ArtefactCache(tmp_path).put(CacheKey("test", bytes([number])), bytes(1000))
    assert ArtefactCache(tmp_path).nbytes() <= 2500
    monkeypatch.setenv("ORT_CACHE_MAX_NBYTES", "0")
    assert not ArtefactCache(tmp_path).put(CacheKey("test", b"more"), b"content")


def test_cache_in_a_place_that_cannot_be_written_is_not_an_error(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    cache = ArtefactCache(blocked / "cache")
    assert not cache.put(KEY, b"content")
    assert cache.get(KEY) is None


def test_two_processes_writing_one_entry_leave_a_whole_one(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from ort_core.cache.key import CacheKey\n"
        "from ort_core.cache.store import *\n"
        "cache = ArtefactCache(Path(sys.argv[1]))\n"
        "key = CacheKey('test', b'shared')\n"
        "for i in range(60):\n"
        "    cache.put(key, bytes([i]) * 100_000); found = cache.get(key)\n"
        "    assert found is not None and len(set(found)) == 1\n"
    )
    workers = [subprocess.Popen([sys.executable, "-c", program, str(tmp_path)]) for _ in range(2)]
    assert [worker.wait(250) for worker in workers] == [0, 0]


def test_an_entry_larger_than_the_cache_may_be_is_not_written_and_drives_nothing_out(tmp_path: Path) -> None:
    cache, small = ArtefactCache(tmp_path, max_nbytes=2000), CacheKey("test", b"small")
    assert cache.put(small, b"x" * 500)
    assert not cache.put(CacheKey("test", b"large"), b"x" * 1000, b"x" * 1000)
    assert cache.get(small) == b"x" * 500
    assert [entry.nbytes for entry in cache.entries()] == [500 + entry_file.HEADER_NBYTES]


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="files have no owner by number on this system")
def test_entries_of_another_user_are_not_read_and_a_warning_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cache, mine = ArtefactCache(tmp_path), os.geteuid()
    assert cache.put(KEY, b"machine code")
    assert cache.get(KEY) == b"machine code"
    if mine == 0:
        os.chown(cache._path(KEY), 12_345, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: mine + 1)
    assert cache.get(KEY) is None
    assert cache.map(KEY) is None
    (record,) = (record for record in caplog.records if record.levelname == "WARNING")
    assert "ORT_CACHE_DIR" in record.getMessage()
    assert f"belongs to user {12_345 if mine == 0 else mine}," in record.getMessage()
    monkeypatch.setattr(os, "geteuid", lambda: 12_345 if mine == 0 else mine)
    assert cache.get(KEY) == b"machine code", "its own user reads it"


def test_writing_lists_the_cache_only_when_much_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = []
    entries = ArtefactCache.entries
    monkeypatch.setattr(ArtefactCache, "entries", lambda self: listed.append(1) or entries(self))
    for number in range(40):
        ArtefactCache(tmp_path, 1 << 20).put(CacheKey("test", bytes([number])), b"x" * 4000)
    assert 1 <= len(listed) <= 4, "40 entries of 4,000 bytes are two sixteenths of a mebibyte and a half"


def test_a_cache_stays_within_a_sixteenth_of_its_limit_with_many_small_writers(tmp_path: Path) -> None:
    limit = 100_000
    for number in range(300):
        ArtefactCache(tmp_path, limit).put(CacheKey("test", number.to_bytes(2, "big")), b"x" * 1000)
        assert ArtefactCache(tmp_path).nbytes() <= limit * 17 // 16 + 1000 + entry_file.HEADER_NBYTES
    assert ArtefactCache(tmp_path).nbytes() > limit // 2, "what fits stays"


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let an entry of a few thousand bytes have several pieces and chunks."""
    monkeypatch.setattr(entry_file, "PIECE_NBYTES", 512)
    monkeypatch.setattr(entry_file, "_ROW_LENGTH", 8)
    monkeypatch.setattr(entry_file, "CHUNK_NBYTES", 1024)


@pytest.mark.parametrize("nbytes", [0, 1, 511, 512, 513, 1023, 1024, 1025, 2048, 4500])
@pytest.mark.parametrize("cuts", [(), (700,), (1, 2, 513, 1024), (512, 1024), (100, 4400)])
@pytest.mark.usefixtures("small_pieces")
def test_entry_of_several_chunks_comes_back_however_it_is_cut(
    tmp_path: Path, nbytes: int, cuts: tuple[int, ...]
) -> None:
    content = np.random.default_rng(0).bytes(nbytes)
    places = [0, *(cut for cut in cuts if cut < nbytes), nbytes]
    cache = ArtefactCache(tmp_path)
    assert cache.put(KEY, *(memoryview(content)[a:b] for a, b in itertools.pairwise(places)))
    assert cache.get(KEY) == content
    (entry,) = cache.entries()
    assert entry.nbytes == nbytes + entry_file.HEADER_NBYTES


@pytest.mark.usefixtures("small_pieces")
def test_every_flipped_bit_and_every_two_words_that_changed_places_are_noticed(tmp_path: Path) -> None:
    cache, content = ArtefactCache(tmp_path), np.random.default_rng(0).bytes(2300)
    cache.put(KEY, content)
    (path,) = [each.path for each in cache.entries()]
    whole, start = path.read_bytes(), entry_file.HEADER_NBYTES
    damages = [_flipped(whole, at) for at in range(0, len(whole), 61)]
    damages += [
        _swapped(whole, start + first, start + second, nbytes)
        for nbytes in (8, 64, 512)
        for first, second in ((0, 512), (0, 1024), (512, 1536), (8, 16), (64, 192), (0, 448))
        if abs(first - second) >= nbytes
    ]
    for damaged in damages:
        assert damaged != whole
        path.unlink(missing_ok=True)
        path.write_bytes(damaged)
        assert cache.get(KEY) is None


def _flipped(content: bytes, at: int) -> bytes:
    changed = bytearray(content)
    changed[at] ^= 4
    return bytes(changed)


def _swapped(content: bytes, first: int, second: int, nbytes: int) -> bytes:
    changed = bytearray(content)
    changed[first : first + nbytes] = content[second : second + nbytes]
    changed[second : second + nbytes] = content[first : first + nbytes]
    return bytes(changed)


def test_large_entry_of_many_chunks_comes_back(tmp_path: Path) -> None:
    cache, content = ArtefactCache(tmp_path), np.random.default_rng(0).bytes((1 << 25) + 12_345)
    assert cache.put(KEY, content[:777], content[777:])
    assert cache.get(KEY) == content
