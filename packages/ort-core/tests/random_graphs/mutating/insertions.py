"""Mutations of edges: nodes between, behind and beside, operands swapped or taken from elsewhere, values as outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from onnx import NodeProto, TensorProto, helper

from random_graphs.mutating.draft import Draft, NotHere


def show_value(draft: Draft) -> str:
    """Make an inner value an output."""
    name = draft.some([each for each in draft.inner() if each not in draft.outputs()])
    draft.add_output(name, draft.array(name))
    return f"{name} is an output"


def read_twice(draft: Draft) -> str:
    """Have a value read by one node more, whose result is an output."""
    name = draft.some(draft.inner())
    array, made = draft.array(name), draft.name()
    assert array is not None
    op_type = draft.some(("Identity", "Neg", "Relu", "Add") if draft.is_float(name) else ("Identity",))
    operands = [name, name] if op_type == "Add" else [name]
    draft.graph.node.append(helper.make_node(op_type, operands, [made]))
    draft.add_output(made, array)
    return f"{name} is read by {op_type}"


def swap_operands(draft: Draft) -> str:
    """Swap the first two inputs of a node."""
    nodes = [each for each in draft.graph.node if len(each.input) > 1 and each.input[0] and each.input[1]]
    node = draft.some([each for each in nodes if each.input[0] != each.input[1]])
    node.input[0], node.input[1] = node.input[1], node.input[0]
    return f"{node.op_type} swapped"


def rewire(draft: Draft) -> str:
    """Have a node read another value of the same type and shape, or of one that broadcasts."""
    node = draft.some([each for each in draft.graph.node if each.input])
    place = draft.random.randrange(len(node.input))
    array = draft.array(node.input[place])
    if array is None:
        raise NotHere
    number = list(draft.graph.node).index(node)
    earlier = [name for each in list(draft.graph.node)[:number] for name in each.output if name]
    names = [*(each.name for each in draft.graph.input), *(each.name for each in draft.graph.initializer), *earlier]
    can = []
    for name in dict.fromkeys(names):
        other = draft.array(name)
        if (
            other is not None
            and other.dtype == array.dtype
            and other.shape == array.shape
            and name != node.input[place]
        ):
            can.append(name)
    node.input[place] = draft.some(can)
    return f"{node.op_type} reads {node.input[place]} in place {place}"


Made = tuple[Sequence[NodeProto], str, str]  # nodes from the first name to the second, and what they are


def insert_between(draft: Draft) -> str:
    """Put nodes between a value and those who read it, or one of them."""
    readers = [
        (node, place)
        for node in draft.graph.node
        for place, name in enumerate(node.input)
        if name and draft.array(name) is not None
    ]
    node, place = draft.some(readers)
    name = node.input[place]
    array = draft.array(name)
    assert array is not None
    nodes, made, text = draft.some(_WAYS)(draft, name, array)
    users = [node] if draft.chance(0.5) else [each for each in draft.graph.node if name in each.input]
    for user in users:
        for i, each in enumerate(user.input):
            if each == name:
                user.input[i] = made
    at = draft.place_behind(name)
    for number, each in enumerate(nodes):
        draft.insert(at + number, each)
    return f"{text} between {name} and {node.op_type}"


def append_behind(draft: Draft) -> str:
    """Put nodes behind an output."""
    info = draft.some([each for each in draft.graph.output if draft.array(each.name) is not None])
    array = draft.array(info.name)
    assert array is not None
    nodes, made, text = draft.some(_WAYS)(draft, info.name, array)
    draft.graph.node.extend(nodes)
    if draft.chance(0.8):
        draft.graph.output.remove(info)
    draft.add_output(made, array)
    info = draft.graph.output[-1]
    last = draft.values.get(made)
    if last is not None:
        info.type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(last.dtype)
    return f"{text} behind {info.name}"


def _one(draft: Draft, op_type: str, name: str, *others: str, **attributes: object) -> Made:
    made = draft.name()
    return [helper.make_node(op_type, [name, *others], [made], **attributes)], made, op_type


def _identity(draft: Draft, name: str, array: np.ndarray) -> Made:
    return _one(draft, "Identity", name)


def _unary(draft: Draft, name: str, array: np.ndarray) -> Made:
    if not draft.is_float(name):
        raise NotHere
    return _one(draft, draft.some(("Relu", "Neg", "Abs", "Sigmoid", "Tanh")), name)


def _shape_for(draft: Draft, array: np.ndarray) -> list[int]:
    shape = draft.some(([], [], [1], [1] * array.ndim, list(array.shape), None))
    if shape is None:
        shape = [size if draft.chance(0.4) else 1 for size in array.shape]
        while shape and shape[0] == 1 and draft.chance(0.5):
            shape.pop(0)
    return shape


def _binary(draft: Draft, name: str, array: np.ndarray) -> Made:
    if not draft.is_float(name):
        raise NotHere
    op_type = draft.some(("Mul", "Mul", "Add", "Sub", "Div", "Max", "Min"))
    shape = _shape_for(draft, array)
    rng = np.random.default_rng(draft.random.randrange(1000))
    numbers = rng.uniform(0.4, 1.6, shape) * draft.some((1, 1, -1))
    other = draft.constant(np.asarray(numbers).astype(array.dtype))
    made = draft.name()
    operands = [name, other] if draft.chance(0.7) else [other, name]
    return [helper.make_node(op_type, operands, [made])], made, f"{op_type} of {shape}"


def _clip(draft: Draft, name: str, array: np.ndarray) -> Made:
    if not draft.is_float(name) or draft.opset < 11:
        raise NotHere
    low, high = draft.some(((0, 6), (0, 0.5), (-0.3, 0.4), (0.1, 0.7)))
    limits = [draft.constant(np.asarray(each).astype(array.dtype)) for each in (low, high)]
    if draft.chance(0.3):
        limits[0] = ""
    return _one(draft, "Clip", name, *limits)


def _cast_back(draft: Draft, name: str, array: np.ndarray) -> Made:
    own = helper.np_dtype_to_tensor_dtype(array.dtype)
    other = draft.some(
        (TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT64)
    )
    first, last = draft.name(), draft.name()
    nodes = [helper.make_node("Cast", [name], [first], to=other), helper.make_node("Cast", [first], [last], to=own)]
    return nodes, last, f"Cast to {other} and back"


def _transpose(draft: Draft, name: str, array: np.ndarray) -> Made:
    if array.ndim < 2:
        raise NotHere
    perm = draft.random.sample(range(array.ndim), array.ndim)
    if draft.chance(0.4) and len(set(array.shape)) < array.ndim:  # axes of one size
        return _one(draft, "Transpose", name, perm=perm)
    first, last = draft.name(), draft.name()
    back = [perm.index(axis) for axis in range(array.ndim)]
    nodes = [
        helper.make_node("Transpose", [name], [first], perm=perm),
        helper.make_node("Transpose", [first], [last], perm=back),
    ]
    return nodes, last, f"Transpose {perm} and back"


def _reshape(draft: Draft, name: str, array: np.ndarray) -> Made:
    if draft.chance(0.3):
        sizes = [0 if draft.chance(0.5) and size else size for size in array.shape]
        return _one(draft, "Reshape", name, draft.constant(np.array(sizes, np.int64)))
    other = draft.some(([-1], [1, *array.shape], [*array.shape, 1], [-1, *array.shape[-1:]], [*array.shape[::-1]]))
    first, last = draft.name(), draft.name()
    shapes = [draft.constant(np.array(each, np.int64)) for each in (other, array.shape)]
    nodes = [
        helper.make_node("Reshape", [name, shapes[0]], [first]), helper.make_node("Reshape", [first, shapes[1]], [last])
    ]  # fmt: skip
    return nodes, last, f"Reshape to {other} and back"


def _quantize(draft: Draft, name: str, array: np.ndarray) -> Made:
    if array.dtype != np.float32 or draft.opset < 10:
        raise NotHere
    dtype = (
        draft.some((np.int8, np.uint8)) if draft.opset < 21 else draft.some((np.int8, np.uint8, np.int16, np.uint16))
    )
    largest = float(np.abs(array[np.isfinite(array)]).max(initial=0)) or 1.0
    shape: tuple[int, ...] = ()
    more = {}
    if array.ndim and draft.chance(0.25) and draft.opset >= 13:
        axis = draft.random.randrange(array.ndim)
        shape, more = (array.shape[axis],), {"axis": axis}
    scale = draft.constant(
        (np.full(shape, largest / 100) * np.linspace(0.8, 1.2, int(np.prod(shape))).reshape(shape)).astype(np.float32)
    )
    point = draft.constant(np.full(shape, draft.some((0, 0, 3, 20)), dtype))
    first, last = draft.name(), draft.name()
    nodes = [
        helper.make_node("QuantizeLinear", [name, scale, point], [first], **more),
        helper.make_node("DequantizeLinear", [first, scale, point], [last], **more),
    ]
    return nodes, last, f"Q and DQ of {np.dtype(dtype).name}{list(shape)}"


def _softmax(draft: Draft, name: str, array: np.ndarray) -> Made:
    if not draft.is_float(name) or not array.ndim:
        raise NotHere
    return _one(draft, "Softmax", name, axis=draft.random.randrange(-array.ndim, array.ndim))


def _slice(draft: Draft, name: str, array: np.ndarray) -> Made:
    if not array.ndim or draft.opset < 11:
        raise NotHere
    axis = draft.random.randrange(array.ndim)
    step = draft.some((1, 1, 2, -1))
    starts, ends = ([-1], [-(2**31)]) if step < 0 else ([draft.some((0, 0, 1))], [2**31 - 1])
    numbers = [draft.constant(np.array(each, np.int64)) for each in (starts, ends, [axis], [step])]
    return _one(draft, "Slice", name, *numbers)


_WAYS: Sequence[Callable[[Draft, str, np.ndarray], Made]] = (
    _identity, _unary, _unary, _binary, _binary, _binary, _clip, _cast_back, _transpose, _transpose, _reshape,
    _quantize, _quantize, _softmax, _slice,
)  # fmt: skip
INSERTIONS: Sequence[tuple[int, Callable[[Draft], str]]] = (
    (2, show_value), (2, read_twice), (3, swap_operands), (3, rewire), (8, insert_between), (4, append_behind),
)  # fmt: skip
