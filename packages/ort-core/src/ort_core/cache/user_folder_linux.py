"""Where Linux keeps what a user's programs may lose: as platformdirs has it, without the time that its import takes."""

from __future__ import annotations

import functools
import logging
import os

log = logging.getLogger("ort_core.cache")


def user_cache_folder(application: str) -> str:
    """Return the folder of an application's caches (XDG Base Directory Specification); ``~/…`` without a home.

    A relative ``XDG_CACHE_HOME`` is invalid there, and ignored.
    """
    given = os.environ.get("XDG_CACHE_HOME", "")
    if given.strip() and not os.path.isabs(given):
        _warn_of_relative(given)
        given = ""
    return os.path.join(given if given.strip() else os.path.expanduser("~/.cache"), application)


@functools.cache
def _warn_of_relative(given: str) -> None:
    log.warning("XDG_CACHE_HOME is %r, which is not an absolute path; it is ignored", given)
