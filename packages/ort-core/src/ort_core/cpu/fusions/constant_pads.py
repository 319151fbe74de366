"""ConvTransposeWithDynamicPads whose pads are constant, as the ConvTranspose that it is.

Y = com.microsoft.ConvTransposeWithDynamicPads(X, W, pads, B)   ->   Y = ConvTranspose<pads = ...>(X, W, B)
"""

from __future__ import annotations

from ort_core.cpu.fusions.known_breaches import find_breach
from ort_core.plugin import Rejection
from ort_core.plugin.ir import Attribute, AttributeKind
from ort_core.plugin.rewrite import GraphPatch, Match, Pattern, RewriteRule, op, var

MICROSOFT = "com.microsoft"


class ConstantPads(RewriteRule[tuple[int, ...]]):
    """Write pads that are known as an attribute; the binding is the pads."""

    name = "ConstantPads"

    def build_pattern(self) -> Pattern:
        """Return the operator."""
        return op("ConvTransposeWithDynamicPads", var("x"), domain=MICROSOFT, shared=True, more_inputs=True)

    def check(self, match: Match) -> tuple[int, ...] | Rejection:
        """The pads must be constant."""
        breach = find_breach(match.root, 1)  # com.microsoft has one version
        if breach is not None:
            return breach
        value = match.root.input(2)
        if value is None:
            return ()
        constant = None if value.graph is None else value.graph.fixed_constant(value)
        if constant is None:
            return Rejection("the pads are not constant", match.root)
        return tuple(int(each) for each in constant.array().reshape(-1))

    def rewrite(self, match: Match, bindings: tuple[int, ...]) -> GraphPatch:
        """Make the ConvTranspose."""
        patch, root = GraphPatch(match.model, match.root), match.root
        attributes = list(root.attributes.values())
        if bindings:
            attributes.append(Attribute("pads", AttributeKind.INTS, bindings))
        inputs = [root.input(0), root.input(1), *([] if root.input(3) is None else [root.input(3)])]
        node = patch.node("ConvTranspose", inputs, attributes, outputs=[root.output.type])
        patch.replace(root.output, node.output)
        patch.remove(root)
        return patch
