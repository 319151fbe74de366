"""StringLabelSplit: a classifier with string labels is one with numbers, which compiles, and a table of strings.

label, scores = LinearClassifier<classlabels_strings = ["cat", "dog"]>(x)
->  number, scores = LinearClassifier<classlabels_ints = [0, 1]>(x)
label = LabelEncoder<keys_int64s = [0, 1], values_strings = ["cat", "dog"]>(number)
"""

from __future__ import annotations

from ort_core.plugin import Rejection
from ort_core.plugin.ir import Attribute, AttributeKind, DataType, TensorType, Value
from ort_core.plugin.rewrite import GraphPatch, Match, Pattern, RewriteRule, op, var

ML_DOMAIN = "ai.onnx.ml"
STRINGS = "classlabels_strings"
NUMBERS = {
    "LinearClassifier": "classlabels_ints",
    "SVMClassifier": "classlabels_ints",
    "TreeEnsembleClassifier": "classlabels_int64s",
}


class SplitStringLabels(RewriteRule[tuple[str, ...]]):
    """Number the labels of a classifier; the binding is the labels."""

    name = "StringLabelSplit"

    def build_pattern(self) -> Pattern:
        """Return a classifier."""
        return op(tuple(NUMBERS), var("x"), domain=ML_DOMAIN, shared=True)  # the scores are read as well

    def check(self, match: Match) -> tuple[str, ...] | Rejection:
        """The labels must be strings, and someone must want them."""
        labels = match.root.attribute(STRINGS)
        if not isinstance(labels, tuple) or not labels or match.root.attribute(NUMBERS[match.root.op_type]):
            return Rejection("the labels are not strings", match.root)
        if match.root.outputs[0] is None:
            return Rejection("nobody reads the labels", match.root)
        return tuple(map(str, labels))

    def rewrite(self, match: Match, bindings: tuple[str, ...]) -> GraphPatch:
        """Make the classifier and the table."""
        patch, root = GraphPatch(match.model, match.root), match.root
        numbers = tuple(range(len(bindings)))
        kept = [each for name, each in root.attributes.items() if name != STRINGS]
        attributes = [*kept, Attribute(NUMBERS[root.op_type], AttributeKind.INTS, numbers)]
        types = [None if value is None else value.type for value in root.outputs]
        label = types[0]
        shape = label.shape if isinstance(label, TensorType) else None
        types[0] = TensorType(DataType.INT64, shape)
        node = patch.node(root.op_type, [match["x"]], attributes, outputs=types, domain=ML_DOMAIN)
        for old, new in zip(root.outputs[1:], node.outputs[1:], strict=True):
            if old is not None and new is not None:
                patch.replace(old, new)
        patch.replace(root.output, self._table(patch, match, node.output, bindings))
        patch.remove(root)
        return patch

    def _table(self, patch: GraphPatch, match: Match, number: Value, labels: tuple[str, ...]) -> Value:
        attributes = [Attribute("classes_strings", AttributeKind.STRINGS, labels)]
        if match.opset() >= 2:
            attributes = [
                Attribute("keys_int64s", AttributeKind.INTS, tuple(range(len(labels)))),
                Attribute("values_strings", AttributeKind.STRINGS, labels),
            ]
        return patch.op("LabelEncoder", [number], attributes, domain=ML_DOMAIN, type=match.output.type)
