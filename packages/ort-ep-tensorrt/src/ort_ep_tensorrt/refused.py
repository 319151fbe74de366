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


def check_stream(is_given: bool, handle: int) -> None:
    """Raise when a stream is announced and missing, or given without being announced.

    Raises:
        ValueError: saying which of the two options to set.
    """
    if is_given and not handle:
        raise ValueError("option 'has_user_compute_stream' is set, and 'user_compute_stream' gives no handle")
    if handle and not is_given:
        raise ValueError("option 'user_compute_stream' gives a stream; set 'has_user_compute_stream', too")
