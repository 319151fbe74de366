"""JSON schemas drawn by a seed: every keyword that the grammar promises to follow, nested."""

from __future__ import annotations

import random
from typing import Any

Schema = dict[str, Any]


def random_schema(seed: int) -> Schema:
    """Return a schema whose texts are short."""
    return _schema(random.Random(seed), 3)


def _schema(draw: random.Random, depth: int) -> Schema:
    kinds = [_integer, _number, _string, _choice, _fixed, _boolean, _pattern]
    if depth:
        kinds += [_object, _object, _array, _tuple, _any_of]
    return draw.choice(kinds)(draw, depth)


def _integer(draw: random.Random, _: int) -> Schema:
    least = draw.randint(-500, 500)
    found: Schema = {"type": "integer", "minimum": least, "maximum": least + draw.randint(0, 400)}
    if draw.random() < 0.3:
        found["exclusiveMaximum"] = found.pop("maximum") + 1
    return found


def _number(draw: random.Random, _: int) -> Schema:
    least = draw.randint(-50, 50)
    return {"type": "number", "minimum": least, "maximum": least + draw.randint(1, 40)}


def _string(draw: random.Random, _: int) -> Schema:
    least = draw.randint(0, 4)
    return {"type": "string", "minLength": least, "maxLength": least + draw.randint(0, 8)}


def _pattern(draw: random.Random, _: int) -> Schema:
    return {
        "type": "string",
        "pattern": draw.choice(["^[a-z]{2,5}$", "^[0-9]{3}-[0-9]{2}$", "^(yes|no|maybe)$", "^x*y$"]),
    }


def _choice(draw: random.Random, _: int) -> Schema:
    return {"enum": draw.sample(["red", "green", 'a"b', 3, -1.5, True, None, "ü"], draw.randint(1, 4))}


def _fixed(draw: random.Random, _: int) -> Schema:
    return {"const": draw.choice(["one", 2, None, [1, "a"], {"k": [True]}])}


def _boolean(draw: random.Random, _: int) -> Schema:
    return {"type": draw.choice(["boolean", "null", ["boolean", "null"]])}


def _object(draw: random.Random, depth: int) -> Schema:
    names = draw.sample(["name", "age", "größe", "a b", "x", "list"], draw.randint(0, 4))
    required = [name for name in names if draw.random() < 0.7]
    properties = {name: _schema(draw, depth - 1) for name in names}
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _array(draw: random.Random, depth: int) -> Schema:
    least = draw.randint(0, 2)
    return {
        "type": "array",
        "items": _schema(draw, depth - 1),
        "minItems": least,
        "maxItems": least + draw.randint(0, 2),
    }


def _tuple(draw: random.Random, depth: int) -> Schema:
    parts = [_schema(draw, depth - 1) for _ in range(draw.randint(1, 3))]
    return {"type": "array", "prefixItems": parts, "items": False, "minItems": len(parts)}


def _any_of(draw: random.Random, depth: int) -> Schema:
    return {"anyOf": [_schema(draw, depth - 1) for _ in range(draw.randint(1, 3))]}
