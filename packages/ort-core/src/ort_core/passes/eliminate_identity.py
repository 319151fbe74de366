"""EliminateIdentity: a copy is the value itself.

y = Identity(x)     ->  readers of y read x
"""

from __future__ import annotations

from ort_core.ir.rejection import Rejection
from ort_core.rewrite.matcher import Match
from ort_core.rewrite.patch import GraphPatch
from ort_core.rewrite.pattern import Pattern, op, var
from ort_core.rewrite.rule import RewriteRule, replace_by


class EliminateIdentity(RewriteRule[Match]):
    """Remove Identity; one whose output the graph returns stays when its input cannot take the name."""

    name = "EliminateIdentity"

    def build_pattern(self) -> Pattern:
        """Return ``Identity(x)``."""
        return op("Identity", var("x"))

    def check(self, match: Match) -> Match | Rejection:
        """Accept every Identity; the patch knows about names."""
        return match

    def rewrite(self, match: Match, bindings: Match) -> GraphPatch:
        """Replace the copy by the original."""
        return replace_by(match, "x")
