"""What programs see of a value or an exception, as JSON."""

from __future__ import annotations

import numpy as np


def value(found: object) -> object:
    """Return a description of a result that is the same wherever programs cannot tell two results apart."""
    if isinstance(found, np.ndarray):
        flags = "".join(name[0] for name in ("writeable", "c_contiguous") if getattr(found.flags, name))
        return [
            "array",
            type(found).__name__,
            found.dtype.str + found.dtype.name,
            list(found.shape),
            flags,
            _items(found),
        ]
    if isinstance(found, (list, tuple)):
        return [type(found).__name__, [value(each) for each in found]]
    if isinstance(found, dict):
        return [type(found).__name__, [[value(key), value(item)] for key, item in found.items()]]
    if found is None or isinstance(found, (bool, int, str)):
        return [type(found).__name__, ascii(found)]
    if isinstance(found, (float, bytes, np.generic)):
        return [type(found).__name__, ascii(found)]
    return ["object", type(found).__name__]


def _items(array: np.ndarray) -> str:
    if array.dtype == object:
        return ascii([(type(each).__name__, each) for each in array.reshape(-1)[:50]])
    return ascii([repr(each) for each in array.astype(array.dtype).reshape(-1)[:50].tolist()])


def error(raised: Exception) -> list[object]:
    """Return the class of an exception, all its bases, and its text."""
    bases = [base.__name__ for base in type(raised).__mro__]
    return ["error", bases, str(raised)[:600]]
