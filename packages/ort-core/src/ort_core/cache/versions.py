"""The versions that decide what this package computes: facts of every key whose artefact it made itself."""

from __future__ import annotations

import functools
import hashlib
import os
import sys
from pathlib import Path

import numpy as np


@functools.cache
def package_facts() -> tuple[tuple[str, str], ...]:
    """Return a stamp of this package's files, numpy's version and the order of bytes.

    The stamp (names, sizes and times of all files) makes entries of an edited source tree old at once.
    """
    folder = str(Path(__file__).parent.parent)
    lines = sorted(_lines(folder, len(folder) + 1))
    stamp = hashlib.sha256("".join(lines).encode()).hexdigest()
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
