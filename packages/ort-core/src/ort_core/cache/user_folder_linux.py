"""Where Linux keeps what a user's programs may lose: as platformdirs has it, without the time that its import takes."""

from __future__ import annotations

import os


def user_cache_folder(application: str) -> str:
    """Return the folder of an application's caches (XDG Base Directory Specification)."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    return os.path.join(given if given.strip() else os.path.expanduser("~/.cache"), application)
