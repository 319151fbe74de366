"""DynamicQuantizeLSTM as LSTM: its weights of 8 bits stand for floats.

Y, H, C = DynamicQuantizeLSTM(x, W8, R8, B, lengths, h, c, P, W_scale, W_zero_point, R_scale, R_zero_point)
->  R = Reshape(DequantizeLinear(R8 with a row for each unit, R_scale, R_zero_point), shape)
    Y, H, C = LSTM(x, W, R, B, lengths, h, c, P)

Each step of the operator finds the range of one hidden state and quantizes it, for a product of one row. The LSTM is
compiled as a whole. Its recurrent weights stay bytes in memory, as each step reads all of them, and states are rounded
to 16 bits: results are nearer to those of the float model than the operator's own.
"""

from __future__ import annotations

import numpy as np

from ort_core.cpu.fusions.known_breaches import find_breach
from ort_core.plugin import Rejection, frozen
from ort_core.plugin.ir import Node, Value
from ort_core.plugin.rewrite import GraphPatch, Match, Pattern, RewriteRule, op, var

MICROSOFT = "com.microsoft"
_ORDINARY = 8  # inputs that LSTM has, too
_PARAMETERS = {"W": (1, 8, 9), "R": (2, 10, 11)}  # weight, scale, zero point


@frozen
class LstmWeights:
    """The weights of an LSTM.

    Attributes:
        w: float32 (directions, 4H, K).
        r: integers of 8 bits (directions * 4H, H): a row for each gate of each unit.
        scale: float32, of each row.
        point: the zero point of each row.
    """

    w: np.ndarray
    r: np.ndarray
    scale: np.ndarray
    point: np.ndarray


class DynamicLstmAsLstm(RewriteRule[LstmWeights]):
    """Write the operator as an LSTM; the binding is its weights."""

    name = "DynamicLstmAsLstm"

    def build_pattern(self) -> Pattern:
        """Return the operator."""
        return op("DynamicQuantizeLSTM", var("x"), domain=MICROSOFT, shared=True, more_inputs=True)

    def check(self, match: Match) -> LstmWeights | Rejection:
        """The weights, their scales and zero points must be constants of matching shapes."""
        breach = find_breach(match.root, 1)
        if breach is not None:
            return breach
        found = {}
        for name, places in _PARAMETERS.items():
            arrays = [_constant(match.root.input(place)) for place in places]
            weight, scale, point = arrays
            if weight is None or scale is None or point is None:
                return Rejection(f"{name}, its scale and its zero point are not all constant", match.root)
            if weight.ndim != 3 or any(each.size not in (len(weight), scale.size) for each in (scale, point)):
                return Rejection(f"{name} of shape {weight.shape} has scales of shape {scale.shape}", match.root)
            rows = np.ascontiguousarray(weight.transpose(0, 2, 1)).reshape(-1, weight.shape[1])
            each_row = (len(weight), weight.shape[2])
            scale, point = (np.broadcast_to(each.reshape(len(weight), -1), each_row) for each in (scale, point))
            found[name] = rows, np.ravel(scale), np.ravel(point)
        levels, scale, point = found["W"]
        real = (levels.astype(np.int32) - point[:, None]).astype(np.float32) * scale[:, None]
        return LstmWeights(real.reshape(_by_direction(match.root, real)), *found["R"])

    def rewrite(self, match: Match, bindings: LstmWeights) -> GraphPatch:
        """Make the LSTM."""
        patch, root = GraphPatch(match.model, match.root), match.root
        inputs = [root.input(place) for place in range(_ORDINARY)]
        stored, scale, point = (patch.constant(each) for each in (bindings.r, bindings.scale, bindings.point))
        rows = patch.node("DequantizeLinear", [stored, scale, point], {"axis": 0}, domain=MICROSOFT)
        sizes = patch.constant(np.array(_by_direction(root, bindings.r), np.int64))
        inputs[1:3] = [patch.constant(bindings.w), patch.node("Reshape", [rows.output, sizes]).output]
        types = [None if value is None else value.type for value in root.outputs]
        node = patch.node("LSTM", inputs, list(root.attributes.values()), outputs=types)
        for old, new in zip(root.outputs, node.outputs, strict=True):
            if old is not None and new is not None:
                patch.replace(old, new)
        patch.remove(root)
        return patch


def _by_direction(root: Node, rows: np.ndarray) -> tuple[int, int, int]:
    """Return the shape of weights of all directions: (directions, 4H, columns)."""
    directions = 2 if root.string_attribute("direction", "forward") == "bidirectional" else 1
    return directions, len(rows) // directions, rows.shape[1]


def _constant(value: Value | None) -> np.ndarray | None:
    if value is None or value.graph is None:
        return None
    constant = value.graph.fixed_constant(value)
    return None if constant is None else constant.array()
