"""The versions that decide what this package computes: facts of every key whose artefact it made itself."""

from __future__ import annotations

import functools
import os
import sys

import numpy as np

from ort_core.cache.digests import digest_of
from ort_core.cache.key import CacheKey
from ort_core.cache.store import ArtefactCache

_KIND = "package"


@functools.cache
def package_facts() -> tuple[tuple[str, str], ...]:
    """Return what tells this package's source, numpy's version and the order of bytes.

    An edited source tree makes entries old at once; a copy of the same source elsewhere has the same.
    """
    return (("files", package_digest()), ("numpy", np.__version__), ("byte order", sys.byteorder))


@functools.cache
def package_digest() -> str:
    """Return a digest of the contents of this package's files: the same wherever, and whenever, they were installed.

    To read them takes as long as a small load. So it is kept, under the names, sizes and times of all files.
    """
    folder = os.path.dirname(os.path.dirname(__file__))
    if not os.path.isdir(folder):
        return _archive_digest(folder)
    names = sorted(_lines(folder, len(folder) + 1))
    key = CacheKey(_KIND, digest_of(["".join(names).encode()]))
    cache = ArtefactCache()
    known = cache.get(key)
    if known is not None:
        return known.decode()
    found = digest_of(_contents(folder, [line.partition("\0")[0] for line in names])).hex()
    cache.put(key, found.encode())
    return found


def _archive_digest(folder: str) -> str:
    """Return a digest of the package in an archive that Python imports from: it tells what each file holds.

    Programs that were frozen into one executable hold it elsewhere: that one's size and time stand for it.
    """
    import zipfile  # nearly all are installed as files

    archive = folder
    while not os.path.isfile(archive):
        above = os.path.dirname(archive)
        if above == archive:
            facts = os.stat(sys.executable)
            return digest_of([f"{facts.st_size} {facts.st_mtime_ns}".encode()]).hex()
        archive = above
    inside = os.path.relpath(folder, archive).replace(os.sep, "/") + "/"
    with zipfile.ZipFile(archive) as opened:
        files = [each for each in opened.infolist() if each.filename.startswith(inside)]
    lines = sorted(
        f"{each.filename}\0 {each.file_size} {each.CRC}\n" for each in files if each.filename.endswith(".py")
    )
    return digest_of(["".join(lines).encode()]).hex()


def _contents(folder: str, names: list[str]) -> list[bytes]:
    parts: list[bytes] = []
    for name in names:
        with open(os.path.join(folder, name), "rb") as file:
            parts += [name.replace(os.sep, "/").encode(), file.read()]
    return parts


def _lines(folder: str, start: int) -> list[str]:
    found: list[str] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                found.extend(_lines(entry.path, start))
            elif entry.name.endswith(".py"):
                status = entry.stat()
                found.append(f"{entry.path[start:]}\0 {status.st_size} {status.st_mtime_ns}\n")
    return found
