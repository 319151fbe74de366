"""The JSON schema of a call: one of several functions by its name, with arguments by the function's own schema.

That schema is written as a whole, and stands within another one here: what it refers to lies deeper, so its references
(``"$ref": "#/$defs/Point"``, as pydantic writes models within models) are turned to where that is now.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Schema = dict[str, Any]  # Any: JSON
_BY_NAME = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_VALUES = frozenset({"const", "enum", "default", "examples"})
_OF_WHOLE = frozenset({"$id", "$schema"})  # of a schema that is a document of its own


def call_schema(functions: Sequence[tuple[str, Schema | None]]) -> Schema:
    """Return the schema of a call.

    Args:
        functions: names, and schemas of their arguments; ``None``: any object.
    """
    if len(functions) == 1:
        return _call(*functions[0], "#")
    return {"anyOf": [_call(*each, f"#/anyOf/{place}") for place, each in enumerate(functions)]}


def _call(name: str, parameters: Schema | None, place: str) -> Schema:
    own = {key: value for key, value in (parameters or {"type": "object"}).items() if key not in _OF_WHOLE}
    return {
        "type": "object",
        "properties": {"name": {"const": name}, "arguments": _moved(own, f"{place}/properties/arguments")},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }


def _moved(schema: object, place: str) -> Any:  # Any: JSON
    """Return a schema whose references to its own parts begin at a place."""
    if isinstance(schema, list):
        return [_moved(each, place) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    found: Schema = {}
    for key, value in schema.items():
        if key == "$ref" and isinstance(value, str) and (value == "#" or value.startswith("#/")):
            found[key] = place + value[1:]
        elif key in _BY_NAME and isinstance(value, Mapping):
            found[key] = {name: _moved(each, place) for name, each in value.items()}
        else:
            found[key] = value if key in _VALUES else _moved(value, place)
    return found
