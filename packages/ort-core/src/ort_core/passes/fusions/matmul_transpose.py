"""MatmulTransposeFusion: a transposition of the last two axes in front of a matrix product becomes an attribute.

    y = MatMul(Transpose(a) {perm swaps the last two axes}, b)     ->  y = FusedMatMul(a, b) {transA = 1}

and the same for b. The Transpose may have other readers: it then stays for them.
"""

from __future__ import annotations

from typing import ClassVar

from ort_core.ir.nodes import Node
from ort_core.ir.rejection import Rejection
from ort_core.ir.values import Value
from ort_core.passes.fusions.matmul_scale import FLOATS, operands_of, product_attributes
from ort_core.passes.fusions.operands import ONNXRUNTIME, refuse_dtype
from ort_core.rewrite.fuse import fuse
from ort_core.rewrite.matcher import Match, constant_of
from ort_core.rewrite.patch import GraphPatch
from ort_core.rewrite.pattern import Pattern, one_of, op, var
from ort_core.rewrite.rule import RewriteRule


def swaps_last_axes(node: Node) -> bool:
    """Return whether a Transpose swaps the last two axes and keeps the others."""
    perm = node.ints_attribute("perm")
    if perm is None:
        source = node.input(0)
        return source is not None and source.rank == 2
    return len(perm) >= 2 and perm == (*range(len(perm) - 2), len(perm) - 1, len(perm) - 2)


class MatmulTransposeFusion(RewriteRule[str]):
    """Fuse one transposed operand at a time; the binding is the attribute."""

    name = "MatmulTransposeFusion"
    emits: ClassVar[tuple[tuple[str, str], ...]] = ((ONNXRUNTIME, "FusedMatMul"),)

    def build_pattern(self) -> Pattern:
        """Return a product one of whose operands is transposed."""
        turned = op("Transpose", var("x"), name="transpose", where=swaps_last_axes, shared=True)
        orders = ((turned, var("other")), (var("other"), turned))
        domains = (("MatMul", ""), ("FusedMatMul", ONNXRUNTIME))
        return one_of(
            *(op(kind, *order, domain=domain, name="product") for kind, domain in domains for order in orders)
        )

    def check(self, match: Match) -> str | Rejection:
        """Both operands must be matrices or stacks of them."""
        other = match["other"]
        if other.rank is None or other.rank < 2:
            return Rejection(f"{other.name!r} is not known to be a matrix", match.root)
        if constant_of(match["x"]) is not None:
            return Rejection("a transposed constant is folded", match.root)
        refusal = refuse_dtype(match["x"], match.root, FLOATS)
        if refusal is not None:
            return refusal
        return "transA" if _is_first(match) else "transB"

    def rewrite(self, match: Match, bindings: str) -> GraphPatch:
        """Put the fused product there; transposing twice is not transposing."""
        patch = GraphPatch(match.model, match.root)
        attributes = product_attributes(match.root)
        attributes[bindings] = 1 - int(bool(attributes[bindings]))
        pair: list[Value | None] = [match["x"], match["other"]]
        fuse(patch, match, "FusedMatMul", pair if bindings == "transA" else pair[::-1], attributes)
        return patch


def _is_first(match: Match) -> bool:
    return operands_of(match.root)[0] is match.node("transpose").output
