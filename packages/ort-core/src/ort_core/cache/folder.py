"""Where the cache lies, whether what lies there may be used, and the one warning where it may not.

No folder is better than a wrong one: without a home there is none, never one below the working directory.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
import sys

from ort_core.settings import environment_value

if sys.platform == "win32":
    from ort_core.cache.trust_windows import objection_to, open_plain
else:
    from ort_core.cache.trust_posix import objection_to, open_plain

log = logging.getLogger("ort_core.cache")


class NotPlain(OSError):
    """What lies in place of an entry is not a plain file: a pipe, a device, a link, a folder."""


class Untrusted(OSError):
    """Something belongs to another user, or can be written by others."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path} {why}")
        self.path, self.why = path, why


def cache_directory() -> str | None:
    """Return the folder of the cache: ``ORT_CACHE_DIR``, or the platform's cache folder of this user; ``None``: none.

    It is ``None``, with one warning, where the user has no home: a container that runs with a number for a user.
    """
    given = str(environment_value("ORT_CACHE_DIR")).strip()
    if not given:
        return _absolute(_user_folder(), "this user has no home directory")
    expanded = os.path.expanduser(given)
    if expanded.startswith("~"):
        return _absolute(expanded, f"ORT_CACHE_DIR is {given!r}, and there is no such home directory")
    try:
        return os.path.abspath(expanded)
    except OSError as error:  # the working directory is no more
        return _absolute(expanded, f"ORT_CACHE_DIR is {given!r}, and the working directory is gone ({error})")


def _user_folder() -> str:
    if sys.platform == "linux":
        from ort_core.cache.user_folder_linux import user_cache_folder  # of this system

        return user_cache_folder("ort-core")
    import platformdirs

    return platformdirs.user_cache_dir("ort-core")


def _absolute(folder: str, why: str) -> str | None:
    if os.path.isabs(folder):
        return folder
    warn_once(
        f"home {folder}",
        "compiled code is not kept, each process compiles anew: %s. Set ORT_CACHE_DIR to a folder.",
        why,
    )
    return None


_said: set[str] = set()


def warn_once(about: str, text: str, *values: object) -> None:
    """Log a warning, once in a process for each thing that it is about."""
    if about in _said:
        log.debug(text, *values)
        return
    _said.add(about)
    log.warning(text, *values)


def warn_of_untrusted(folder: str, error: Untrusted) -> None:
    """Say once, for each cache, what is not used, and what to do."""
    warn_once(
        f"trust {folder}",
        "the cache %s is not used as it is: %s %s, and whoever writes there could run code as you. "
        "Set ORT_CACHE_DIR to a folder of your own that nobody else may write to, or mend this one "
        "(chown, chmod go-w, ort cache clear).",
        folder, error.path, error.why,
    )  # fmt: skip


def warn_of_failed_write(folder: str, error: OSError) -> None:
    """Say once, for each cache, that nothing is kept; one that is there, but made to be read only, needs no word."""
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM) and os.path.isdir(folder):
        log.info("nothing is kept in the cache %s, which is read only: %s", folder, error)
        return
    warn_once(
        f"write {folder}",
        "compiled code cannot be kept in %s, each process compiles anew: %s. Set ORT_CACHE_DIR to a folder with room.",
        folder, error,
    )  # fmt: skip


def require_trusted(folder: str) -> None:
    """Look who may write to a folder.

    Raises:
        Untrusted: others may.
        OSError: it is not there.
    """
    status = os.stat(folder)
    why = objection_to(status)
    if why is not None:
        raise Untrusted(folder, why)


def open_entry(path: str) -> tuple[int, os.stat_result]:
    """Open a file of the cache to read it; its descriptor and status.

    Raises:
        NotPlain: something else lies there.
        Untrusted: others may write to it.
        OSError: it is not there, or may not be read.
    """
    if not stat.S_ISREG(os.lstat(path).st_mode):  # to open some devices is an action
        raise NotPlain(path)
    descriptor = open_plain(path, os.O_RDONLY)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise NotPlain(path)
        why = objection_to(status)
        if why is not None:
            raise Untrusted(path, why)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor, status


def make_private(folder: str) -> None:
    """Make a folder that nobody else may read or write, and the ones around it as the system has them.

    Raises:
        OSError: it cannot be made.
    """
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        if not os.path.isdir(folder):
            raise


def append_plain(path: str, content: bytes) -> int:
    """Append to a plain file, made if there is none, and return its size.

    Raises:
        NotPlain: something else lies there.
        OSError: it cannot be written.
    """
    descriptor = open_plain(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise NotPlain(path)
        os.write(descriptor, content)
        return os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)
