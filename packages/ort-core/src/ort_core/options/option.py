"""Option: a typed attribute of a class of options, checked when it is set."""

from __future__ import annotations

import enum
import logging
import os
from typing import Generic, TypeVar, cast, overload

from ort_core.arguments import text, truth, whole
from ort_core.errors import InvalidType, InvalidValue

log = logging.getLogger(__name__)

_T = TypeVar("_T")


class Option(Generic[_T]):
    """A typed attribute: a descriptor that checks what is set. ``range`` (both ends included) limits numbers.

    ``raises``: what lies below the range counts as its lower end, as onnxruntime takes it.

    ``no_effect`` says why one of onnxruntime's attributes changes nothing here; whoever sets another value than the
    default finds it in the log, as for configuration keys without effect.
    """

    def __init__(
        self,
        kind: type,
        default: _T,
        doc: str,
        *,
        range: tuple[float, float] | None = None,
        optional: bool = False,
        no_effect: str = "",
        raises: bool = False,
    ) -> None:
        self._raises = raises
        self._kind, self._default, self._range, self._optional = kind, default, range, optional
        self.no_effect = no_effect
        self.__doc__ = doc

    def __set_name__(self, owner: type, name: str) -> None:
        self._name, self._owner = name, owner.__name__

    @overload
    def __get__(self, instance: None, owner: type) -> Option[_T]: ...

    @overload
    def __get__(self, instance: object, owner: type) -> _T: ...

    def __get__(self, instance: object | None, owner: type) -> Option[_T] | _T:
        return self if instance is None else instance.__dict__.get(self._name, self._default)

    def __set__(self, instance: object, value: _T) -> None:
        checked = instance.__dict__[self._name] = self._checked(value)
        if self.no_effect and checked != self._default:
            log.info("%s %s has no effect here: %s", self._owner, self._name, self.no_effect)

    def _checked(self, value: object) -> object:
        if value is None and self._optional:
            return None
        if issubclass(self._kind, enum.IntEnum):
            return self._member(value)
        what = f"{self._owner}.{self._name}"
        if self._kind is str:
            return text(os.fspath(value) if isinstance(value, os.PathLike) else value, what)
        if self._kind is bool:
            return truth(value, what)
        if self._kind not in (int, float):
            if not isinstance(value, self._kind):
                raise InvalidType(f"{what} is {value!r} ({type(value).__name__}), expected {self._kind.__name__}")
            return value
        if self._kind is int or not isinstance(value, float):
            value = whole(value, what)
        if self._raises and self._range is not None:
            value = max(value, cast(int, self._range[0]))
        if self._range is not None and not self._range[0] <= cast(float, value) <= self._range[1]:
            raise InvalidValue(
                f"{self._owner}.{self._name} is {value!r}, expected {self._range[0]} to {self._range[1]}"
            )
        return value

    def _member(self, value: object) -> object:
        kind = cast("type[enum.IntEnum]", self._kind)
        if isinstance(value, int) and not isinstance(value, bool) and value in {int(member) for member in kind}:
            return kind(value)
        names = ", ".join(f"{kind.__name__}.{member.name}" for member in kind)
        raise InvalidType(f"{self._owner}.{self._name} is {value!r}, expected one of {names}")
