"""Gemm takes in what stands around it: additions, transpositions, a batch normalization.

    y = Add(MatMul(A, B), C)  of matrices           ->  y = Gemm(A, B, C)                  (MatMulAddFusion)
    y = Sum(Gemm(A, B), C), also Add                ->  y = Gemm(A, B, C)                  (GemmSumFusion)
    y = Gemm(Transpose(A), B), also for B           ->  y = Gemm<transA = 1>(A, B)         (GemmTransposeFusion)
    y = Transpose(Gemm(A, B))                       ->  y = Gemm<transA, transB>(B, A)     (GemmTransposeFusion)
    y = BatchNormalization(MatMul or Gemm(x, W))    ->  y = Gemm(x, W * f, c)      (MatMul_BatchNormalization_Fusion)

A product of more than two dimensions stays a MatMul: as Gemm it would need a Reshape before and behind it, which
hides it from the fusions of attention and saves nothing, since whoever runs MatMul adds a bias in the same loop.
"""

from __future__ import annotations

import numpy as np

from ort_core.ir.rejection import Rejection
from ort_core.ir.types import Shape, TensorType
from ort_core.ir.values import Value
from ort_core.passes.fold_into_convolution import Affine, batch_normalization_affine
from ort_core.rewrite.matcher import Match
from ort_core.rewrite.patch import GraphPatch
from ort_core.rewrite.pattern import Pattern, constant, one_of, op, optional, var
from ort_core.rewrite.rule import RewriteRule

BROADCASTING_OPSET = 7  # since then Gemm broadcasts C by itself
_SWAP = (1, 0)


def _broadcasts_to(small: Shape | None, shape: Shape | None) -> bool:
    """Return whether ``small`` surely broadcasts to ``shape`` without widening it."""
    if small is None or shape is None or len(small) > len(shape):
        return False
    pairs = zip(reversed(shape), reversed(small))
    return all(size == 1 or (size is not None and size == dim) for dim, size in pairs)


class MatMulAddFusion(RewriteRule[Match]):
    """Make a Gemm of a matrix product and the addition behind it."""

    name = "MatMulAddFusion"

    def build_pattern(self) -> Pattern:
        """Return ``Add(MatMul(a, b), c)``."""
        return op("Add", op("MatMul", var("a"), var("b"), name="product"), var("c"), since=BROADCASTING_OPSET)

    def check(self, match: Match) -> Match | Rejection:
        """The factors must be matrices, and c fit the product without widening it."""
        if match["a"].rank != 2 or match["b"].rank != 2:
            return Rejection("a factor is not known to be a matrix", match.root)
        value_type = match["a"].type
        if not isinstance(value_type, TensorType) or not value_type.dtype.is_float:
            return Rejection("integer products stay as they are", match.root)
        if not _broadcasts_to(match["c"].shape, match["product"].shape):
            return Rejection("the addend may widen the product", match.root)
        return match

    def rewrite(self, match: Match, bindings: Match) -> GraphPatch:
        """Make the Gemm."""
        return _gemm(match, [match["a"], match["b"], match["c"]], {})


class GemmSumFusion(RewriteRule[Match]):
    """Give the addend behind a Gemm without C to the Gemm."""

    name = "GemmSumFusion"

    def build_pattern(self) -> Pattern:
        """Return ``Sum(Gemm(a, b), c)``."""
        return op(("Sum", "Add"), op("Gemm", var("a"), var("b"), name="gemm"), var("c"), since=BROADCASTING_OPSET)

    def check(self, match: Match) -> Match | Rejection:
        """The addend must fit the product without widening it."""
        if _broadcasts_to(match["c"].shape, match["gemm"].shape):
            return match
        return Rejection("the addend may widen the product", match.root)

    def rewrite(self, match: Match, bindings: Match) -> GraphPatch:
        """Make the Gemm with C; beta counts from now on and is 1."""
        attributes = {**match.node("gemm").attributes, "beta": 1.0}
        return _gemm(match, [match["a"], match["b"], match["c"]], attributes)


