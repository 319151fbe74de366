"""EmptyPartElimination: parts of a Concat that have no elements.

    e = Slice(x, 64, big, -1)   (of rows of 64: nothing)   y = Concat<axis = -1>(r, e)     ->  readers of y read r

Exporters write them for rotary embeddings of all of a head (`x[..., rotary:]`) and for caches without a past. A part
of no length along the axis gives no element, whatever its other sizes are; those must be the same as they must be in a
run, so that one that does not fit is still refused.
"""

from __future__ import annotations

from ort_core.ir.rejection import Rejection
from ort_core.ir.types import Shape
from ort_core.ir.values import Value
from ort_core.rewrite.matcher import Match
from ort_core.rewrite.patch import GraphPatch
from ort_core.rewrite.pattern import Pattern, op, var
from ort_core.rewrite.rule import RewriteRule


class EmptyPartElimination(RewriteRule[list[Value]]):
    """Remove parts of a Concat that are empty in every run."""

    name = "EmptyPartElimination"

    def build_pattern(self) -> Pattern:
        """Return any Concat; ``check`` looks at its parts."""
        return op("Concat", var("first"), more_inputs=True)

    def check(self, match: Match) -> list[Value] | Rejection:
        """Return the parts that stay, of which there must be one, and fewer than before."""
        parts, shape = tuple(match.root.present_inputs()), match.output.shape
        if shape is None:
            return Rejection("the rank is not known", match.root)
        axis = match.root.int_attribute("axis", 0) % max(1, len(shape))
        kept = [part for part in parts if not _is_empty(part, len(shape), axis)]
        if not kept or len(kept) == len(parts):
            return Rejection("no part is known to be empty beside others that are not", match.root)
        sizes = {_beside(part.shape, axis) for part in parts}
        if len(sizes) > 1 or None in next(iter(sizes)):
            return Rejection("sizes beside the axis may differ", match.root)
        return kept

    def rewrite(self, match: Match, bindings: list[Value]) -> GraphPatch:
        """Concatenate the other parts; one alone is the result."""
        patch = GraphPatch(match.model, match.root)
        result = bindings[0]
        if len(bindings) > 1:
            result = patch.op("Concat", bindings, match.root.attributes.values(), type=match.output.type)
        patch.replace(match.output, result)
        patch.remove(match.root)
        return patch


def _is_empty(part: Value, rank: int, axis: int) -> bool:
    return part.shape is not None and len(part.shape) == rank and part.shape[axis] == 0


def _beside(shape: Shape | None, axis: int) -> Shape:
    """Return the sizes along the other axes; what is not known is unlike all else."""
    return (None,) if shape is None else (*shape[:axis], *shape[axis + 1 :])
