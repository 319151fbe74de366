"""Files that a caller names, or gives as bytes: what images and sounds are opened from."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from ort_genai.errors import InvalidGeneration


def files_of(kind: str, paths: Sequence[str | os.PathLike[str]]) -> Iterator[tuple[bytes, str]]:
    """Yield the content and the name of each file; ``kind`` is the singular for messages.

    Raises:
        InvalidGeneration: there is none, or one is not there.
    """
    _demand(kind, paths)
    missing = [path for path in paths if not Path(path).is_file()]
    if missing:
        raise InvalidGeneration(f"{kind.capitalize()} path does not exist: {os.fspath(missing[0])}")
    for path in paths:
        yield Path(path).read_bytes(), os.fspath(path)


def contents_of(kind: str, contents: Sequence[bytes]) -> Iterator[tuple[bytes, str]]:
    """Yield bytes of files with names by their places.

    Raises:
        InvalidGeneration: there are none.
    """
    _demand(kind, contents)
    for place, each in enumerate(contents):
        yield bytes(each), f"{kind} {place}"


def _demand(kind: str, given: Sequence[object]) -> None:
    if not given:
        raise InvalidGeneration(f"No {kind}s provided")
