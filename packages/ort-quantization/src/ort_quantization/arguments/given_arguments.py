"""What callers give the quantizers, refused in a sentence where it is of another kind than what is taken."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import numpy as np

from ort_quantization.errors import InvalidQuantization

_NUMBERS: dict[str, tuple[float, float]] = {
    "SmoothQuantAlpha": (0, 1), "MinimumRealRange": (0, math.inf), "CalibMovingAverageConstant": (0, 1),
    "BlockSize": (0, math.inf), "CalibPercentile": (0, 100),
}  # fmt: skip
"""Options that are numbers, and the least and the greatest that each can be."""

_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "CalibSamplesAtOnce": ((int, np.integer), "a count of samples"),
    "CalibStridedMinMax": ((int, np.integer), "a count of samples"),
    "CalibProgress": ((Callable,), "a function of the count of samples so far"),  # type: ignore[dict-item]  # a protocol
    "CalibStatePath": ((str, os.PathLike), "the path of a file"),
    "QDQOpTypePerChannelSupportToAxis": ((Mapping,), "a dictionary of axes by operators"),
}
"""Options of other kinds, and what each is."""


def refuse_single_names(**given: Iterable[str] | None) -> None:
    """Refuse what is no list of names, such as a string: each of its letters would be one.

    Raises:
        InvalidQuantization: which argument, and what it takes.
    """
    for argument, names in given.items():
        if isinstance(names, str):
            raise InvalidQuantization(f"{argument} is {names!r}; a list of names is expected, such as [{names!r}]")
        if names is not None and not isinstance(names, Iterable):
            raise InvalidQuantization(f"{argument} is {names!r}; a list of names is expected")
        if isinstance(names, Collection):
            other = next((each for each in names if not isinstance(each, str)), None)
            if other is not None:
                raise InvalidQuantization(f"{argument} has {other!r} among its names; a list of names is expected")


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
    for name, (kind, wanted) in _KINDS.items():
        value = options.get(name)
        if value is not None and not isinstance(value, kind):
            raise InvalidQuantization(f"{name} is {value!r}; {wanted} is expected")
    axes = options.get("QDQOpTypePerChannelSupportToAxis") or {}
    for op_type, axis in axes.items():
        if not isinstance(axis, int | np.integer) or isinstance(axis, bool):
            raise InvalidQuantization(
                f"QDQOpTypePerChannelSupportToAxis has {axis!r} for {op_type}; the number of an axis is expected"
            )
    refuse_single_names(OpTypesToExcludeOutputQuantization=options.get("OpTypesToExcludeOutputQuantization"))
    return options
