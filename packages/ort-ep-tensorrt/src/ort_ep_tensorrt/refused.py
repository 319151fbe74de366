"""Refusal of options that would have no effect, or make no sense: one that is set and ignored is a wrong answer."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any


def refuse_changed(options: Any, reasons: Mapping[str, str]) -> None:  # Any: dataclasses have no common type
    """Raise when an option that is not supported has another value than its default.

    Raises:
        ValueError: with the option's name and the reason.
    """
    defaults = {field.name: field.default for field in dataclasses.fields(options)}
    for name, reason in reasons.items():
        if getattr(options, name) != defaults[name]:
            raise ValueError(f"option {name!r} is not supported: {reason}")


def callers_stream(is_given: bool, handle: int | None) -> int | None:
    """Return the handle of the caller's stream, ``None`` where there is none: a handle alone gives one, too.

    0 is the default stream, which is PyTorch's, too, until another is made current.
    """
    return (handle or 0) if is_given or handle is not None else None
