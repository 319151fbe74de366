"""Files that are written whole or not at all: what was there stays until the new file has its last byte.

An interrupt, a full disk or a lost power leaves the old file, never half of a new one.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_KEPT = 50  # letters of a name, so that the longest ones leave room for the ending


def partial_of(path: Path) -> Path:
    """Return where a file lies until it is whole: beside its place, by a name of the thread that writes it."""
    return path.with_name(f"{path.name[:_KEPT]}.partial-{os.getpid()}-{threading.get_ident()}")


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Yield the place to write a file to, which takes its name when the block has ended well.

    A link stays one: the file that it names is replaced. A pipe or a device holds nothing that could be kept, and must
    not be replaced: it is written itself.

    Raises:
        OSError: the file cannot be put there.
    """
    if path.exists() and not path.is_file():
        yield path
        return
    target = path.resolve() if path.is_symlink() else path
    partial = partial_of(target)
    try:
        yield partial
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def replace_file(path: Path, content: bytes) -> None:
    """Write a file over what is there, which stays until the new one is whole. Raises ``OSError``."""
    with written_whole(path) as partial:
        partial.write_bytes(content)


def replace_text(path: Path, text: str) -> None:
    """Write a file of text in UTF-8, as ``replace_file`` does. Raises ``OSError``.

    What is no Unicode, such as bytes in a file's name, becomes "?".
    """
    replace_file(path, text.encode("utf-8", "replace"))
