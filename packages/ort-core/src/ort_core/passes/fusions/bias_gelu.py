"""BiasGeluFusion: the addition of a bias in front of a Gelu becomes part of it.

    y = Gelu(Add(x, bias))        ->  y = BiasGelu(x, bias)
    y = FastGelu(Add(x, bias))    ->  y = FastGelu(x, bias)

The bias must be a vector as long as the last axis of x.
"""

from __future__ import annotations

from typing import ClassVar

from ort_core.ir.rejection import Rejection
from ort_core.passes.fusions.operands import ONNXRUNTIME, dim, is_vector_of, refuse_dtype
from ort_core.rewrite.fuse import fuse
from ort_core.rewrite.matcher import Match
from ort_core.rewrite.patch import GraphPatch
from ort_core.rewrite.pattern import Pattern, one_of, op, var
from ort_core.rewrite.rule import RewriteRule


class BiasGeluFusion(RewriteRule[None]):
    """Fuse the bias into either Gelu."""

    name = "BiasGeluFusion"
    emits: ClassVar[tuple[tuple[str, str], ...]] = ((ONNXRUNTIME, "BiasGelu"), (ONNXRUNTIME, "FastGelu"))

    def build_pattern(self) -> Pattern:
        """Return the Gelus that exist, over an addition whose bias is a vector."""
        added = op("Add", var("x"), var("bias", where=lambda value: value.rank == 1))
        return one_of(
            op("Gelu", added, domain=ONNXRUNTIME),
            op("Gelu", added, since=20),
            op("FastGelu", added, domain=ONNXRUNTIME),
        )

    def check(self, match: Match) -> Rejection | None:
        """The bias must match the last axis."""
        x, bias = match["x"], match["bias"]
        if not is_vector_of(bias, dim(x, -1)):
            return Rejection(
                f"bias {bias.name!r} is not known to be as long as the last axis of {x.name!r}", match.root
            )
        return refuse_dtype(x, match.root)

    def rewrite(self, match: Match, bindings: None) -> GraphPatch:
        """Put the Gelu with a bias there."""
        patch = GraphPatch(match.model, match.root)
        is_fast = match.root.op_type == "FastGelu" or match.root.string_attribute("approximate", "none") == "tanh"
        op_type = "FastGelu" if is_fast else "BiasGelu"
        fuse(patch, match, op_type, [match["x"], match["bias"]])
        return patch
