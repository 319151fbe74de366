"""Shape numbers: small values that follow from shapes are numbers when a plan is made, and cost nothing in it.

Numpy kernels compute them. What reads them sees constants: the start of a Range, the ends of a Slice, the sizes of an
Expand.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ort_core.plugin import Rejection
from ort_core.plugin.ir import Node, Value
from ort_core.plugin.kernels import evaluate_node
from ort_ep_directml.lowering.asked import SMALL_NBYTES, Asked, element_type, onnx_type
from ort_ep_directml.lowering.plan import Sizes

SHAPE_READERS = frozenset({"Shape", "Size"})
_OF_NUMBERS = frozenset(
    {"Abs", "Add", "And", "Cast", "CastLike", "Ceil", "Concat", "Div", "Equal", "Floor", "Gather", "Greater",
     "GreaterOrEqual", "Identity", "Less", "LessOrEqual", "Max", "Min", "Mod", "Mul", "Neg", "Not", "Or", "Pow",
     "Range", "Reciprocal", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSum", "Reshape", "Slice", "Split", "Sqrt",
     "Squeeze", "Sub", "Unsqueeze", "Where"}
)  # fmt: skip
"""Operators that compute sizes, positions and masks of positions. Of their results the small ones are numbers."""


def is_number_of_shapes(node: Node) -> bool:
    """Return whether a node's results are numbers when a plan is made, if all that it reads is."""
    return not node.domain and (node.op_type in SHAPE_READERS or node.op_type in _OF_NUMBERS)


def learn_numbers(asked: Asked, node: Node, sizes: Callable[[Value], Sizes | None]) -> bool:
    """Compute the results of a node that follow from shapes, and keep them; return whether there are such.

    Args:
        asked: takes the numbers.
        node: any node; what it reads was asked for before it.
        sizes: those of a value, ``None`` where they are open.
    """
    if not is_number_of_shapes(node) or not all(_is_small(value, sizes(value)) for value in node.present_outputs()):
        return False
    inputs = [None if value is None else _content(asked, node, value, sizes) for value in node.inputs]
    if any(array is None for array, value in zip(inputs, node.inputs, strict=True) if value is not None):
        return False
    results = evaluate_node(node, inputs, asked.view.context)
    if isinstance(results, Rejection):
        return False
    arrays = [np.asarray(result) for result in results]
    pairs = [(value, array) for value, array in zip(node.outputs, arrays, strict=False) if value is not None]
    asked.numbers.update(pairs)
    return True


def learn_behind(asked: Asked, node: Node, sizes: Callable[[Value], Sizes | None]) -> None:
    """Compute the numbers that a node reads, from the shapes that they follow from."""
    behind: dict[Node, None] = {}
    left = [value.producer for value in node.present_inputs()]
    while left:
        producer = left.pop()
        if producer is not None and producer not in behind and is_number_of_shapes(producer):
            behind[producer] = None
            if producer.op_type not in SHAPE_READERS:
                left += [value.producer for value in producer.present_inputs()]
    for producer in asked.view.graph:
        if producer in behind:
            learn_numbers(asked, producer, sizes)


def _is_small(value: Value, sizes: Sizes | None) -> bool:
    dtype = element_type(value)
    return sizes is not None and dtype is not None and 0 < math.prod(sizes) * dtype.bits // 8 <= SMALL_NBYTES


def _content(asked: Asked, node: Node, value: Value, sizes: Callable[[Value], Sizes | None]) -> np.ndarray | None:
    if node.op_type == "CastLike" and value is node.inputs[1]:
        dtype = onnx_type(value)
        return None if dtype is None else np.zeros(1, dtype.numpy)  # only its type is read
    found = asked.numbers.get(value)
    if found is not None:
        return found
    if node.op_type in SHAPE_READERS:
        shape = sizes(value)
        return None if shape is None else np.broadcast_to(np.zeros((), np.bool_), shape)  # only its shape is read
    return asked.constant(value) if asked.nbytes(value) <= SMALL_NBYTES else None
