"""Shares of an attention that stand behind the values and turned, brought in front of them, as fusions know them.

    MatMul(v, Transpose(p))  with  p = Softmax(…), v: float[B, H, size, keys]  ->  Transpose(MatMul(p, Transpose(v)))

Attentions over images whose channels stay in front of the places have it, as those of older VAEs and of convolutions.
"""

from __future__ import annotations

from ort_core.plugin import Rejection
from ort_core.plugin.ir import Value
from ort_core.plugin.passes import Level, RulePass
from ort_core.plugin.rewrite import GraphPatch, Match, Pattern, RewriteRule, op, var


class TurnedShares(RewriteRule[tuple[int, ...]]):
    """Multiply shares by values in the place of values by turned shares."""

    name = "TurnedShares"

    def build_pattern(self) -> Pattern:
        """Return a product with what a softmax gave, turned."""
        return op("MatMul", var("values"), op("Transpose", op("Softmax", var("scores")), name="turned"))

    def check(self, match: Match) -> tuple[int, ...] | Rejection:
        """The last two axes must be swapped, and no others."""
        rank = match.node("turned").output.rank
        if rank not in (3, 4, 5) or match["values"].rank != rank:
            return Rejection("the ranks are not those of shares and values", match.root)
        swap = (*range(rank - 2), rank - 1, rank - 2)
        if match.node("turned").ints_attribute("perm") != swap:
            return Rejection("the shares are not turned by their last two axes", match.root)
        return swap

    def rewrite(self, match: Match, bindings: tuple[int, ...]) -> GraphPatch:
        """Turn the values, and the product."""
        patch = GraphPatch(match.model, match.root)
        shares = match.node("turned").inputs[0]
        assert isinstance(shares, Value)
        values = patch.op("Transpose", [match["values"]], {"perm": bindings})
        product = patch.op("MatMul", [shares, values])
        patch.replace(match.output, patch.op("Transpose", [product], {"perm": bindings}, type=match.output.type))
        patch.remove(match.root, match.node("turned"))
        return patch


TURNED_SHARES = RulePass("TurnedShares", [TurnedShares()], Level.EXTENDED)
