"""EliminateDropout: at inference Dropout copies its input.

    y, mask = Dropout(x, ratio, training_mode)     ->  readers of y read x

when nobody reads the mask and training_mode is absent or a constant False.
"""

from __future__ import annotations

from ort_core.ir.rejection import Rejection
from ort_core.rewrite.matcher import Match, constant_of
from ort_core.rewrite.patch import GraphPatch
from ort_core.rewrite.pattern import Pattern, op, var
from ort_core.rewrite.rule import RewriteRule, replace_by

TRAINING_MODE = 2  # index of the input, which opset 12 brought


class EliminateDropout(RewriteRule[Match]):
    """Remove Dropout in inference mode; from opset 7, before which an attribute told the mode."""

    name = "EliminateDropout"

    def build_pattern(self) -> Pattern:
        """Return ``Dropout(x, ...)`` whose mask has no reader."""
        return op("Dropout", var("x"), since=7, more_inputs=True)

    def check(self, match: Match) -> Match | Rejection:
        """The mode must be fixed."""
        mode = match.root.input(TRAINING_MODE)
        if mode is None:
            return match
        constant = constant_of(mode)
        if constant is None or bool(constant.scalar()):
            return Rejection("the node may be in training mode", match.root)
        return match

    def rewrite(self, match: Match, bindings: Match) -> GraphPatch:
        """Replace the result by the input."""
        return replace_by(match, "x")
