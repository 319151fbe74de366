"""What a command that writes a folder says where a signal ends it: whether the folder is there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ort_core.cli.console import note
from ort_core.cli.interrupts import Terminated


@contextmanager
def told_where_interrupted(folder: Path) -> Iterator[None]:
    """Say in a sentence what became of a folder that is written whole or not at all, and let the signal end the rest.

    Args:
        folder: that the block writes.
    """
    try:
        yield
    except (KeyboardInterrupt, Terminated):
        is_whole = folder.is_dir() and any(folder.iterdir())
        note(f"interrupted: {folder} is whole" if is_whole else f"interrupted: {folder} was not written")
        raise
