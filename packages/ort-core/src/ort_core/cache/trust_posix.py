"""Whose files are read, on systems where a file has an owner and bits that say who may write to it.

Entries hold machine code. They are read only where nobody else can have written them: they, and the folders that they
lie in, belong to this user or to the administrator, and others may not write there. A group may where it has no other
member: distributions give each user a group of his own, and let it write to all that he makes (umask 002).
"""

from __future__ import annotations

import functools
import os
import stat
import sys

assert sys.platform != "win32", "Windows has trust_windows"

_ROOT = 0  # the administrator, and the administrator's group


def objection_to(status: os.stat_result) -> str | None:
    """Return why a file or folder is not trusted, ``None`` if it is."""
    if status.st_uid not in (_ROOT, os.geteuid()):
        return f"belongs to user {status.st_uid}"
    if stat.S_ISLNK(status.st_mode):
        return None  # its bits say nothing; what it leads to is looked at
    if status.st_mode & stat.S_IWOTH:
        return "can be written by every user"
    if status.st_mode & stat.S_IWGRP and not _is_private(status.st_gid, status.st_uid):
        return f"can be written by group {status.st_gid}"
    return None


def open_plain(path: str, flags: int, mode: int = 0o600) -> int:
    """Open what must be a plain file, and return its descriptor.

    What lies there may be anything: a pipe would wait for its other end, a device do what it likes, a link lead
    elsewhere.

    Raises:
        OSError: it cannot be opened, or is a link.
    """
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY, mode)


@functools.lru_cache(64)
def _is_private(group: int, user: int) -> bool:
    """Return whether nobody but a user, and the administrator, belongs to a group."""
    if group == _ROOT:
        return True
    import grp  # few need them
    import pwd

    try:
        owner, found = pwd.getpwuid(user), grp.getgrgid(group)
    except KeyError:
        return False
    return owner.pw_gid == group and found.gr_name == owner.pw_name and set(found.gr_mem) <= {owner.pw_name}
