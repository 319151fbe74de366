"""What is wrong with a model's settings, in sentences: where, what was found, and what may stand there.

instances must be a whole number; found true
there is no setting instnces; did you mean instances?
"""

from __future__ import annotations

import difflib
import json
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

_KINDS = {
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "a text in quotes",
    "tuple_type": "a list",
    "dict_type": "a table of names and values",
    "model_type": "a table of names and values",
    "finite_number": "a finite number",
}
_BOUNDS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "greater_than": lambda told: f"more than {told['gt']}",
    "greater_than_equal": lambda told: f"at least {told['ge']}",
    "less_than_equal": lambda told: f"at most {told['le']}",
    "literal_error": lambda told: f"one of {told['expected']}",
}
_LONGEST = 60  # characters of a value that is told


def refusal(error: ValidationError, settings: type[BaseModel], names: Mapping[str, str]) -> str:
    """Return one sentence for each fault that was found.

    Args:
        error: what pydantic found.
        settings: whose names are known.
        names: what a setting is called in the file, by its name here, where that differs.
    """
    return "; ".join(_sentence(item, settings, names) for item in error.errors())


def _sentence(item: Any, settings: type[BaseModel], names: Mapping[str, str]) -> str:
    place: tuple[int | str, ...] = item["loc"]
    if item["type"] == "extra_forbidden":
        return _unknown(place, settings)
    where = _written(place, names)
    if item["type"] == "missing":
        return f"{where} is missing"
    told = item.get("ctx", {})
    if item["type"] == "value_error":
        text = str(told["error"])
        return f"{where} {text}; found {_shown(item['input'])}" if text.startswith("must ") else f"{where}: {text}"
    bound = _BOUNDS.get(item["type"])
    wanted = _KINDS.get(item["type"]) if bound is None else bound(told)
    if wanted is None:
        return f"{where}: {item['msg']}; found {_shown(item['input'])}"
    return f"{where} must be {wanted}; found {_shown(item['input'])}"


def _written(place: Sequence[int | str], names: Mapping[str, str]) -> str:
    """Return the path of a setting, as the file writes it."""
    parts = list(map(str, place))
    for count in range(len(parts), 0, -1):
        name = names.get(".".join(parts[:count]))
        if name is not None:
            return ".".join([name, *parts[count:]])
    return ".".join(parts)


def _unknown(place: Sequence[int | str], settings: type[BaseModel]) -> str:
    """Tell of a name that is no setting: which one may be meant, or where it belongs."""
    name = str(place[-1])
    known = _names(_table(place[:-1], settings))
    where = ".".join(map(str, place))
    near = difflib.get_close_matches(name.lower(), known, 1, 0.6)
    if near:
        return f"there is no setting {where}; did you mean {near[0]}?"
    owner = next((table for table, names in _tables(settings).items() if name in names), None)
    if owner is not None:
        return (
            f"there is no setting {where}; {name} belongs to {owner}"
            if owner
            else (f"there is no setting {where}; {name} belongs above all tables")
        )
    return f"there is no setting {where}; there are {', '.join(known)}"


def _names(settings: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in settings.model_fields.items()]


def _table(place: Sequence[int | str], settings: type[BaseModel]) -> type[BaseModel]:
    """Return the settings that a place of the file belongs to."""
    for part in place:
        inner = _inner(settings, part) if isinstance(part, str) else None
        settings = inner or settings
    return settings


def _inner(settings: type[BaseModel], name: str) -> type[BaseModel] | None:
    """Return the settings within a field; a list or a table of them counts, too."""
    field = settings.model_fields.get(name)
    waiting: list[Any] = [] if field is None else [field.annotation]
    while waiting:
        kind = waiting.pop()
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            return kind
        waiting += typing.get_args(kind)
    return None


def _tables(settings: type[BaseModel]) -> dict[str, list[str]]:
    """Return the names of all tables' settings; the outermost table has an empty name."""
    found = {"": _names(settings)}
    for name in settings.model_fields:
        inner = _inner(settings, name)
        if inner is not None:
            found[f"[{name}]"] = _names(inner)
    return found


def _shown(value: object) -> str:
    """Return a value as TOML writes it, cut where it is long."""
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
    except ValueError:  # an integer of thousands of digits
        text = "a number of thousands of digits"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
