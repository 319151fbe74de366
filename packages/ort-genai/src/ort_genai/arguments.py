"""Arguments of a wrong type, refused with ``TypeError`` as the bindings of onnxruntime-genai refuse them."""

from __future__ import annotations

import numpy as np

Array = np.ndarray


def demand(call: str, name: str, value: object, *kinds: type) -> None:
    """Refuse an argument that is of none of these types.

    Raises:
        TypeError: it is not.
    """
    if not isinstance(value, kinds):
        expected = " or ".join(each.__name__ for each in kinds)
        raise TypeError(f"{call} takes {expected} as {name}, not {type(value).__name__}")


def numbers(call: str, name: str, value: object) -> Array:
    """Return an array of what a caller gives: a ``Tensor``, an array, a list or a number.

    Raises:
        TypeError: it does not hold numbers.
    """
    found = np.asarray(value.as_numpy() if hasattr(value, "as_numpy") else value)
    if found.dtype.kind in "OSU":
        raise TypeError(f"{call} takes numbers as {name}, not {type(value).__name__}")
    return found
