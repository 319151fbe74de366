"""Which guarded mode the process is in: ``ORT_GUARDED_MEMORY``."""

from __future__ import annotations

import enum

from ort_core.plugin import environment_value


class GuardedMode(enum.Enum):
    """Which side of each buffer lies against a page that cannot be touched."""

    OFF = "off"
    END = "end"
    BEGIN = "begin"


def guarded_mode() -> GuardedMode:
    """Return the mode that the environment asks for now.

    Raises:
        InvalidArgument: the variable has another value.
    """
    return GuardedMode(environment_value("ORT_GUARDED_MEMORY"))


class GuardViolation(BaseException):
    """Compiled code read memory that nobody had written, or wrote beside a buffer.

    No ``Exception``: whoever expects errors of a run, and falls back or goes on, must not take this for one.
    """
