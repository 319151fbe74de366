"""onnxruntime's quantized convolutions of channels-last images, as standard ones between two Transposes.

y = com.microsoft.QLinearConv<channels_last = 1>(x, ...)   ->   y = Transpose(QLinearConv(Transpose(x), ...))

Files that onnxruntime saved behind its whole optimizer have them. The compiler's images lie channels-last anyway: the
Transposes are views.
"""

from __future__ import annotations

from ort_core.plugin import Rejection
from ort_core.plugin.ir import Node
from ort_core.plugin.rewrite import GraphPatch, Match, Pattern, RewriteRule, op, var

MICROSOFT = "com.microsoft"
WEIGHTS = 3  # the input
_OWN = "channels_last"


class ChannelsLastConvolutions(RewriteRule[int]):
    """Write quantized convolutions as standard ones; the binding is the images' rank."""

    name = "ChannelsLastConvolutions"

    def build_pattern(self) -> Pattern:
        """Return the operator."""
        return op("QLinearConv", var("x"), domain=MICROSOFT, shared=True, more_inputs=True)

    def check(self, match: Match) -> int | Rejection:
        """The rank must be known."""
        x, weights = match.root.input(0), match.root.input(WEIGHTS)
        rank = next((value.rank for value in (x, weights) if value is not None and value.rank is not None), None)
        if rank is None or rank < 3:
            return Rejection("the rank of its images is not known", match.root)
        return rank

    def rewrite(self, match: Match, bindings: int) -> GraphPatch:
        """Make the parts."""
        patch, root = GraphPatch(match.model, match.root), match.root
        attributes = [each for each in root.attributes.values() if each.name != _OWN]
        if not root.int_attribute(_OWN, 0):
            plain = patch.node("QLinearConv", root.inputs, attributes, outputs=[root.output.type], name=root.name)
            return _replaced(patch, root, plain)
        space = range(1, bindings - 1)
        turned = patch.node("Transpose", [root.inputs[0]], {"perm": (0, bindings - 1, *space)})
        inputs = [turned.output, *root.inputs[1:]]
        convolved = patch.node("QLinearConv", inputs, attributes, name=root.name)
        back = {"perm": (0, *range(2, bindings), 1)}
        return _replaced(patch, root, patch.node("Transpose", [convolved.output], back, outputs=[root.output.type]))


def _replaced(patch: GraphPatch, root: Node, last: Node) -> GraphPatch:
    patch.replace(root.output, last.output)
    patch.remove(root)
    return patch
