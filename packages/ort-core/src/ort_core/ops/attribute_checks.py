"""What rules of attributes are made of: a check returns why a node is impossible, ``None`` when it is sound."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ort_core.ir.nodes import Node
from ort_core.ir.types import DataType
from ort_core.ops.windows import SAME

AttributeRule = Callable[[Node, int], str | None]
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


def flags(*names: str) -> AttributeRule:
    """Require attributes to be 0 or 1."""

    def rule(node: Node, since_version: int) -> str | None:
        return next((text for name in names if (text := flag(node, name)) is not None), None)

    return rule


def words(**known: Sequence[str]) -> AttributeRule:
    """Require attributes to be one of some words; the first one is the default."""

    def rule(node: Node, since_version: int) -> str | None:
        return next((text for name, each in known.items() if (text := one_of(node, name, each)) is not None), None)

    return rule


def in_range(name: str, least: int, most: int | None = None) -> AttributeRule:
    """Require an integer attribute, if it is there, to lie between bounds."""

    def rule(node: Node, since_version: int) -> str | None:
        value = node.int_attribute(name, least)
        if value >= least and (most is None or value <= most):
            return None
        bounds = f"at least {least}" if most is None else f"from {least} to {most}"
        return f"attribute {name} must be {bounds}, found {value}"

    return rule


def element_type(name: str) -> AttributeRule:
    """Require an attribute, if it is there, to be the number of an element type."""
    known = {each.value for each in DataType if each is not DataType.UNDEFINED}

    def rule(node: Node, since_version: int) -> str | None:
        value = node.int_attribute(name, DataType.FLOAT.value)
        if value in known:
            return None
        return (
            f"attribute {name} must be the number of an element type, as TensorProto.DataType has them; found {value}"
        )

    return rule


def not_negative(*names: str) -> AttributeRule:
    """Require numbers to be at least 0; NaN is not."""
    return _numbers(names, 0.0, lambda value: value >= 0, "at least 0")


def above_zero(*names: str) -> AttributeRule:
    """Require numbers to be greater than 0; NaN is not."""
    return _numbers(names, 1.0, lambda value: value > 0, "greater than 0")


def _numbers(names: Sequence[str], default: float, holds: Callable[[float], bool], wanted: str) -> AttributeRule:
    def rule(node: Node, since_version: int) -> str | None:
        for name in names:
            value = node.float_attribute(name, default)
            if not holds(value):
                return f"attribute {name} must be {wanted}, found {value}"
        return None

    return rule


def flag(node: Node, name: str) -> str | None:
    """Check that an attribute is 0 or 1."""
    value = node.int_attribute(name, 0)
    return None if value in (0, 1) else f"attribute {name} must be 0 or 1, found {value}"


def one_of(node: Node, name: str, known: Sequence[str]) -> str | None:
    """Check that an attribute is one of some words."""
    value = node.attribute(name, known[0])
    return None if value in known else f"attribute {name} must be one of {', '.join(known)}, found {value!r}"


def length(node: Node, name: str) -> int:
    """Return how many elements a list has, 0 where it is not there."""
    value = node.attribute(name, ())
    return len(value) if isinstance(value, tuple) else 0


def padding(node: Node, since_version: int) -> str | None:
    """Require pads or auto_pad, not both, and a word that there is."""
    automatic = node.string_attribute("auto_pad", "NOTSET")
    if node.ints_attribute("pads") is not None and automatic not in ("", "NOTSET"):
        return f"attribute pads cannot be used with auto_pad, found {automatic}"
    return one_of(node, "auto_pad", ("NOTSET", "", "VALID", *SAME))


def exactly_one(node: Node, names: Sequence[str]) -> str | None:
    """Check that one of some attributes is there."""
    given = [name for name in names if name in node.attributes]
    if len(given) == 1:
        return None
    return f"exactly one of the attributes {', '.join(names)} must be set, found {', '.join(given) or 'none'}"


def one_kind(node: Node, names: Sequence[str]) -> str | None:
    """Check that exactly one of some lists has elements."""
    given = [name for name in names if length(node, name)]
    if len(given) == 1:
        return None
    return f"one of the attributes {', '.join(names)} must have elements, found {', '.join(given) or 'none'}"


def transform(node: Node, since_version: int) -> str | None:
    """Check ``post_transform``."""
    return one_of(node, "post_transform", TRANSFORMS)
