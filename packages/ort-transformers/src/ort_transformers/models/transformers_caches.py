"""The caches of transformers' models, by the name that the installed release has for them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

_NEW, _OLD = "cache", "past_key_values"  # transformers 5.2x has the first, and warns of the second


def cache_argument(forward: Callable[..., Any], cache: Any) -> dict[str, Any]:
    """Return the keyword argument by which a model's ``forward`` takes a cache."""
    return {_NEW if _NEW in inspect.signature(forward).parameters else _OLD: cache}


def returned_cache(outputs: Any) -> Any:
    """Return the cache among a model's outputs."""
    found = getattr(outputs, _NEW, None)
    return getattr(outputs, _OLD) if found is None else found
