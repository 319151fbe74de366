"""Whose files are read, on Windows: the folder decides, and the default one is the user's own.

What ``stat`` says of owners and of the rights of others means nothing there. The default folder lies in the user's
profile, whose access control list lets nobody else write but the administrators and the system; whoever names another
one with ``ORT_CACHE_DIR`` chooses who may write to it. So nothing is refused by its owner.
"""

from __future__ import annotations

import os


def objection_to(status: os.stat_result) -> str | None:
    """Return ``None``: nothing tells."""
    return None


def open_plain(path: str, flags: int, mode: int = 0o600) -> int:
    """Open what must be a plain file, and return its descriptor. Pipes and devices have no names within a folder.

    Raises:
        OSError: it cannot be opened.
    """
    return os.open(path, flags | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOINHERIT", 0), mode)
