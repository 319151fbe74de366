"""Small vectors of sizes that grow, computed on the host by formula: arrays of objects, each an integer or a size.

Only what makes sizes is known here: parts of shapes picked, joined and calculated with. A node that asks for more is
evaluated as ever, which makes its sizes fixed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ort_core.plugin.ir import DataType, Node
from ort_ep_cuda.lowering.values.growing import grows, larger, plain, smaller
from ort_ep_cuda.lowering.values.views import Shape

Arrays = Sequence[np.ndarray | None]
Rule = Callable[[Node, Arrays], np.ndarray]


def growing_array(numbers: Sequence[object], shape: Sequence[int] | None = None) -> np.ndarray:
    """Return integers and sizes as an array of objects; numpy would take the numbers out of a list by itself."""
    array = np.empty(len(numbers), object)
    for index, number in enumerate(numbers):
        array[index] = number
    return array if shape is None else array.reshape(tuple(shape))


def has_growing(array: np.ndarray | None) -> bool:
    """Return whether an array holds a size that grows."""
    return array is not None and array.dtype == object and any(grows(number) for number in array.reshape(-1))


def as_numbers(array: np.ndarray | None, dtype: DataType) -> np.ndarray | None:
    """Return an array as one of numbers; its sizes become fixed."""
    if array is None or array.dtype != object:
        return array
    return np.array([int(number) for number in array.reshape(-1)], dtype.numpy).reshape(array.shape)


def result_of(node: Node, inputs: Arrays) -> np.ndarray | None:
    """Return what a node makes of arrays that hold sizes; ``None`` where it is evaluated as ever."""
    rule = _RULES.get(node.op_type)
    found = None if rule is None else rule(node, inputs)
    return found if found is None or isinstance(found, np.ndarray) else growing_array([found], ())  # numpy unpacks one


def shape_of(node: Node, shape: Shape) -> np.ndarray:
    """Return what Shape or Size gives."""
    if node.op_type == "Size":
        total = 1
        for size in shape:
            total = total * size
        return growing_array([total], ())
    rank = len(shape)
    start, end = node.int_attribute("start", 0), node.int_attribute("end", rank)
    return growing_array(shape[slice(start, end)])


def _content(inputs: Arrays, index: int) -> np.ndarray:
    found = inputs[index]
    assert found is not None
    return found


def _numbers(node: Node, inputs: Arrays, index: int, attribute: str) -> tuple[int, ...] | None:
    if index < len(inputs) and inputs[index] is not None:
        return tuple(int(number) for number in _content(inputs, index).reshape(-1))
    return node.ints_attribute(attribute)


def _each(function: Callable[[int, int], object]) -> Rule:
    def rule(node: Node, inputs: Arrays) -> np.ndarray:
        first, second = np.broadcast_arrays(_content(inputs, 0), _content(inputs, 1))
        pairs = zip(first.reshape(-1), second.reshape(-1), strict=True)
        return growing_array([function(plain(a), plain(b)) for a, b in pairs], first.shape)

    return rule


def _folded(function: Callable[[int, int], object]) -> Rule:
    pair = _each(function)

    def rule(node: Node, inputs: Arrays) -> np.ndarray:
        found = _content(inputs, 0)
        for index in range(1, len(inputs)):
            found = pair(node, [found, inputs[index]])
        return found

    return rule


def _gather(node: Node, inputs: Arrays) -> np.ndarray:
    indices = np.array([int(n) for n in _content(inputs, 1).reshape(-1)], np.int64).reshape(_content(inputs, 1).shape)
    return np.take(_content(inputs, 0), indices, axis=node.int_attribute("axis", 0))


def _concat(node: Node, inputs: Arrays) -> np.ndarray:
    return np.concatenate([part.astype(object) for part in inputs if part is not None], node.int_attribute("axis", 0))


def _unsqueeze(node: Node, inputs: Arrays) -> np.ndarray:
    return np.expand_dims(_content(inputs, 0), _numbers(node, inputs, 1, "axes") or ())


def _squeeze(node: Node, inputs: Arrays) -> np.ndarray:
    return np.squeeze(_content(inputs, 0), _numbers(node, inputs, 1, "axes"))


def _slice(node: Node, inputs: Arrays) -> np.ndarray:
    content = _content(inputs, 0)
    starts, ends = _numbers(node, inputs, 1, "starts") or (), _numbers(node, inputs, 2, "ends") or ()
    axes = _numbers(node, inputs, 3, "axes") or tuple(range(len(starts)))
    steps = _numbers(node, inputs, 4, "steps") or (1,) * len(starts)
    places: list[slice] = [slice(None)] * content.ndim
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        places[axis] = slice(start, end, step)
    return content[tuple(places)]


def _reshape(node: Node, inputs: Arrays) -> np.ndarray:
    wanted = _numbers(node, inputs, 1, "shape") or ()
    content = _content(inputs, 0)
    return content.reshape([content.shape[axis] if size == 0 else size for axis, size in enumerate(wanted)])


def _cast(node: Node, inputs: Arrays) -> np.ndarray | None:
    target = DataType(node.int_attribute("to", int(DataType.INT64)))
    return _content(inputs, 0) if target in (DataType.INT64, DataType.INT32) else None


def _where(node: Node, inputs: Arrays) -> np.ndarray:
    condition, first, second = np.broadcast_arrays(*(_content(inputs, index) for index in range(3)))
    chosen = zip(condition.reshape(-1), first.reshape(-1), second.reshape(-1), strict=True)
    return growing_array([a if said else b for said, a, b in chosen], condition.shape)


def _same(node: Node, inputs: Arrays) -> np.ndarray:
    return _content(inputs, 0)


def _negative(node: Node, inputs: Arrays) -> np.ndarray:
    return growing_array([-plain(n) for n in _content(inputs, 0).reshape(-1)], _content(inputs, 0).shape)


def _divided(a: int, b: int) -> int:
    """Divide integers as C does: towards zero."""
    return a // b if (a < 0) == (b < 0) else -(-a // b)


def _product(node: Node, inputs: Arrays) -> np.ndarray | None:
    content = _content(inputs, 0)
    if content.ndim != 1 or _numbers(node, inputs, 1, "axes") not in (None, (), (0,), (-1,)):
        return None
    total = 1
    for number in content:
        total = total * plain(number)
    return growing_array([total], (1,) if node.int_attribute("keepdims", 1) else ())


_RULES: Mapping[str, Callable[[Node, Arrays], np.ndarray | None]] = {
    "Add": _each(lambda a, b: a + b),
    "Cast": _cast,
    "Concat": _concat,
    "Div": _each(_divided),
    "Equal": _each(lambda a, b: a == b),
    "Gather": _gather,
    "Greater": _each(lambda a, b: a > b),
    "GreaterOrEqual": _each(lambda a, b: a >= b),
    "Identity": _same,
    "Less": _each(lambda a, b: a < b),
    "LessOrEqual": _each(lambda a, b: a <= b),
    "Max": _folded(larger),
    "Min": _folded(smaller),
    "Mul": _each(lambda a, b: a * b),
    "Neg": _negative,
    "ReduceProd": _product,
    "Reshape": _reshape,
    "Slice": _slice,
    "Squeeze": _squeeze,
    "Sub": _each(lambda a, b: a - b),
    "Unsqueeze": _unsqueeze,
    "Where": _where,
}  # fmt: skip
