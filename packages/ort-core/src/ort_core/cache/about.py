"""What an entry of the cache is about: the model that it was made for, for those who list the cache.

Machine code is made deep below whoever knows the model; so the one who loads it says its name, and every entry that is
written meanwhile carries it. Code that several models share bears the name of the first.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from contextvars import ContextVar

from ort_core.frozen import frozen

_MAX_PATH_LENGTH = 200  # an entry's header has room for 384 bytes
_current: ContextVar[str] = ContextVar("ort_core.cache.about", default="")


@frozen
class About:
    """The model that an entry was made for, and what else distinguishes entries of one model."""

    model: str = ""
    level: str = ""
    code: str = ""

    def to_text(self) -> str:
        """Return what stands in the entry; of a long path, its end."""
        model = self.model if len(self.model) <= _MAX_PATH_LENGTH else f"…{self.model[1 - _MAX_PATH_LENGTH :]}"
        return json.dumps({"model": model, "level": self.level, "code": self.code}, ensure_ascii=False)

    @classmethod
    def from_text(cls, text: str) -> About:
        """Return what ``to_text`` was called on, and nothing of any other text."""
        try:
            found = json.loads(text) if text else {}
            return cls(*(str(found.get(name, "")) for name in ("model", "level", "code")))
        except (ValueError, AttributeError):
            return cls()


def current_about() -> str:
    """Return what entries that are written now are about."""
    return _current.get()


@contextlib.contextmanager
def writing_about(about: About) -> Iterator[None]:
    """Let entries that this thread writes meanwhile be about a model."""
    token = _current.set(about.to_text())
    try:
        yield
    finally:
        _current.reset(token)
