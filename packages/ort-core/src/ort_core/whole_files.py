"""Files that are written whole or not at all: what was there stays until the new file has its last byte.

An interrupt, a full disk or a lost power leaves the old file, never half of a new one.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_KEPT = 50  # letters of a name, so that the longest ones leave room for the ending
_numbers = itertools.count()


def partial_of(path: Path) -> Path:
    """Return where a file lies until it is whole: beside its place, by a name that no other writer has."""
    return path.with_name(f"{path.name[:_KEPT]}.partial-{os.getpid()}-{next(_numbers)}")


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Yield the place to write a file to, which takes its name when the block has ended well.

    A link stays one: the file that it names is replaced, and the new one has its owner and permissions. One that may
    not be written is not replaced. A pipe or a device holds nothing that could be kept, and must not be replaced: it
    is written itself. Of files that belong together, the outer block's takes its name last.

    Raises:
        OSError: the file cannot be put there; it is named as it was given.
    """
    if is_no_regular_file(path):
        yield path
        return
    target = Path(os.path.realpath(path)) if path.is_symlink() else path
    former = _status(target)
    if former is not None and not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    partial = partial_of(target)
    try:
        yield partial
        if former is not None:
            _take_owner_and_mode(partial, former)
        partial.replace(target)
    except OSError as error:
        if error.filename != str(partial):
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        partial.unlink(missing_ok=True)


def is_no_regular_file(path: Path) -> bool:
    """Return whether a path is a pipe, a device or a folder: something that is there, and not to be replaced."""
    return path.exists() and not path.is_file()


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:  # there is none, or a link leads nowhere
        return None


def _take_owner_and_mode(path: Path, former: os.stat_result) -> None:
    """Give a file the owner and the permissions of another, as far as this user and the file system can."""
    if hasattr(os, "chown"):  # not on Windows
        with contextlib.suppress(OSError):
            os.chown(path, former.st_uid, former.st_gid)
    with contextlib.suppress(OSError):
        path.chmod(stat.S_IMODE(former.st_mode))


def move_whole(made: Path, path: Path) -> None:
    """Put a file that is whole where another may be, as ``written_whole`` does. Raises ``OSError``."""
    import shutil  # few programs move a file, and it takes long to import

    with written_whole(path) as place:
        if place == path and is_no_regular_file(path):
            with made.open("rb") as source, path.open("wb") as target:
                shutil.copyfileobj(source, target)
        else:
            shutil.move(made, place)  # a link may lead to another disk


def replace_file(path: Path, content: bytes) -> None:
    """Write a file over what is there, which stays until the new one is whole. Raises ``OSError``."""
    with written_whole(path) as partial:
        partial.write_bytes(content)


def replace_text(path: Path, text: str) -> None:
    """Write a file of text in UTF-8, as ``replace_file`` does. Raises ``OSError``.

    What is no Unicode, such as bytes in a file's name, becomes "?".
    """
    replace_file(path, text.encode("utf-8", "replace"))