class GemmInputTranspose(RewriteRule[Match]):
    """Turn a Transpose of a Gemm's factor into its flag."""

    name = "GemmInputTranspose"

    def build_pattern(self) -> Pattern:
        """Return a Gemm with a transposed first or second factor."""
        flipped = op("Transpose", var("x"), attributes={"perm": lambda perm: perm in (None, _SWAP)}, shared=True)
        left = op("Gemm", flipped, var("b"), optional(var("c")), name="left")
        right = op("Gemm", var("a"), flipped, optional(var("c")), name="right")
        return one_of(left, right)

    def check(self, match: Match) -> Match | Rejection:
        """Accept: the factors of a Gemm are matrices."""
        return match

    def rewrite(self, match: Match, bindings: Match) -> GraphPatch:
        """Read the factor as it is and flip the flag."""
        gemm = match.root
        inputs = [match["x"], match["b"]] if match.has_node("left") else [match["a"], match["x"]]
        flag = "transA" if match.has_node("left") else "transB"
        attributes = {**gemm.attributes, flag: 1 - gemm.int_attribute(flag, 0)}
        return _gemm(match, [*inputs, *gemm.inputs[2:]], attributes)


class GemmOutputTranspose(RewriteRule[Match]):
    """Compute the transposed product at once."""

    name = "GemmOutputTranspose"

    def build_pattern(self) -> Pattern:
        """Return a transposed Gemm without C."""
        gemm = op("Gemm", var("a"), var("b"), name="gemm")
        return op("Transpose", gemm, attributes={"perm": lambda perm: perm in (None, _SWAP)})

    def check(self, match: Match) -> Match | Rejection:
        """Accept: (A B)' is B' A'."""
        return match

    def rewrite(self, match: Match, bindings: Match) -> GraphPatch:
        """Swap the factors and flip both flags."""
        gemm = match.node("gemm")
        flags = {
            "transA": 1 - gemm.int_attribute("transB", 0),
            "transB": 1 - gemm.int_attribute("transA", 0),
        }
        return _gemm(match, [match["b"], match["a"]], {**gemm.attributes, **flags})


class MatMulBatchNormalizationFusion(RewriteRule[Affine]):
    """Fold a BatchNormalization behind a product with a constant matrix into a Gemm."""

    name = "MatMul_BatchNormalization_Fusion"

    def build_pattern(self) -> Pattern:
        """Return ``BatchNormalization(MatMul(x, w) or Gemm(x, w, c))`` with constants."""
        weight = constant("w", where=lambda found: found.dtype.is_float and len(found.shape) == 2)
        matmul = op("MatMul", var("x", where=lambda value: value.rank == 2), weight, name="matmul")
        gemm = op("Gemm", var("x"), weight, optional(constant("c")), name="gemm")
        parameters = [constant(name) for name in ("scale", "shift", "mean", "variance")]
        return op("BatchNormalization", one_of(matmul, gemm), *parameters, since=BROADCASTING_OPSET)

    def check(self, match: Match) -> Affine | Rejection:
        """Return the affine map of the statistics."""
        columns = match.constant("w").shape[0 if self._is_transposed(match) else 1]
        if "c" in match and not _broadcasts_to(match.constant("c").shape, (None, columns)):
            return Rejection("the addend is not one row", match.root)
        return batch_normalization_affine(match, columns)

    def rewrite(self, match: Match, bindings: Affine) -> GraphPatch:
        """Scale the columns of W, and C with them."""
        patch = GraphPatch(match.model, match.root)
        weight = match.constant("w")
        scale = bindings.scale[:, None] if self._is_transposed(match) else bindings.scale
        scaled = (weight.array().astype(np.float64) * scale).astype(weight.dtype.numpy)
        gemm = match.node("gemm") if match.has_node("gemm") else None
        addend: np.ndarray = np.zeros(1)
        if "c" in match:
            beta = gemm.float_attribute("beta", 1.0) if gemm is not None else 1.0
            addend = match.array("c").astype(np.float64) * beta
        addend = (addend * bindings.scale + bindings.shift).astype(weight.dtype.numpy)
        inputs = [
            match["x"],
            patch.constant(scaled, f"{match['w'].name}_scaled", weight.dtype),
            patch.constant(addend, f"{match.output.name}_bias", weight.dtype),
        ]
        attributes = {**gemm.attributes, "beta": 1.0} if gemm is not None else {}
        patch.replace(match.output, patch.op("Gemm", inputs, attributes, type=match.output.type))
        patch.remove(*match.nodes)
        return patch

    @staticmethod
    def _is_transposed(match: Match) -> bool:
        return match.has_node("gemm") and bool(match.node("gemm").int_attribute("transB", 0))


def _gemm(match: Match, inputs: list[Value | None], attributes: dict[str, object]) -> GraphPatch:
    patch = GraphPatch(match.model, match.root)
    patch.replace(match.output, patch.op("Gemm", inputs, attributes, type=match.output.type))
    patch.remove(*match.nodes)
    return patch
