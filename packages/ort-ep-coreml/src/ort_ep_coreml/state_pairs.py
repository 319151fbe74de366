"""The text of the option ``States``: which inputs and outputs a Core ML model keeps inside."""

from __future__ import annotations

from collections.abc import Mapping


def parse_states(text: str) -> Mapping[str, str]:
    """Return names of outputs by names of inputs, of ``past=present, h0=hn``.

    Raises:
        ValueError: the text says nothing of the kind.

    Example:
        >>> parse_states("past=present")
        {'past': 'present'}
    """
    found: dict[str, str] = {}
    for entry in filter(None, (each.strip() for each in text.split(","))):
        source, sign, target = (each.strip() for each in entry.partition("="))
        if not (source and sign and target) or source in found or target in found.values():
            raise ValueError(f"option 'States' holds {entry!r}, expected INPUT=OUTPUT, each of them once")
        found[source] = target
    return found
