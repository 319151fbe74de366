"""Biases that are added to scores while these have the axes of images, as biases of the scores themselves.

    Reshape(Add(Add(Reshape(s, (b, h, w, h, w)), rows), columns), (b, h * w, h * w))
        ->  Add(s, Reshape(Add(rows, columns), (b, h * w, h * w)))

Vision transformers with decomposed relative positions have it (MViT, ViTDet, the first Segment Anything).
"""

from __future__ import annotations

from ort_core.plugin import Rejection
from ort_core.plugin.ir import TensorType, Value
from ort_core.plugin.passes import Level, RulePass
from ort_core.plugin.rewrite import GraphPatch, Match, Pattern, RewriteRule, op, var
from ort_transformers.fusing.einsum_forms import leads_to_softmax


class BiasesApart(RewriteRule[TensorType]):
    """Add both biases to each other, and their sum to the scores as they were."""

    name = "BiasesApart"

    def build_pattern(self) -> Pattern:
        """Return scores that are reshaped, added to twice, and reshaped."""
        apart = op("Reshape", var("scores"), var("wide"), name="apart")
        inner = op("Add", apart, var("first"), name="inner")
        return op("Reshape", op("Add", inner, var("second"), name="outer"), var("shape"))

    def check(self, match: Match) -> TensorType | Rejection:
        """The second Reshape must undo the first, and the sum of the biases have all sizes in between."""
        scores, wide = match["scores"], match.node("apart").output
        biases = [match["first"].shape, match["second"].shape]
        if scores.shape is None or None in scores.shape or scores.shape != match.output.shape:
            return Rejection("the scores are not known to have the same sizes behind it", match.root)
        if wide.shape is None or None in wide.shape or any(each is None or None in each for each in biases):
            return Rejection("the sizes of the biases are not known", match.root)
        sums = _broadcast(*(each for each in biases if each is not None))
        if sums != wide.shape or match.node("outer").output.shape != wide.shape:
            return Rejection("the biases together do not have the sizes of the scores", match.root)
        if not leads_to_softmax(match.output):
            return Rejection("there is no softmax near, for which an attention could be", match.root)
        assert isinstance(wide.type, TensorType)
        return wide.type

    def rewrite(self, match: Match, bindings: TensorType) -> GraphPatch:
        """Put the sum of the biases there, and that of the scores with it."""
        patch = GraphPatch(match.model, match.root)
        total = patch.op("Add", [match["first"], match["second"]], type=bindings)
        attributes = dict(match.root.attributes)
        bias: Value = patch.op("Reshape", [total, match["shape"]], attributes, type=match.output.type)
        patch.replace(match.output, patch.op("Add", [match["scores"], bias], type=match.output.type))
        patch.remove(*match.nodes)
        return patch


def _broadcast(left: tuple[object, ...], right: tuple[object, ...]) -> tuple[object, ...] | None:
    """Return the sizes of a sum, where one of two sizes is 1 or both are the same."""
    if len(left) != len(right):
        return None
    if any(a != b and 1 not in (a, b) for a, b in zip(left, right, strict=True)):
        return None
    return tuple(b if a == 1 else a for a, b in zip(left, right, strict=True))


BIASES_APART = RulePass("BiasesApart", [BiasesApart()], Level.EXTENDED)
