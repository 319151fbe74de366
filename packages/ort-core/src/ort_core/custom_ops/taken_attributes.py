"""Which attributes a user's function takes: those that it names, so that a shape function may ignore the others."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from ort_core.lifetimes import weakly_cached


def taken_attributes(function: Callable[..., Any], attributes: Mapping[str, object]) -> dict[str, object]:
    """Return the attributes that a function has a keyword for; all of them if it takes ``**`` or tells nothing."""
    names = _keywords(function)
    return dict(attributes) if names is None else {n: value for n, value in attributes.items() if n in names}


@weakly_cached
def _keywords(function: Callable[..., Any]) -> frozenset[str] | None:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a compiled function without a signature
        return None
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return None
    return frozenset(p.name for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD))
