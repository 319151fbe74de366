"""Files that a caller names, or gives as bytes: what images and sounds are opened from."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from ort_genai.errors import InvalidGeneration


def files_of(kind: str, paths: Sequence[str | os.PathLike[str]]) -> Iterator[tuple[bytes, str]]:
    """Yield the content and the name of each file; ``kind`` is the singular for messages.

    Raises:
        InvalidGeneration: there is none, or one is not there or not a path.
    """
    _demand(kind, paths)
    if not all(isinstance(path, str | os.PathLike) for path in paths):
        raise InvalidGeneration(f"{kind.capitalize()} paths must be texts")
    missing = [path for path in paths if not Path(path).is_file()]
    if missing:
        raise InvalidGeneration(f"{kind.capitalize()} path does not exist: {os.fspath(missing[0])}")
    for path in paths:
        yield Path(path).read_bytes(), os.fspath(path)


def contents_of(kind: str, contents: Sequence[bytes]) -> Iterator[tuple[bytes, str]]:
    """Yield bytes of files with names by their places.

    Raises:
        InvalidGeneration: there are none, or one is not bytes.
    """
    _demand(kind, contents)
    for place, each in enumerate(contents):
        if not isinstance(each, bytes | bytearray | memoryview):
            raise InvalidGeneration(f"{kind.capitalize()} data must be bytes, not {type(each).__name__}")
        yield bytes(each), f"{kind} {place}"


def _demand(kind: str, given: Sequence[object]) -> None:
    if not given:
        raise InvalidGeneration(f"No {kind}s provided")
