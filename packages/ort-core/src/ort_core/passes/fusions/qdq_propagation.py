"""QDQPropagationTransformer: quantization is carried over operators that only move values about.

    y = Reshape(DequantizeLinear(x))      ->  y = DequantizeLinear(QuantizeLinear(Reshape(DequantizeLinear(x))))
    q = QuantizeLinear(Reshape(x))        ->  q = QuantizeLinear(Reshape(DequantizeLinear(QuantizeLinear(x))))

with the scale and zero point that is there. Both are exact: moving values neither leaves the grid nor mixes them.
Afterwards such an operator stands between a DQ and a Q, and works on integers.
"""

from __future__ import annotations

from ort_core.ir.nodes import Node
from ort_core.ir.rejection import Rejection
from ort_core.ir.types import TensorType
from ort_core.ir.values import Value
from ort_core.passes.fusions.qdq_selector import MOVES, has_one_result, is_nearest
from ort_core.passes.fusions.quantized_values import Quantized, find_dequantized, quantized_by
from ort_core.rewrite.matcher import Match
from ort_core.rewrite.patch import GraphPatch
from ort_core.rewrite.pattern import Pattern, op, var
from ort_core.rewrite.rule import RewriteRule

_MOVES = tuple(name for name in MOVES if name != "Split")


def _moves(node: Node) -> bool:
    return has_one_result(node) and (node.op_type != "Resize" or is_nearest(node))


def _pair(patch: GraphPatch, value: Value, grid: Quantized) -> Value:
    """Return ``value`` quantized to the grid and dequantized again."""
    parts = [grid.scale] if grid.zero is None else [grid.scale, grid.zero]
    quantized = patch.op("QuantizeLinear", [value, *parts], type=_integers(value, grid))
    return patch.op("DequantizeLinear", [quantized, *parts], type=value.type)


def _integers(value: Value, grid: Quantized) -> TensorType:
    return TensorType(grid.dtype, value.shape)


class PropagateDequantization(RewriteRule[Quantized]):
    """Carry a dequantization down over an operator that moves values."""

    name = "PropagateDequantization"

    def build_pattern(self) -> Pattern:
        """Return a mover of a dequantized tensor."""
        source = op("DequantizeLinear", var("x"), var("s"), more_inputs=True, name="dq", shared=True)
        return op(_MOVES, source, more_inputs=True, where=_moves)

    def check(self, match: Match) -> Quantized | Rejection:
        """The grid must be one, and nothing may quantize the result already."""
        grid = find_dequantized(match.node("dq").output)
        if grid is None or not grid.has_one_scale:
            return Rejection("the operand is not dequantized from 8 bits with one constant scale", match.root)
        if match.output.is_graph_output or not match.output.use_count:
            return Rejection("the result leaves the graph in float", match.root)
        if any(quantized_by(reader) is not None for reader in match.output.consumers()):
            return Rejection("the result is quantized already", match.root)
        return grid

    def rewrite(self, match: Match, bindings: Quantized) -> GraphPatch:
        """Put a pair behind the operator."""
        patch = GraphPatch(match.model, match.root)
        moved = patch.op(match.root.op_type, match.root.inputs, dict(match.root.attributes), type=match.output.type)
        patch.replace(match.output, _pair(patch, moved, bindings))
        patch.remove(match.root)
        return patch


class PropagateQuantization(RewriteRule[Quantized]):
    """Carry a quantization up over an operator that moves values."""

    name = "PropagateQuantization"

    def build_pattern(self) -> Pattern:
        """Return the quantization of what a mover gives."""
        moved = op(_MOVES, var("x"), more_inputs=True, where=_moves, name="move")
        return op("QuantizeLinear", moved, more_inputs=True)

    def check(self, match: Match) -> Quantized | Rejection:
        """The grid must be one, and the operand in float."""
        grid = quantized_by(match.root)
        if grid is None or not grid.has_one_scale:
            return Rejection("the result is not quantized to 8 bits with one constant scale", match.root)
        if find_dequantized(match["x"]) is not None:
            return Rejection("the operand is dequantized already", match.root)
        return grid

    def rewrite(self, match: Match, bindings: Quantized) -> GraphPatch:
        """Put a pair in front of the operator."""
        move = match.node("move")
        patch = GraphPatch(match.model, move)
        pair = _pair(patch, match["x"], bindings)
        moved = patch.op(move.op_type, [pair, *move.inputs[1:]], dict(move.attributes), type=move.output.type)
        patch.replace(move.output, moved)
        patch.remove(move)
        return patch
