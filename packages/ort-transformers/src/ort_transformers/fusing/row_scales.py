"""Factors of the scores that are one for each head or each query, moved to the queries, as fusions know them.

    Mul(MatMul(q, k'), s)  with  s: float[heads, 1, 1]  ->  MatMul(Mul(q, s), k')

Attentions of cosines have them: Swin v2, XCiT, whose temperature was learned head by head. An operator for attentions
has one scale for all heads.
"""

from __future__ import annotations

from ort_core.plugin import Rejection
from ort_core.plugin.ir import Value
from ort_core.plugin.passes import Level, RulePass
from ort_core.plugin.rewrite import GraphPatch, Match, Pattern, RewriteRule, one_of, op, var
from ort_transformers.fusing.einsum_forms import leads_to_softmax


class ScaleOfRows(RewriteRule[Value]):
    """Multiply queries in the place of scores by a factor that all scores of a query have in common."""

    name = "ScaleOfRows"

    def build_pattern(self) -> Pattern:
        """Return a multiple of a product."""
        scores = op("MatMul", var("queries"), var("keys"), name="scores")
        factor = var("factor")
        return one_of(op("Mul", scores, factor), op("Mul", factor, scores), op("Div", scores, factor))

    def check(self, match: Match) -> Value | Rejection:
        """The factor must be one for each row, not one for all, and make no axis longer; a softmax must be near."""
        queries, factor = match["queries"], match["factor"]
        sizes, shape = factor.shape, queries.shape
        if sizes is None or shape is None or len(shape) not in (3, 4) or match.output.rank != len(shape):
            return Rejection("the ranks are not those of queries and a factor", match.root)
        if len(sizes) > len(shape) or not sizes or sizes[-1] != 1 or all(size == 1 for size in sizes):
            return Rejection("the factor is not one for each row of the scores", match.root)
        beside = shape[len(shape) - len(sizes) :]
        if any(size not in (1, other) or size is None for size, other in zip(sizes[:-1], beside, strict=False)):
            return Rejection("the factor is not known to have the sizes of the queries", match.root)
        if not leads_to_softmax(match.output):
            return Rejection("there is no softmax near, for which an attention could be", match.root)
        return factor

    def rewrite(self, match: Match, bindings: Value) -> GraphPatch:
        """Scale the queries."""
        patch = GraphPatch(match.model, match.root)
        queries, scores = match["queries"], match.node("scores").output
        scaled = patch.op(match.root.op_type, [queries, bindings], type=queries.type)
        patch.replace(match.output, patch.op("MatMul", [scaled, match["keys"]], type=scores.type))
        patch.remove(*match.nodes)
        return patch


ROW_SCALES = RulePass("ScaleOfRows", [ScaleOfRows()], Level.EXTENDED)
