"""What is added to the scores of an attention, brought to the four axes that the fused operator wants."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ort_core.ir.dims import SymbolicDim
from ort_core.ir.nodes import Node
from ort_core.ir.types import TensorType
from ort_core.ir.values import Value
from ort_core.passes.fusions.operands import dim, same_dim
from ort_core.rewrite.matcher import constant_of
from ort_core.rewrite.patch import GraphPatch

Size = int | SymbolicDim | None
_MOVES = frozenset({"Expand", "Unsqueeze", "Squeeze", "Reshape", "Slice", "Transpose", "Identity", "Gather"})


def is_finite(value: Value) -> bool:
    """Return whether a mask is known to be finite: a choice between finite constants, moved about."""
    node = value.producer
    while node is not None and node.op_type in _MOVES and node.domain == "":
        first = node.input(0)
        if first is None:
            return False
        value, node = first, first.producer
    if node is None:
        return _is_finite_constant(value)
    return node.op_type == "Where" and all(_is_finite_constant(choice) for choice in node.inputs[1:3])


def _is_finite_constant(value: Value | None) -> bool:
    found = constant_of(value)
    return found is not None and found.dtype.is_float and bool(np.isfinite(found.array().astype(np.float64)).all())


def broadcast_mask(patch: GraphPatch, mask: Value, scores: Value, lengths: Callable[[], Sequence[Value]]) -> Value:
    """Return the mask with the last two axes of the scores.

    ``lengths`` makes one-element vectors with the number of queries and of keys. A mask that is known to have
    those sizes is returned as it is; an equal expansion that the graph has already is used again.
    """
    has_sizes = mask.rank == 4 and all(same_dim(dim(mask, axis), dim(scores, axis)) for axis in (2, 3))
    if has_sizes:
        return mask
    wanted = (dim(scores, 2), dim(scores, 3))
    for reader in mask.consumers():
        if reader.op_type == "Expand" and _gives(reader, mask, wanted):
            return reader.output
    sizes = [patch.constant(np.ones(2, np.int64), "mask_axes"), *lengths()]
    shape = patch.op("Concat", sizes, {"axis": 0})
    expanded = patch.node("Expand", [mask, shape], outputs=(_expanded_type(mask, wanted),))
    return expanded.output


def _expanded_type(mask: Value, wanted: tuple[Size, Size]) -> TensorType | None:
    if not isinstance(mask.type, TensorType):
        return None
    if mask.rank != 4:
        return TensorType(mask.type.dtype, None)
    return TensorType(mask.type.dtype, (dim(mask, 0), dim(mask, 1), *wanted))


def _gives(reader: Node, mask: Value, wanted: tuple[Size, Size]) -> bool:
    made = reader.output
    if made.rank != 4 or None in wanted or mask.rank != 4 or made.graph is not mask.graph:
        return False
    if not any(node.op_type == "MultiHeadAttention" for node in made.consumers()):
        return False  # another one may stand behind the place where this is needed
    kept = all(same_dim(dim(made, axis), dim(mask, axis)) for axis in (0, 1))
    return kept and (dim(made, 2), dim(made, 3)) == wanted
