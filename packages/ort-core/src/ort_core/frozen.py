"""``frozen``: frozen dataclasses with slots that are cheap to define, for modules that every session imports.

``dataclass(frozen=True, slots=True)`` compiles six functions and looks into many places: 0.8 to 1.1 ms for a class of
four fields (twenty times what this takes), and a session out of the cache imports fifty such classes, of most of which
it makes no instance. Here one function is compiled, ``__init__``, when the first instance is made; the others are
shared. A class behaves as the plain decorator's would, which the tests hold it against; ``dataclasses.fields``,
``replace`` and ``asdict`` ask it for its fields and then do pay.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar, dataclass_transform

from ort_core.annotated_names import own_annotations

if TYPE_CHECKING:
    import inspect

T = TypeVar("T")
_MISSING = object()


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
def frozen(cls: type[T]) -> type[T]:
    """Return the class with its annotations as fields, immutable, compared and hashed by value.

        >>> @frozen
        ... class Size:
        ...     width: int
        ...     height: int = 1
        >>> Size(3), Size(3) == Size(3, 1), Size(3) in {Size(3)}
        (Size(width=3, height=1), True, True)

    Defaults are values or ``dataclasses.field(default_factory=...)``. ``__post_init__`` is called; what the class
    defines itself stays. As with any class of slots that is made anew, ``super()`` without arguments does not work.

    Raises:
        TypeError: a field asks for more than a default.
        ValueError: a default is mutable.
    """
    own = dict(vars(cls))
    kinds = {name: str(kind) for name, kind in own_annotations(cls).items()}
    names = [name for name, kind in kinds.items() if "ClassVar" not in kind]
    if special := [name for name in names if "KW_ONLY" in kinds[name] or "InitVar" in kinds[name]]:
        raise TypeError(
            f"field {special[0]!r}: fields are plain ones here; dataclasses.dataclass knows {kinds[special[0]]}"
        )
    defaults = {name: own.pop(name) for name in names if name in own}
    for name, default in defaults.items():
        if isinstance(default, dataclasses.Field) and not _is_plain(default):
            raise TypeError(f"field {name!r}: only a default_factory is understood here")
        if type(default).__hash__ is None:
            raise ValueError(f"field {name!r}: the default {default!r} is mutable; give a default_factory")
    inherited: tuple[str, ...] = getattr(cls, "__match_args__", ())
    every = (*inherited, *(name for name in names if name not in inherited))
    defaults = {**getattr(cls, "_frozen_defaults", {}), **defaults}
    own.update(
        __slots__=tuple(name for name in names if name not in inherited),
        __match_args__=every,
        _frozen_defaults=defaults,
        _frozen_values=staticmethod(_values(every)),
        __dataclass_fields__=_Twin("__dataclass_fields__"),
        __dataclass_params__=_Twin("__dataclass_params__"),
    )
    for name in ("__dict__", "__weakref__"):
        own.pop(name, None)
    for name, method in _METHODS.items():
        own.setdefault(name, method)
    if own["__hash__"] is None:  # Python puts that where a class defines __eq__ alone
        own["__hash__"] = _METHODS["__hash__"]
    found: type[T] = type(cls)(cls.__name__, cls.__bases__, own)  # type: ignore[misc]  # a metaclass makes a class
    found.__qualname__ = cls.__qualname__
    if "__init__" not in own:
        setattr(found, "__init__", _late_init(found))  # noqa: B010 - mypy lets nobody assign to a method
        setattr(found, "__signature__", _Signature(found))  # noqa: B010 - as above
    return found


def _values(names: tuple[str, ...]) -> Callable[[object], tuple[object, ...]]:
    """Return what takes an instance's values as a tuple: comparing those, Python takes an array or a NaN for itself."""
    if len(names) > 1:
        return attrgetter(*names)
    return (lambda self: (getattr(self, names[0]),)) if names else lambda _: ()


def _late_init(cls: type) -> Callable[..., None]:
    """Return an ``__init__`` that gives way to a compiled one when the first instance is made."""

    def __init__(self: object, *values: object, **named: object) -> None:  # noqa: N807 - it stands for that one
        compile_init(cls)(self, *values, **named)

    __init__.__qualname__ = f"{cls.__qualname__}.__init__"
    return __init__


