"""Halves that a group only moves: they stay the 16 bits that they are, and become no float32."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ort_core.cpu.lowering.value_types import HALVES
from ort_core.plugin.ir import DataType, Node, TensorType, Value

MOVED = DataType.UINT16  # as what a group that only moves halves has them
_MOVES = frozenset(  # operators whose results are elements of their operands, or zeros
    [
        "Concat",
        "ConstantOfShape",
        "DepthToSpace",
        "Expand",
        "Flatten",
        "Gather",
        "GatherElements",
        "GatherND",
        "Identity",
        "Pad",
        "Reshape",
        "ReverseSequence",
        "Scatter",
        "ScatterElements",
        "ScatterND",
        "Shape",
        "Size",
        "Slice",
        "SpaceToDepth",
        "Split",
        "Squeeze",
        "Tile",
        "Transpose",
        "Trilu",
        "Unsqueeze",
        "Where",
    ]
)


def moves_halves(node: Node) -> bool:
    """Return whether a node, whatever it does with other elements, does no more with halves than move them."""
    if not any(map(is_half, node.present_inputs())) and not any(map(is_half, node.present_outputs())):
        return True
    reduction = node.string_attribute("reduction", "none") if node.op_type.startswith("Scatter") else "none"
    return node.op_type in _MOVES and node.domain in ("", "com.microsoft") and reduction == "none"


def only_moves_halves(nodes: Iterable[Node]) -> bool:
    """Return whether no node of a group computes with halves."""
    return all(map(moves_halves, nodes))


def is_half(value: Value) -> bool:
    """Return whether a value's elements are float16 or bfloat16."""
    return isinstance(value.type, TensorType) and value.type.dtype in HALVES


def bits_of(array: np.ndarray) -> np.ndarray:
    """Return halves as the bits that they are; other arrays as they are."""
    return array.view(MOVED.numpy) if DataType.from_numpy(array.dtype) in HALVES else array
