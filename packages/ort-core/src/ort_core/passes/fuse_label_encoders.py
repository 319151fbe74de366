"""LabelEncoderFusion: two dictionaries one behind the other are one dictionary.

b = LabelEncoder<a -> p, b -> q, default d>(x)
y = LabelEncoder<p -> 1, q -> 2, default e>(b)     ->  y = LabelEncoder<a -> 1, b -> 2, default (d looked up)>(x)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ort_core.frozen import frozen
from ort_core.ir.attributes import Attribute, AttributeKind
from ort_core.ir.nodes import Node
from ort_core.ir.rejection import Rejection
from ort_core.rewrite.matcher import Match
from ort_core.rewrite.patch import GraphPatch
from ort_core.rewrite.pattern import Pattern, op, var
from ort_core.rewrite.rule import RewriteRule

ML_DOMAIN = "ai.onnx.ml"
_DEFAULTS: dict[str, object] = {"string": "_Unused", "int64": -1, "float": -0.0}  # as the specification has them
_LIST_KINDS = {"string": AttributeKind.STRINGS, "int64": AttributeKind.INTS, "float": AttributeKind.FLOATS}
_KINDS = {"string": AttributeKind.STRING, "int64": AttributeKind.INT, "float": AttributeKind.FLOAT}


@frozen
class Dictionary:
    """A LabelEncoder as data: the types of keys and values, the pairs, and what any other key gives."""

    key_type: str
    value_type: str
    pairs: Mapping[object, object]
    default: object


class LabelEncoderFusion(RewriteRule[Dictionary]):
    """Look up the values of the first encoder in the second."""

    name = "LabelEncoderFusion"

    def build_pattern(self) -> Pattern:
        """Return ``LabelEncoder(LabelEncoder(x))``."""
        first = op("LabelEncoder", var("x"), domain=ML_DOMAIN, since=2, name="first")
        return op("LabelEncoder", first, domain=ML_DOMAIN, since=2)

    def check(self, match: Match) -> Dictionary | Rejection:
        """Return the composed dictionary."""
        first, second = _dictionary_of(match.node("first")), _dictionary_of(match.root)
        if isinstance(first, Rejection) or isinstance(second, Rejection):
            return first if isinstance(first, Rejection) else second
        if first.value_type != second.key_type or first.value_type == "float":
            return Rejection("floats between the encoders compare by their own rules", match.root)
        pairs = {key: second.pairs.get(value, second.default) for key, value in first.pairs.items()}
        default = second.pairs.get(first.default, second.default)
        return Dictionary(first.key_type, second.value_type, pairs, default)

    def rewrite(self, match: Match, bindings: Dictionary) -> GraphPatch:
        """Make one encoder."""
        keys, values = bindings.key_type, bindings.value_type
        attributes = [
            Attribute(f"keys_{keys}s", _LIST_KINDS[keys], tuple(bindings.pairs)),
            Attribute(f"values_{values}s", _LIST_KINDS[values], tuple(bindings.pairs.values())),
            Attribute(f"default_{values}", _KINDS[values], bindings.default),
        ]
        patch = GraphPatch(match.model, match.root)
        new = patch.op("LabelEncoder", [match["x"]], attributes, domain=ML_DOMAIN, type=match.output.type)
        patch.replace(match.output, new)
        patch.remove(*match.nodes)
        return patch


def _dictionary_of(node: Node) -> Dictionary | Rejection:
    keys, values = _only_list(node, "keys"), _only_list(node, "values")
    if keys is None or values is None:
        return Rejection("the keys or values are tensors or of several types", node)
    (key_type, key_list), (value_type, value_list) = keys, values
    default = node.attribute(f"default_{value_type}", _DEFAULTS[value_type])
    pairs: dict[object, object] = {}
    for key, value in zip(key_list, value_list):
        pairs.setdefault(key, value)
    if len(pairs) != len(key_list):
        return Rejection("a key occurs twice", node)
    return Dictionary(key_type, value_type, pairs, default)


def _only_list(node: Node, prefix: str) -> tuple[str, Sequence[object]] | None:
    found = [
        (kind, value)
        for kind in _LIST_KINDS
        if isinstance(value := node.attribute(f"{prefix}_{kind}s"), tuple) and value
    ]
    return found[0] if len(found) == 1 and f"{prefix}_tensor" not in node.attributes else None