def compile_init(cls: Any) -> Callable[..., None]:  # Any: of any frozen class
    """Give a frozen class its ``__init__`` and return it."""
    setters = {name: getattr(cls, name).__set__ for name in cls.__match_args__}
    found = cls.__init__ = _init(setters, cls._frozen_defaults, hasattr(cls, "__post_init__"))
    found.__qualname__ = f"{cls.__qualname__}.__init__"
    return found


class _Signature:
    """The signature that a class shows, which would else be that of the ``__init__`` that has not been compiled."""

    def __init__(self, cls: type) -> None:
        self._cls = cls

    def __get__(self, instance: object, owner: type) -> inspect.Signature:
        if instance is not None or owner is not self._cls:
            raise AttributeError("__signature__")  # of an instance, or of a class with an __init__ of its own
        import inspect  # whoever asks has it

        signature = inspect.signature(compile_init(owner))
        return signature.replace(parameters=list(signature.parameters.values())[1:])


class _Twin:
    """An attribute of the dataclass that the plain decorator makes of the same fields, made when first asked for."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: type) -> object:
        kinds: dict[str, Any] = {}  # Any: annotations as they are written
        for base in reversed(owner.__mro__):
            kinds.update(own_annotations(base))
        fields = [
            (name, kinds[name], _field(owner._frozen_defaults[name])) if name in owner._frozen_defaults  # type: ignore[attr-defined]  # frozen gave it
            else (name, kinds[name])
            for name in owner.__match_args__  # type: ignore[attr-defined]  # as above
        ]  # fmt: skip
        twin = dataclasses.make_dataclass(owner.__name__, fields, frozen=True, slots=True)
        setattr(owner, self._name, getattr(twin, self._name))  # in place of this descriptor
        return getattr(twin, self._name)


def _field(default: object) -> Any:  # Any: what dataclasses.field says it returns
    return default if isinstance(default, dataclasses.Field) else dataclasses.field(default=default)


def _init(
    setters: dict[str, Callable[..., None]], defaults: dict[str, Any], calls_post_init: bool
) -> Callable[..., None]:
    """Compile ``__init__``, which puts values into their slots at two thirds of what ``object.__setattr__`` takes."""
    scope: dict[str, Any] = {"_missing": _MISSING, **{f"_set_{name}": each for name, each in setters.items()}}
    parameters, body = ["self"], []
    for name in setters:
        value = name
        if name in defaults:
            default = defaults[name]
            scope[f"_{name}_default"] = default
            if isinstance(default, dataclasses.Field):
                scope[f"_{name}_default"], scope[f"_{name}_made"] = _MISSING, default.default_factory
                value = f"_{name}_made() if {name} is _missing else {name}"
        parameters.append(f"{name}=_{name}_default" if name in defaults else name)
        body.append(f"    _set_{name}(self, {value})")
    if calls_post_init:
        body.append("    self.__post_init__()")
    exec(f"def __init__({', '.join(parameters)}):\n" + "\n".join(body or ["    pass"]), scope)
    made: Callable[..., None] = scope["__init__"]
    return made


def _is_plain(field: dataclasses.Field[Any]) -> bool:
    """Return whether a field has a factory, and nothing else that the plain decorator knows."""
    others = (field.init, field.repr, field.compare, field.hash is None, not field.metadata)
    return field.default_factory is not dataclasses.MISSING and all(others) and field.kw_only is not True


def _refuse_set(self: object, name: str, value: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_delete(self: object, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _equal(self: Any, other: Any) -> bool:  # Any, here and below: of any frozen class
    return (
        self._frozen_values(self) == self._frozen_values(other) if other.__class__ is self.__class__ else NotImplemented
    )


def _hash(self: Any) -> int:
    return hash(self._frozen_values(self))


def _text(self: Any) -> str:
    fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__match_args__)
    return f"{type(self).__qualname__}({fields})"


def _state(self: Any) -> list[object]:
    return [getattr(self, name) for name in self.__match_args__]


def _restore(self: Any, state: list[object]) -> None:
    for name, value in zip(self.__match_args__, state, strict=True):
        object.__setattr__(self, name, value)


_METHODS = {
    "__setattr__": _refuse_set, "__delattr__": _refuse_delete, "__eq__": _equal, "__hash__": _hash, "__repr__": _text,
    "__getstate__": _state, "__setstate__": _restore,
}  # fmt: skip
