"""What a provider's options are for: each one's name, type, default and sentence, out of its class of options.

A sentence is written once, where documentation reads it too: in the class's docstring under ``Attributes:``. An option
that the class only knows in order to refuse it has its reason in the class variable ``refused`` instead.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import types
import typing
from collections.abc import Mapping

from ort_core.frozen import frozen

_SECTION = "Attributes:"
_ENTRY = re.compile(r" {4}(\w+): (.*)")
_CONTINUED = " " * 8


@frozen
class OptionFacts:
    """One option: what it takes (``type``), its default as Python writes it, and what it is for.

    ``sentence`` is empty where the class does not say, or where Python dropped docstrings (``-OO``).
    """

    name: str
    type: str
    default: str
    sentence: str


def describe_options(options_type: type) -> tuple[OptionFacts, ...]:
    """Return the facts of each option, in the order of the fields.

    >>> @frozen
    ... class Options:
    ...     '''Options of a provider.
    ...
    ...     Attributes:
    ...         level: how hard to try.
    ...     '''
    ...
    ...     level: int = 3
    >>> describe_options(Options)
    (OptionFacts(name='level', type='int', default='3', sentence='How hard to try.'),)
    """
    if not dataclasses.is_dataclass(options_type):
        return ()
    hints = typing.get_type_hints(options_type)
    sentences = _sentences(options_type)
    return tuple(
        OptionFacts(field.name, _type_text(hints[field.name]), _default_text(field), sentences.get(field.name, ""))
        for field in dataclasses.fields(options_type)
    )


def _sentences(options_type: type) -> dict[str, str]:
    found: dict[str, str] = {}
    for base in reversed(options_type.__mro__):
        refused: Mapping[str, str] = vars(base).get("refused", {})
        found |= {name: f"Refused: {reason}." for name, reason in refused.items()}
        found |= {name: _sentence(text) for name, text in _entries(vars(base).get("__doc__") or "").items()}
    return found


def _entries(docstring: str) -> dict[str, str]:
    """Return the texts under ``Attributes:``, each in one line."""
    found: dict[str, str] = {}
    name = ""
    _, _, section = inspect.cleandoc(docstring).partition(f"{_SECTION}\n")
    for line in section.split("\n"):
        if entry := _ENTRY.fullmatch(line):
            name = entry[1]
            found[name] = entry[2]
        elif line.startswith(_CONTINUED):
            found[name] += f" {line.strip()}"
        elif line.strip():
            break  # the next section
    return found


def _sentence(text: str) -> str:
    plain = text.replace("``", "`")
    return plain[:1].upper() + plain[1:]


def _default_text(field: dataclasses.Field[object]) -> str:
    if field.default is not dataclasses.MISSING:
        return repr(field.default)
    return "required" if field.default_factory is dataclasses.MISSING else repr(field.default_factory())


def _type_text(hint: object) -> str:
    if typing.get_origin(hint) is typing.Literal:
        return " | ".join(map(repr, typing.get_args(hint)))
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return " | ".join(map(_type_text, typing.get_args(hint)))
    return "None" if hint is type(None) else hint.__name__ if isinstance(hint, type) else str(hint)
