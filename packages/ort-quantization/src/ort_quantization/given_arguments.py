"""What callers give the quantizers, refused in a sentence where it is of another kind than what is taken."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ort_quantization.errors import InvalidQuantization


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
    overrides = options.get("TensorQuantOverrides")
    if overrides is not None and not isinstance(overrides, Mapping):
        raise InvalidQuantization(
            f"TensorQuantOverrides is a {type(overrides).__name__}; a dictionary of lists by the names of tensors is "
            "expected"
        )
    return options
