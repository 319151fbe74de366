"""Queries that a mask lets see no key at all: PyTorch gives them zeros, by a choice behind the softmax.

    p = Where(IsNaN(s), 0, s)  with  s = Softmax(Add(scores, mask))

NaN comes from rows whose mask is -inf throughout, as the scores are finite. A fused attention gives NaN there, too, so
that the same rows of its result are replaced; which rows these are is found out once for all layers of one mask.

Others put zeros in the places of all hidden shares, which are 0 already but in rows without any key (ESPnet, NeMo):

    p = Where(hidden, 0, Softmax(Where(hidden, low, scores)))
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

from ort_core.ir.nodes import Node
from ort_core.ir.rejection import Rejection
from ort_core.ir.types import DataType, TensorType
from ort_core.ir.values import Value
from ort_core.passes.fusions.operands import dim, dtype_of, number_of, stands_before
from ort_core.rewrite.patch import GraphPatch

_AXES_AS_INPUT = {"ReduceMax": 18, "Squeeze": 13}  # since these opsets


def refuse_hidden_rows(bias: Value, node: Node) -> Rejection | None:
    """Return why the rows without a key cannot be told by what is added to the scores, ``None`` where they can."""
    rank = bias.rank
    if rank is None or rank > 4 or rank < 1:
        return Rejection(f"the mask {bias.name!r} has no known rank of up to 4", node)
    if rank > 2 and dim(bias, -3) != 1:
        return Rejection(f"the mask {bias.name!r} may hide other keys for each head, so rows are not one for all", node)
    return None


def replace_hidden_rows(patch: GraphPatch, result: Value, bias: Value, opset: int, limit: float | None = None) -> Value:
    """Return (batch, length, width) with zeros in the rows that ``bias`` lets see no key: all of it is below the limit.

    Without one that is the lowest finite number, below which only -inf is.
    """
    limit = lowest(dtype_of(bias)) if limit is None else limit
    hidden = _existing(bias, limit) or _hidden_rows(patch, bias, opset, limit)
    zero = patch.constant(np.zeros((), dtype_of(bias).numpy), "no_key")
    return patch.op("Where", [hidden, zero, result], type=result.type)


def lowest(dtype: DataType) -> float:
    """Return the lowest finite number of an element type."""
    return float(ml_dtypes.finfo(dtype.numpy).min)


def above_lowest(patch: GraphPatch, bias: Value, place: Node) -> Value:
    """Return what is added to the scores with at least half of the lowest finite number.

    Both swallow scores, so that rows without any key have equal shares either way. onnxruntime's kernel of the
    standard's Attention takes the lowest number itself for a key that is not there, and gives zeros to such rows.
    """
    dtype = dtype_of(bias)
    limit = lowest(dtype) / 2
    for each in bias.consumers():
        if each.op_type == "Max" and number_of(each.inputs[-1]) == limit and stands_before(each.output, place):
            return each.output
    return patch.op("Max", [bias, patch.constant(np.array(limit, dtype.numpy), "half_of_lowest")], type=bias.type)


def _hidden_rows(patch: GraphPatch, bias: Value, opset: int, below: float) -> Value:
    dtype, rank = dtype_of(bias), bias.rank
    assert rank is not None
    rows = None if bias.shape is None else (*bias.shape[:-1], 1)
    greatest = _over_axis(patch, "ReduceMax", bias, -1, opset, TensorType(dtype, rows))
    limit = patch.constant(np.array(below, dtype.numpy), "lowest")
    hidden = patch.op("Less", [greatest, limit], type=TensorType(DataType.BOOL, rows))
    if rank < 3 or rows is None:
        return hidden
    return _over_axis(patch, "Squeeze", hidden, rank - 3, opset, TensorType(DataType.BOOL, (*rows[:-3], *rows[-2:])))


def _over_axis(patch: GraphPatch, op_type: str, value: Value, axis: int, opset: int, made: TensorType) -> Value:
    if opset >= _AXES_AS_INPUT[op_type]:
        return patch.op(op_type, [value, patch.constant(np.array([axis], np.int64), "axes")], type=made)
    return patch.op(op_type, [value], {"axes": (axis,)}, type=made)


def _existing(bias: Value, limit: float) -> Value | None:
    """Return the hidden rows of a mask as an earlier layer reads them."""
    for greatest in (each.output for each in bias.consumers() if each.op_type == "ReduceMax"):
        for less in (each for each in greatest.consumers() if each.op_type == "Less"):
            if number_of(less.inputs[1]) != limit or less.graph is not bias.graph:
                continue
            squeezed = next((each.output for each in less.output.consumers() if each.op_type == "Squeeze"), less.output)
            if any(_is_choice(each, squeezed) for each in squeezed.consumers()):
                return squeezed
    return None


def _is_choice(node: Node, hidden: Value) -> bool:
    """Return whether a node replaces rows of an attention."""
    if node.op_type != "Where" or node.inputs[0] is not hidden or node.inputs[2] is None:
        return False
    made_by = node.inputs[2].producer
    return made_by is not None and made_by.op_type == "MultiHeadAttention"
