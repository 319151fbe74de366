"""Signs that are factors, as fusions of rotations know them: differences and negated halves.

    Add(a, Mul(b, -1))                                   ->  Sub(a, b)                 torch.addcmul(…, value=-1)
    Add(a, Mul(Mul(b, -1), c))                           ->  Sub(a, Mul(b, c))         the same by dynamo
    Mul(Concat(a, b), (-1, …, -1, 1, …, 1))              ->  Concat(Neg(a), b)         torch.roll with signs

A product with 1 or -1 is exact, so the results stay the same bits.
"""

from __future__ import annotations

import numpy as np

from ort_core.plugin import Rejection
from ort_core.plugin.ir import TensorType, Value
from ort_core.plugin.passes import Level, RulePass
from ort_core.plugin.rewrite import GraphPatch, Match, Pattern, RewriteRule, constant, is_scalar, one_of, op, var
from ort_transformers.fusing.fixed_constants import constant_array


class NegatedAddends(RewriteRule[None]):
    """Subtract what is multiplied by -1 and added."""

    name = "NegatedAddends"

    def build_pattern(self) -> Pattern:
        """Return a sum with a product with -1."""
        negated = op("Mul", var("b"), is_scalar(-1.0, name="sign", relative=0.0))
        return op("Add", var("a"), one_of(negated, op("Mul", negated, var("c"))))

    def check(self, match: Match) -> Rejection | None:
        """The factor must not give the other one more axes."""
        rank, sign = match["b"].rank, match["sign"].rank
        if rank is None or sign is None or sign > rank:
            return Rejection(f"{match['sign'].name!r} may give {match['b'].name!r} more axes", match.root)
        return None

    def rewrite(self, match: Match, bindings: None) -> GraphPatch:
        """Put a difference there."""
        patch = GraphPatch(match.model, match.root)
        taken = patch.op("Mul", [match["b"], match["c"]]) if "c" in match else match["b"]
        patch.replace(match.output, patch.op("Sub", [match["a"], taken], type=match.output.type))
        patch.remove(*match.nodes)
        return patch


class SignedHalves(RewriteRule[int]):
    """Negate the half of joined values that a constant multiplies by -1, where it multiplies the other by 1."""

    name = "SignedHalves"

    def build_pattern(self) -> Pattern:
        """Return two joined values times a constant."""
        joined = op("Concat", var("first"), var("second"), name="joined", commutative=False)
        return op("Mul", joined, constant("signs", where=lambda found: found.dtype.is_float and found.size > 1))

    def check(self, match: Match) -> int | Rejection:
        """The values must be joined along the last axis, and the constant be a sign for each of its elements."""
        joined, width = match.node("joined"), _width(match["first"])
        rank, signs = joined.output.rank, constant_array(match["signs"])
        if rank is None or joined.int_attribute("axis", 0) not in (-1, rank - 1) or width is None:
            return Rejection("the values are not joined along the last axis, or are of no known size", match.root)
        whole = None if (other := _width(match["second"])) is None else width + other
        if signs.ndim > rank or signs.size != whole or signs.shape[-1] != whole:
            return Rejection("the constant is not one number for each element of the last axis", match.root)
        flat = signs.reshape(-1)
        for place, (negated, kept) in enumerate(((flat[:width], flat[width:]), (flat[width:], flat[:width]))):
            if np.all(negated == -1) and np.all(kept == 1):
                return place
        return Rejection("the constant is not -1 for one of both and 1 for the other", match.root)

    def rewrite(self, match: Match, bindings: int) -> GraphPatch:
        """Negate one, and join both."""
        patch = GraphPatch(match.model, match.root)
        parts = [match["first"], match["second"]]
        parts[bindings] = patch.op("Neg", [parts[bindings]], type=parts[bindings].type)
        joined = patch.op("Concat", parts, dict(match.node("joined").attributes), type=match.output.type)
        patch.replace(match.output, joined)
        patch.remove(*match.nodes)
        return patch


def _width(value: Value) -> int | None:
    size = value.shape[-1] if isinstance(value.type, TensorType) and value.shape else None
    return size if isinstance(size, int) else None


SIGN_FORMS = RulePass("SignForms", [NegatedAddends(), SignedHalves()], Level.EXTENDED)
