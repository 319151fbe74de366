"""FuseReluClip: a Relu before a Clip only raises the Clip's lower bound to zero.

    r = Relu(x); y = Clip(r, low, high)     ->  y = Clip(x, max(low, 0), high)

From opset 11 the bounds are inputs, which must be constants; before, they are attributes.
"""

from __future__ import annotations

import numpy as np

from ort_core.ir.rejection import Rejection
from ort_core.ir.types import TensorType
from ort_core.rewrite.matcher import Match, constant_of
from ort_core.rewrite.patch import GraphPatch
from ort_core.rewrite.pattern import Pattern, op, optional, var
from ort_core.rewrite.rule import RewriteRule

INPUT_BOUNDS_OPSET = 11


class FuseReluClip(RewriteRule[np.ndarray]):
    """Fold a Relu into the Clip that alone reads it."""

    name = "FuseReluClip"

    def build_pattern(self) -> Pattern:
        """Return ``Clip(Relu(x), low?, high?)``."""
        return op("Clip", op("Relu", var("x")), optional(var("low")), optional(var("high")))

    def check(self, match: Match) -> np.ndarray | Rejection:
        """Return the new lower bound, a scalar of x's element type."""
        value_type = match["x"].type
        if not isinstance(value_type, TensorType):
            return Rejection("the element type is not known", match.root)
        dtype = value_type.dtype.numpy
        if match.opset() < INPUT_BOUNDS_OPSET:
            return np.asarray(max(match.root.float_attribute("min", 0.0), 0.0), dtype)
        low = match.get("low")
        if low is None:
            return np.asarray(0, dtype)
        constant = constant_of(low)
        if constant is None or constant.size != 1:
            return Rejection("the lower bound is not a constant scalar", match.root)
        return np.maximum(constant.array().reshape(()), np.asarray(0, dtype))

    def rewrite(self, match: Match, bindings: np.ndarray) -> GraphPatch:
        """Make one Clip."""
        patch = GraphPatch(match.model, match.root)
        attributes = dict(match.root.attributes)
        if match.opset() < INPUT_BOUNDS_OPSET:
            clip = patch.op("Clip", [match["x"]], {**attributes, "min": float(bindings)}, type=match.output.type)
        else:
            bounds = [patch.constant(bindings, "clip_min"), match.get("high")]
            clip = patch.op("Clip", [match["x"], *bounds], attributes, type=match.output.type)
        patch.replace(match.output, clip)
        patch.remove(*match.nodes)
        return patch
