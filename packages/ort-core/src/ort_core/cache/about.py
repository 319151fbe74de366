"""What an entry of the cache is about: the model that it was made for, for those who list the cache.

Machine code is made deep below whoever knows the model; so the one who loads it says its name, and every entry that is
written meanwhile carries it. Code that several models share bears the name of the first.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from contextvars import ContextVar, Token

from ort_core.cache.folder import cache_directory
from ort_core.frozen import frozen
from ort_core.settings import environment_value

log = logging.getLogger("ort_core")

_MAX_PATH_NBYTES = 250  # an entry's header has room for 384 bytes


@frozen
class About:
    """The model that an entry was made for, and what else distinguishes entries of one model."""

    model: str = ""
    level: str = ""

    def to_text(self) -> str:
        """Return what stands in the entry; of a long path, its end."""
        path = self.model.encode("utf-8", "replace")
        model = (
            path.decode() if len(path) <= _MAX_PATH_NBYTES else f"…{path[-_MAX_PATH_NBYTES:].decode(errors='ignore')}"
        )
        return json.dumps({"model": model, "level": self.level}, ensure_ascii=False)

    @classmethod
    def from_text(cls, text: str) -> About:
        """Return what ``to_text`` was called on, and nothing of any other text."""
        try:
            found = json.loads(text) if text else {}
            return cls(*(str(found.get(name, "")) for name in ("model", "level")))
        except (ValueError, AttributeError):
            return cls()


class writing_about:  # noqa: N801 - a context manager
    """Let entries that this thread writes meanwhile be about a model, and say once if something is compiled for it."""

    def __init__(self, about: About) -> None:
        self.about, self.text = about, about.to_text()
        self.has_said = False

    def __enter__(self) -> None:
        self._token: Token[writing_about | None] = _current.set(self)

    def __exit__(self, *error: object) -> None:
        _current.reset(self._token)


_current: ContextVar[writing_about | None] = ContextVar("ort_core.cache.about", default=None)


def current_about() -> str:
    """Return what entries that are written now are about."""
    found = _current.get()
    return "" if found is None else found.text


def say_that_it_compiles() -> None:
    """Say in one line, at the first compilation of a load, what takes the time, and whether it is kept.

    Somebody who sits before a terminal is told; a program whose output goes elsewhere finds it among the infos.
    """
    found = _current.get()
    if found is None or found.has_said:
        return
    found.has_said = True
    folder = cache_directory() if environment_value("ORT_CACHE_MAX_NBYTES") else None
    kept = "nothing is kept, there is no cache" if folder is None else f"later loads take the result from {folder}"
    is_seen = sys.stderr is not None and sys.stderr.isatty()
    name = os.path.basename(found.about.model) or "a model"
    log.log(logging.WARNING if is_seen else logging.INFO, "compiling %s for this processor; %s", name, kept)
