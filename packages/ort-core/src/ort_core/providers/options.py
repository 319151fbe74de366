"""Typed provider options: a frozen dataclass per provider, parsed from onnxruntime's strings."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping

from ort_core.errors import InvalidArgument, UnknownOption, did_you_mean
from ort_core.frozen import frozen

_TRUE, _FALSE = frozenset({"1", "true", "yes", "on"}), frozenset({"0", "false", "no", "off"})


@frozen
class NoOptions:
    """For a provider without options."""


def parse_options(options_type: type, given: Mapping[str, object], provider: str) -> object:
    """Return an instance of ``options_type`` from strings or typed values.

    Fields may be ``bool`` ("1", "true", ...), ``int``, ``float``, ``str``, a ``Literal`` of strings, or one of these or
    ``None``. A dataclass may check further in ``__post_init__`` by raising ``ValueError``.

    Raises:
        UnknownOption: a name is not a field; the message lists the valid ones.
        InvalidArgument: a value does not parse.
    """
    if not given:
        return _made(options_type, {}, provider)
    hints = typing.get_type_hints(options_type)
    fields = [field.name for field in dataclasses.fields(options_type)]
    parsed: dict[str, object] = {}
    for name, value in given.items():
        if name not in fields:
            valid = ", ".join(fields) or "none"
            raise UnknownOption(
                f"{provider} has no option {name!r}.{did_you_mean(name, fields)} Valid options: {valid}."
            )
        parsed[name] = _parse(hints[name], value, name, provider)
    return _made(options_type, parsed, provider)


def options_as_strings(options: object) -> dict[str, str]:
    """Return options in onnxruntime's form, strings by name; booleans are "1" and "0"."""
    texts = {}
    for field in dataclasses.fields(options):  # type: ignore[arg-type]  # parse_options made it from a dataclass
        value = getattr(options, field.name)
        texts[field.name] = str(int(value)) if isinstance(value, bool) else "" if value is None else str(value)
    return texts


def _made(options_type: type, parsed: Mapping[str, object], provider: str) -> object:
    try:
        return options_type(**parsed)
    except ValueError as error:
        raise InvalidArgument(f"{provider}: {error}") from error


def _parse(hint: object, value: object, name: str, provider: str) -> object:
    choices = _choices(hint)
    if value is None and type(None) in choices:
        return None
    for choice in choices:
        parsed = _parse_as(choice, value)
        if parsed is not None:
            return parsed
    expected = " or ".join(_describe(choice) for choice in choices if choice is not type(None))
    raise InvalidArgument(f"{provider}: option {name!r} must be {expected}, found {value!r}")


def _choices(hint: object) -> tuple[object, ...]:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return typing.get_args(hint)
    return (hint,)


def _parse_as(choice: object, value: object) -> object | None:
    if typing.get_origin(choice) is typing.Literal:
        return value if value in typing.get_args(choice) else None
    if choice is bool:
        text = str(value).strip().lower()
        return True if text in _TRUE else False if text in _FALSE else None
    if choice in (int, float) and isinstance(value, (str, int, float)) and not isinstance(value, bool):
        try:
            return int(value) if choice is int else float(value)
        except ValueError:
            return None
    return str(value) if choice is str else None


def _describe(choice: object) -> str:
    if typing.get_origin(choice) is typing.Literal:
        return "one of " + ", ".join(map(repr, typing.get_args(choice)))
    return {bool: "a truth value (1 or 0)", int: "an integer", float: "a number", str: "a text"}.get(
        choice, str(choice)
    )  # type: ignore[call-overload]  # any hint may come
