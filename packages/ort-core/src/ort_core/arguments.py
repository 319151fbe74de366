"""Arguments as onnxruntime's native functions take them: converted where they can be, else refused with InvalidType.

A function says the kinds of its parameters once, with ``takes``; nothing on the way of a run is checked here.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from ort_core.errors import InvalidType, WrongObject

_P = ParamSpec("_P")
_R = TypeVar("_R")
_T = TypeVar("_T")
Convert = Callable[[object, str], object]  # of a value and the words for it


def text(value: object, what: str) -> str:
    """Return a string; bytes are one in UTF-8."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    if not isinstance(value, str):
        raise _unfit(value, what, "a string")
    return value


def a_path(value: object, what: str) -> str:
    """Return the text of a path."""
    return text(os.fspath(value) if isinstance(value, os.PathLike) else value, what)


def whole(value: object, what: str) -> int:
    """Return an integer of at most 64 bits: of anything with ``__index__``, or a number that is no ``float``."""
    if type(value) is not int:
        method = getattr(type(value), "__index__", None) or getattr(type(value), "__int__", None)
        if method is None or isinstance(value, float):
            raise _unfit(value, what, "an integer")
        try:
            value = int(method(value))
        except (TypeError, ValueError) as error:  # an array of several numbers
            raise _unfit(value, what, "an integer") from error
    if not -(1 << 63) <= value < 1 << 64:
        raise _unfit(value, what, "an integer of at most 64 bits")
    return value


def size(value: object, what: str) -> int:
    """Return an integer from 0."""
    found = whole(value, what)
    if found < 0:
        raise _unfit(value, what, "an integer from 0")
    return found


def truth(value: object, what: str) -> bool:
    """Return the truth of ``None`` and of what says it itself, as numbers do; lists and strings do not."""
    if value is not None and not hasattr(type(value), "__bool__"):
        raise _unfit(value, what, "True or False")
    try:
        return bool(value)
    except ValueError as error:  # an array of several numbers
        raise _unfit(value, what, "True or False") from error


def sizes(value: object, what: str) -> tuple[int, ...]:
    """Return a sequence of integers; a string is none."""
    if isinstance(value, (str, bytes, dict)) or not hasattr(value, "__iter__"):
        raise _unfit(value, what, "a sequence of integers")
    return tuple(whole(each, what) for each in value)


def texts(value: object, what: str) -> list[str]:
    """Return a sequence of strings; one string is none."""
    if isinstance(value, (str, bytes, dict)) or not hasattr(value, "__iter__"):
        raise _unfit(value, what, "a sequence of strings")
    return [text(each, what) for each in value]


def strings(value: object, what: str) -> dict[str, str]:
    """Return a mapping of strings to strings."""
    if not hasattr(value, "items"):
        raise _unfit(value, what, "a mapping of strings to strings")
    return {text(key, what): text(item, what) for key, item in value.items()}


def a_mapping(value: object, what: str) -> object:
    """Let a mapping through, whatever it holds."""
    if not hasattr(value, "items"):
        raise _unfit(value, what, "a mapping")
    return value


def an(kind: type[_T], error: type[InvalidType] = InvalidType) -> Callable[[object, str], _T]:
    """Return what lets instances of a class through, and refuses others with an error."""

    def convert(value: object, what: str) -> _T:
        if not isinstance(value, kind):
            raise error(f"{what} is {_shown(value)}, expected {kind.__name__}")
        return value

    return convert


def or_none(convert: Convert) -> Convert:
    """Return what lets ``None`` through besides what a conversion takes."""
    return lambda value, what: None if value is None else convert(value, what)


def takes(**kinds: Convert) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Convert the named arguments of a function before it is called.

        >>> @takes(count=size)
        ... def repeated(word: str, count: int) -> str:
        ...     return word * count
        >>> repeated("ab", True)
        'ab'
        >>> repeated("ab", count="2")
        Traceback (most recent call last):
        ort_core.errors.InvalidType: repeated: count is '2' (str), expected an integer

    How many arguments there must be is the function's own affair.
    """

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        code = function.__code__
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        title = function.__qualname__.removesuffix(".__init__")

        def checked(name: str, value: object) -> object:
            return kinds[name](value, f"{title}: {name}") if name in kinds else value

        @functools.wraps(function)
        def wrapper(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            listed = [checked(name, value) for name, value in zip(names, args, strict=False)]
            named = {name: checked(name, value) for name, value in kwargs.items()}
            return function(*listed, *args[len(listed) :], **named)  # type: ignore[arg-type]  # converted

        return wrapper

    return decorate


def an_object(kind: type[_T]) -> Callable[[object, str], _T]:
    """Return what lets instances of one of the API's classes through; onnxruntime asks others for what they hold."""
    return an(kind, WrongObject)


def _unfit(value: object, what: str, expected: str) -> InvalidType:
    return InvalidType(f"{what} is {_shown(value)}, expected {expected}")


def _shown(value: object) -> str:
    shown = repr(value)
    return f"{shown if len(shown) <= 80 else shown[:77] + '...'} ({type(value).__name__})"
