"""What others do to the cache costs a rebuild and a warning: never an answer of another model, a crash or a wait."""

from __future__ import annotations

import errno
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from ort_core.cache import folder as cache_folder
from ort_core.cache.folder import cache_directory
from ort_core.cache.key import CacheKey
from ort_core.cache.store import ArtefactCache

posix = pytest.mark.skipif(sys.platform == "win32", reason="files have neither owners by number nor such rights there")
KEY = CacheKey("test", b"graph")


@pytest.fixture(autouse=True)
def unsaid(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each test be the first that warns."""
    monkeypatch.setattr(cache_folder, "_said", set())


@pytest.fixture
def cache(tmp_path: Path) -> ArtefactCache:
    found = ArtefactCache(tmp_path / "cache")
    assert found.put(KEY, b"content" * 1000)
    return found


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


@pytest.mark.parametrize("kind", ["cpu-object", "cpu-target", "session", "optimized-model", "plugins", "tuning"])
def test_an_intact_entry_under_another_name_is_no_entry(tmp_path: Path, kind: str) -> None:
    cache = ArtefactCache(tmp_path)
    first, second = CacheKey(kind, b"a"), CacheKey(kind, b"b")
    cache.put(first, b"answers of a")
    cache.put(second, b"answers of b")
    Path(cache._path(first)).replace(cache._path(second))
    assert cache.get(second) is None
    assert not Path(cache._path(second)).exists(), "it stays, and costs each process the look"
    assert cache.put(second, b"answers of b")
    assert cache.get(second) == b"answers of b"


def test_an_entry_moved_to_another_kind_is_no_entry(tmp_path: Path) -> None:
    cache = ArtefactCache(tmp_path)
    cache.put(CacheKey("session", b"a"), b"of one kind")
    cache.put(CacheKey("plugins", b"a"), b"of another")
    Path(cache._path(CacheKey("session", b"a"))).replace(cache._path(CacheKey("plugins", b"a")))
    assert cache.get(CacheKey("plugins", b"a")) is None


def test_what_was_read_stays_whatever_happens_to_the_file(cache: ArtefactCache) -> None:
    held, path = cache.map(KEY), cache._path(KEY)
    assert held is not None
    with open(path, "r+b") as file:
        file.seek(600)
        file.write(b"X" * 5000)
        file.truncate(0)
    assert bytes(held) == b"content" * 1000
    assert held.readonly


def test_two_who_hold_an_entry_share_its_memory(cache: ArtefactCache) -> None:
    first, second = cache.map(KEY), cache.map(KEY)
    assert first is not None
    assert second is not None
    assert first.obj is second.obj


def test_an_entry_that_becomes_another_while_one_is_held_is_read_anew(cache: ArtefactCache) -> None:
    held = cache.map(KEY)
    cache.put(KEY, b"CONTENT" * 1000)
    assert cache.get(KEY) == b"CONTENT" * 1000
    assert held is not None
    assert bytes(held) == b"content" * 1000


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes with names")
@pytest.mark.parametrize("thing", ["pipe", "socket", "link", "link to nothing"])
def test_a_thing_in_place_of_a_file_is_removed_and_made_anew(
    cache: ArtefactCache, thing: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = cache._path(KEY)
    elsewhere = Path(path).rename(tmp_path / "elsewhere")
    if thing == "pipe":
        os.mkfifo(path)
    elif thing == "socket":
        _bind(path)
    else:
        os.symlink(elsewhere if thing == "link" else tmp_path / "nothing", path)
    assert _within_seconds(lambda: cache.get(KEY)) is None
    assert "is not a plain file" in caplog.text
    assert cache.put(KEY, b"new")
    assert cache.get(KEY) == b"new"
    assert elsewhere.read_bytes().startswith(b"ort-core-artefact-"), "what a link leads to is left alone"


def _bind(path: str) -> None:
    """Make a socket; its path may be too long for one, so bind it by a short name."""
    before = os.getcwd()
    os.chdir(os.path.dirname(path))
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind("s")
        os.rename("s", os.path.basename(path))
    finally:
        os.chdir(before)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes with names")
def test_pipes_among_the_files_that_count_and_are_listed_do_not_stop_a_writer(tmp_path: Path) -> None:
    cache = ArtefactCache(tmp_path / "cache", 10_000)
    cache.put(KEY, b"content")
    (tmp_path / "cache" / ".written").unlink()
    os.mkfifo(tmp_path / "cache" / ".written")
    os.mkfifo(tmp_path / "cache" / "test" / "pipe.artefact")
    assert _within_seconds(lambda: cache.put(CacheKey("test", b"more"), bytes(3000)))
    assert _within_seconds(lambda: cache.clear()) == 2


def _within_seconds(act: object) -> object:
    results: list[object] = []
    thread = threading.Thread(target=lambda: results.append(act()), daemon=True)  # type: ignore[operator]  # a function
    thread.start()
    thread.join(20)
    assert results, "it waits for the other end of a pipe"
    return results[0]


@posix
@pytest.mark.parametrize("what", ["folder", "kind", "file"])
def test_what_others_may_write_is_not_read_and_one_warning_says_what_to_do(
    cache: ArtefactCache, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = Path(cache._path(KEY))
    place = {"folder": path.parent.parent, "kind": path.parent, "file": path}[what]
    place.chmod(0o777)
    assert cache.get(KEY) is None
    assert cache.get(KEY) is None
    (said,) = warnings(caplog)
    assert f"{place} can be written by every user" in said
    assert "ORT_CACHE_DIR" in said
    assert "chmod go-w" in said
    place.chmod(0o755)
    assert cache.get(KEY) is not None, "mended, it is used again"


@posix
@pytest.mark.parametrize("what", ["folder", "kind"])
def test_nothing_is_written_where_others_may_write(
    cache: ArtefactCache, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = Path(cache._path(KEY))
    {"folder": path.parent.parent, "kind": path.parent}[what].chmod(0o777)
    assert not cache.put(KEY, b"new")
    assert len(warnings(caplog)) == 1


@posix
@pytest.mark.parametrize(
    ("name", "members", "is_used"), [("me", [], True), ("me", ["me"], True), ("me", ["you"], False), ("all", [], False)]
)
def test_a_group_of_the_users_own_may_write_and_no_other(
    cache: ArtefactCache, name: str, members: list[str], is_used: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    import grp
    import pwd

    from ort_core.cache import trust_posix

    monkeypatch.setattr(trust_posix, "_ROOT", -1)  # so that the test is the same for the administrator
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: pwd.struct_passwd(("me", "", uid, _gid(cache), "", "", "")))
    monkeypatch.setattr(grp, "getgrgid", lambda gid: grp.struct_group((name, "", gid, members)))
    trust_posix._is_private.cache_clear()
    try:
        os.chmod(str(cache.folder), 0o775)
        assert (cache.get(KEY) is not None) == is_used
    finally:
        trust_posix._is_private.cache_clear()


def _gid(cache: ArtefactCache) -> int:
    return os.stat(str(cache.folder)).st_gid


@posix
def test_folders_are_made_for_the_user_alone_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o002)
    try:
        cache = ArtefactCache(tmp_path / "cache")
        assert cache.put(KEY, b"content")
    finally:
        os.umask(before)
    path = Path(cache._path(KEY))
    modes = [stat.S_IMODE(each.stat().st_mode) for each in (path.parent.parent, path.parent, path)]
    assert modes == [0o700, 0o700, 0o600]


@posix
@pytest.mark.parametrize("home", [None, "", "relative/home", "."])
def test_without_a_home_there_is_no_cache_and_one_warning(
    tmp_path: Path, home: str | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import pwd

    def no_entry(uid: int) -> object:
        raise KeyError(uid)

    for name in ("ORT_CACHE_DIR", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    if home is not None:
        monkeypatch.setenv("HOME", home)
    monkeypatch.setattr(pwd, "getpwuid", no_entry)
    monkeypatch.chdir(tmp_path)
    if home == "":
        assert os.path.isabs(str(cache_directory())), "the system takes an empty HOME for the root folder"
        return
    assert [cache_directory(), cache_directory()] == [None, None]
    cache = ArtefactCache()
    assert not cache.put(KEY, b"content")
    assert cache.get(KEY) is None
    assert (list(cache.entries()), cache.clear(), cache.nbytes()) == ([], 0, 0)
    cache.remove(KEY)
    assert list(tmp_path.iterdir()) == [], "a folder below the working directory"
    (said,) = warnings(caplog)
    assert "no home directory" in said
    assert "ORT_CACHE_DIR" in said


@posix
def test_a_cache_in_the_home_of_nobody_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ORT_CACHE_DIR", "~nobody-of-that-name/cache")
    assert cache_directory() is None
    assert "no such home directory" in warnings(caplog)[0]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has this variable")
def test_a_relative_cache_home_is_ignored_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("ORT_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", f"relative-{tmp_path.name}")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_directory() == str(tmp_path / ".cache" / "ort-core")
    assert cache_directory() == str(tmp_path / ".cache" / "ort-core")
    assert len(warnings(caplog)) == 1


@pytest.mark.parametrize(
    ("number", "count"), [(errno.ENOSPC, 1), (errno.EDQUOT if hasattr(errno, "EDQUOT") else errno.EIO, 1),
                          (errno.EROFS, 0), (errno.EACCES, 0)],
)  # fmt: skip
def test_a_disk_that_takes_nothing_is_told_once_unless_it_is_read_only(
    cache: ArtefactCache, number: int, count: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*arguments: object, **keywords: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(tempfile, "mkstemp", refuse)
    assert not cache.put(CacheKey("test", b"other"), b"content")
    assert not cache.put(CacheKey("test", b"other"), b"content")
    assert len(warnings(caplog)) == count
    assert cache.get(KEY) == b"content" * 1000


@posix
def test_a_file_that_cannot_grow_leaves_neither_half_an_entry_nor_a_dead_process(tmp_path: Path) -> None:
    program = (
        "import resource, signal, sys, os\n"
        "from ort_core.cache.key import CacheKey\n"
        "from ort_core.cache.store import ArtefactCache\n"
        "cache = ArtefactCache(sys.argv[1])\n"
        "assert cache.put(CacheKey('test', b'small'), b'x')\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))\n"
        "assert not cache.put(CacheKey('test', b'large'), bytes(100_000))\n"
        "assert cache.get(CacheKey('test', b'large')) is None\n"
        "assert cache.get(CacheKey('test', b'small')) == b'x'\n"
        "assert len(os.listdir(sys.argv[1] + '/test')) == 1, os.listdir(sys.argv[1] + '/test')\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("cannot be kept") == 1


@posix
def test_a_writer_that_is_killed_leaves_nothing_that_is_read_and_what_it_leaves_is_removed(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys\n"
        "from ort_core.cache.key import CacheKey\n"
        "from ort_core.cache.store import ArtefactCache\n"
        "os.replace = lambda *names: os.kill(os.getpid(), signal.SIGKILL)\n"
        "ArtefactCache(sys.argv[1]).put(CacheKey('test', b'graph'), bytes(3_000_000))\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], timeout=100)
    assert done.returncode == -signal.SIGKILL
    (left,) = (tmp_path / "test").iterdir()
    cache = ArtefactCache(tmp_path)
    assert cache.get(KEY) is None
    assert cache.put(CacheKey("test", b"large"), bytes(3_000_000))
    assert left.exists(), "its writer might live"
    os.utime(left, (1e9, 1e9))
    assert cache.put(CacheKey("test", b"large"), bytes(3_000_000))
    assert not left.exists()


def test_an_entry_that_cannot_be_read_for_want_of_memory_is_absent(
    cache: ArtefactCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mmap

    def refuse(*arguments: object, **keywords: object) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(mmap, "mmap", refuse)
    assert cache.get(KEY) is None
    monkeypatch.undo()
    assert cache.get(KEY) is not None
