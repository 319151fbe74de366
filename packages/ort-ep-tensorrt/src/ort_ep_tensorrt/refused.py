"""Refusal of options that would have no effect: an option that is set and ignored is a wrong answer."""

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
