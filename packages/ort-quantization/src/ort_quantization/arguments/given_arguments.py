"""What callers give the quantizers, refused in a sentence where it is of another kind than what is taken."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ort_quantization.errors import InvalidQuantization

_NUMBERS: dict[str, tuple[float, float]] = {
    "SmoothQuantAlpha": (0, 1), "MinimumRealRange": (0, math.inf), "CalibMovingAverageConstant": (0, 1),
    "BlockSize": (0, math.inf), "CalibPercentile": (0, 100),
}  # fmt: skip
"""Options that are numbers, and the least and the greatest that each can be."""


def refuse_single_names(**given: Iterable[str] | None) -> None:
    """Refuse a string where names are taken: each of its letters would be one.

    Raises:
        InvalidQuantization: which argument, and what it takes.
    """
    for argument, names in given.items():
        if isinstance(names, str):
            raise InvalidQuantization(f"{argument} is {names!r}; a list of names is expected, such as [{names!r}]")


def options_of(given: Mapping[str, Any] | None) -> dict[str, Any]:  # Any: as many types as keys
    """Return extra options of the caller's own.

    Raises:
        InvalidQuantization: they, or the choices for single tensors among them, are no dictionary.
    """
    if given is not None and not isinstance(given, Mapping):
        raise InvalidQuantization(f"extra_options is a {type(given).__name__}; a dictionary is expected")
    options = dict(given or {})
    for name, (least, most) in _NUMBERS.items():
        value = options.get(name)
        is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
        if value is not None and not (is_number and least <= value <= most):
            wanted = f"a number between {least:g} and {most:g}" if most < math.inf else f"a number from {least:g} on"
            raise InvalidQuantization(f"{name} is {value!r}; {wanted} is expected")
    overrides = options.get("TensorQuantOverrides")
    if overrides is not None and not isinstance(overrides, Mapping):
        raise InvalidQuantization(
            f"TensorQuantOverrides is a {type(overrides).__name__}; a dictionary of lists by the names of tensors is "
            "expected"
        )
    return options
