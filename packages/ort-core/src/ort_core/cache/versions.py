"""The versions that decide what this package computes: facts of every key whose artefact it made itself."""

from __future__ import annotations

import functools
import os
import sys

import numpy as np

from ort_core.cache.digests import digest_of


@functools.cache
def package_facts() -> tuple[tuple[str, str], ...]:
    """Return a stamp of this package's files, numpy's version and the order of bytes.

    The stamp (names, sizes and times of all files) makes entries of an edited source tree old at once.
    """
    folder = os.path.dirname(os.path.dirname(__file__))
    lines = sorted(_lines(folder, len(folder) + 1))
    stamp = digest_of(["".join(lines).encode()]).hex()
    return (("files", stamp), ("numpy", np.__version__), ("byte order", sys.byteorder))


def _lines(folder: str, start: int) -> list[str]:
    found: list[str] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                found.extend(_lines(entry.path, start))
            elif entry.name.endswith(".py"):
                status = entry.stat()
                found.append(f"{entry.path[start:]} {status.st_size} {status.st_mtime_ns}\n")
    return found
