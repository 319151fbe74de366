"""Mutations of constants: fed instead, of another shape, with other numbers, of another type; and optional inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import ml_dtypes
import numpy as np
from onnx import NodeProto, helper, numpy_helper

from random_graphs.element_types import of_array
from random_graphs.mutating.attributes import set_attribute
from random_graphs.mutating.draft import Draft, NotHere
from random_graphs.truth import array_of

ELEMENTWISE = frozenset(["Add", "Sub", "Mul", "Div", "Pow", "Min", "Max", "PRelu", "Where", "Clip"])
_POINTS = {"QuantizeLinear": 2, "DequantizeLinear": 2, "MatMulInteger": 3, "ConvInteger": 3, "DynamicQuantizeMatMul": 3}


def feed_constant(draft: Draft) -> str:
    """Make an initializer an input."""
    tensors = draft.tensors()
    name = draft.some(sorted(tensors))
    tensor, array = tensors[name], array_of(tensors[name])
    draft.graph.input.append(helper.make_tensor_value_info(name, tensor.data_type, list(tensor.dims)))
    if draft.chance(0.85):  # else its number stays as the default
        draft.graph.initializer.remove(tensor)
    draft.feeds[name] = array
    return f"{name} is fed"


def hold_input(draft: Draft) -> str:
    """Make an input an initializer."""
    tensors = {each.name for each in draft.graph.initializer}
    can = [each for each in draft.graph.input if each.name not in tensors and draft.array(each.name) is not None]
    if len(can) < 2:
        raise NotHere
    info = draft.some(can)
    array = np.asarray(draft.feeds.pop(info.name))
    draft.graph.input.remove(info)
    draft.graph.initializer.append(numpy_helper.from_array(array, info.name))
    return f"{info.name} is constant"


def _replace(draft: Draft, name: str, array: np.ndarray) -> None:
    tensor = draft.tensors()[name]
    tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name))


def reshape_constant(draft: Draft) -> str:
    """Give a constant of floats ones as further sizes, fewer of them, or a size of the value beside it."""
    name = draft.some(sorted(name for name in draft.tensors() if draft.is_float(name)))
    array = draft.array(name)
    assert array is not None
    forms = [array.reshape(1, *array.shape), np.squeeze(array), array.reshape(-1)]
    if array.size == 1:
        forms += [array.reshape(()), array.reshape(1), array.reshape(1, 1)]
    if array.ndim:
        forms += [
            array[..., None],
            np.take(array, [0], axis=draft.random.randrange(array.ndim)) if array.size else array,
        ]
    users = [node for node in draft.graph.node if name in node.input]
    if users and (node := draft.some(users)).op_type in ELEMENTWISE:
        forms += _beside(draft, node, name, array) * 3
    found = draft.some([each for each in forms if each.shape != array.shape])
    _replace(draft, name, found)
    return f"{name} of {list(array.shape)} as {list(found.shape)}"


def _beside(draft: Draft, node: NodeProto, name: str, array: np.ndarray) -> list[np.ndarray]:
    """Return the constant with numbers along some axes of the value that meets it."""
    others = [found for each in node.input if each and each != name and (found := draft.array(each)) is not None]
    if not others or not array.size:
        return []
    shape = draft.some(others).shape
    sizes = [size if draft.chance(0.4) else 1 for size in shape]
    while sizes and sizes[0] == 1 and draft.chance(0.5):
        sizes.pop(0)
    numbers = np.resize(array.astype(np.float64).ravel(), sizes) * np.linspace(0.5, 1.5, int(np.prod(sizes))).reshape(
        sizes
    )
    return [numbers.astype(array.dtype)]


def renumber_constant(draft: Draft) -> str:
    """Give a constant other numbers."""
    name = draft.some(sorted(name for name in draft.tensors() if draft.array(name) is not None))
    array = draft.array(name)
    assert array is not None
    dtype = of_array(array)
    if dtype is None or not array.size:
        raise NotHere
    if dtype.is_float:
        kind, found = draft.some(_floats(draft, array))
        quantizes = any(name in node.input and node.op_type.startswith("Q") for node in draft.graph.node)
        if quantizes and not found.all():
            raise NotHere  # nothing may be divided by a scale of zero
    elif array.dtype.kind in "iu":
        kind, found = draft.some(_integers(draft, array))
    else:
        kind, found = "not", ~array if array.dtype == bool else array[..., ::-1]
    _replace(draft, name, np.asarray(found).astype(array.dtype).reshape(array.shape))
    return f"{name} {kind}"


def _floats(draft: Draft, array: np.ndarray) -> list[tuple[str, np.ndarray]]:
    wide = array.astype(np.float64)
    one = wide.copy()
    one.flat[draft.random.randrange(one.size)] *= draft.some((-1, 0, 2))
    some = np.random.default_rng(draft.random.randrange(1000)).uniform(-1.5, 1.5, wide.shape)
    return [
        ("negative", -wide), ("zero", wide * 0), ("one", np.ones_like(wide)), ("twice", wide * 2), ("one other", one),
        ("a bit more", wide + 0.1), ("random", some), ("random", np.abs(some) + 0.1), ("half", np.full_like(wide, 0.5)),
        ("inverse", 1 / np.where(np.abs(wide) < 0.05, 1, wide)),
    ]  # fmt: skip


def _integers(draft: Draft, array: np.ndarray) -> list[tuple[str, np.ndarray]]:
    wide = array.astype(np.int64)
    one = wide.copy()
    one.flat[draft.random.randrange(one.size)] += draft.some((-1, 1, 2))
    return [
        ("more", wide + 1), ("less", wide - 1), ("backwards", wide[..., ::-1] if wide.ndim else wide + 3),
        ("one other", one), ("zero", wide * 0), ("shifted", np.roll(wide, 1)), ("seven", wide * 0 + 7),
        ("negative", -wide),
    ]  # fmt: skip


def shift_zero_point(draft: Draft) -> str:
    """Give quantized numbers a zero point other than zero, or another one."""
    node = draft.some([each for each in draft.graph.node if each.op_type in _POINTS])
    place = _POINTS[node.op_type]
    if node.op_type == "MatMulInteger" and draft.chance(0.5):
        place = 2
    like = _point_like(draft, node, place)
    if like is None or like.dtype.kind not in "iuV" or like.dtype.itemsize > 2:
        raise NotHere
    low = 0 if "u" in like.dtype.name else -3
    values = np.array([draft.random.randint(low, 6) for _ in range(like.size)], np.int64).reshape(like.shape)
    _give(node, place, draft.constant(values.astype(like.dtype)))
    return f"{node.op_type} zero point {values.ravel()[:4].tolist()}"


def _point_like(draft: Draft, node: NodeProto, place: int) -> np.ndarray | None:
    """Return the zero point that a node has, or zeros of the type and shape of one that it may have."""
    if len(node.input) > place and node.input[place]:
        return draft.array(node.input[place])
    is_linear = node.op_type.endswith("Linear")
    data = node.output[0] if node.op_type == "QuantizeLinear" else node.input[0 if is_linear else place - 2]
    stored, scale = draft.array(data), draft.array(node.input[1])
    if stored is None or (is_linear and scale is None):
        return None
    return np.zeros(scale.shape if is_linear and scale is not None else (), stored.dtype)


def _give(node: NodeProto, place: int, name: str) -> None:
    while len(node.input) <= place:
        node.input.append("")
    node.input[place] = name


def rescale(draft: Draft) -> str:
    """Give quantized numbers another scale: for each channel, one for all, negative, or zero."""
    node = draft.some([each for each in draft.graph.node if each.op_type in ("QuantizeLinear", "DequantizeLinear")])
    scale, data = draft.array(node.input[1]), draft.array(node.input[0])
    if scale is None or data is None or not scale.size:
        raise NotHere
    wide = scale.astype(np.float64)
    kind = draft.some(("channels", "channels", "one", "negative", "zero", "twice"))
    if kind == "zero" and node.op_type == "QuantizeLinear":
        raise NotHere
    if kind == "channels" and data.ndim and scale.ndim == 0:
        axis = draft.random.randrange(data.ndim)
        wide = wide * np.linspace(0.5, 1.5, data.shape[axis])
        set_attribute(node, "axis", axis)
    elif kind == "one" and scale.ndim == 1 and scale.size > 1:
        wide = wide[0]
    else:
        wide = {"negative": -wide, "zero": wide * 0}.get(kind, wide * 2)
    if wide.shape != scale.shape and len(node.input) > 2 and node.input[2]:
        point = draft.array(node.input[2])
        if point is None:
            raise NotHere
        node.input[2] = draft.constant(np.resize(point, wide.shape))
    node.input[1] = draft.constant(wide.astype(scale.dtype))
    return f"{node.op_type} scale {kind}"


def drop_input(draft: Draft) -> str:
    """Leave out the last input of a node, or one in the middle."""
    node = draft.some(
        [each for each in draft.graph.node if len([n for n in each.input if n]) > 1 and each.op_type != "Concat"]
    )
    if draft.chance(0.7):
        while node.input and not node.input[-1]:
            del node.input[-1]
        del node.input[-1]
        return f"{node.op_type} without its last input"
    place = draft.random.randrange(1, len(node.input))
    node.input[place] = ""
    return f"{node.op_type} without input {place}"


def add_input(draft: Draft) -> str:
    """Give a node an optional input that it lacks: a bias, limits, a mask."""
    node = draft.some([each for each in draft.graph.node if each.op_type in _OPTIONAL])
    place, shapes = _OPTIONAL[node.op_type](draft, node)
    if len(node.input) > place and node.input[place]:
        raise NotHere
    shape = draft.some(shapes)
    like = draft.array(node.input[0])
    if like is None:
        raise NotHere
    numbers = np.random.default_rng(draft.random.randrange(1000)).uniform(-1, 1, shape)
    _give(node, place, draft.constant(np.asarray(numbers).astype(like.dtype)))
    return f"{node.op_type} with input {place} of {list(shape)}"


Wanted = tuple[int, Sequence[tuple[int, ...]]]


def _channels(draft: Draft, node: NodeProto) -> Wanted:
    made = draft.array(node.output[0])
    return 2, [] if made is None or made.ndim < 2 else [(made.shape[1],)]


def _matrix(draft: Draft, node: NodeProto) -> Wanted:
    made = draft.array(node.output[0])
    if made is None or made.ndim != 2:
        return 2, []
    m, n = made.shape
    return 2, [(), (1,), (n,), (1, n), (m, 1), (m, n), (1, 1)]


def _rows(draft: Draft, node: NodeProto) -> Wanted:
    scale = draft.array(node.input[1]) if len(node.input) > 1 else None
    return 2, [] if scale is None else [scale.shape]


def _limits(draft: Draft, node: NodeProto) -> Wanted:
    return draft.some((1, 2)), [()]


def _columns(draft: Draft, node: NodeProto) -> Wanted:
    made = draft.array(node.output[0])
    return {"MatMulNBits": 5, "DynamicQuantizeMatMul": 4}.get(node.op_type, 6), [] if made is None else [
        (made.shape[-1],)
    ]


def _mask(draft: Draft, node: NodeProto) -> Wanted:
    query, key = draft.array(node.input[0]), draft.array(node.input[1])
    if query is None or key is None or query.ndim < 3:
        return 3, []
    q, k = query.shape[-2], key.shape[-2]
    return 3, [(q, k), (1, k), (q, 1), (1, 1, q, k)]


_OPTIONAL: dict[str, Callable[[Draft, NodeProto], Wanted]] = {
    "Conv": _channels, "ConvTranspose": _channels, "FusedConv": _channels, "Gemm": _matrix, "FusedGemm": _matrix,
    "LayerNormalization": _rows, "Clip": _limits, "MatMulNBits": _columns, "DynamicQuantizeMatMul": _columns,
    "MatMulIntegerToFloat": _columns, "Attention": _mask,
}  # fmt: skip


def retype_constant(draft: Draft) -> str:
    """Give integers of a quantized constant and its zero point another type."""
    nodes = [
        each for each in draft.graph.node if each.op_type == "DequantizeLinear" and each.input[0] in draft.tensors()
    ]
    node = draft.some(nodes)
    array = draft.array(node.input[0])
    assert array is not None
    other = draft.some(("int8", "uint8", "int16", "uint16", "int4", "uint4", "int32"))
    dtype = np.dtype(getattr(ml_dtypes, other) if "4" in other else other)
    names = [node.input[0], *([node.input[2]] if len(node.input) > 2 and node.input[2] else [])]
    for place, name in zip((0, 2), names, strict=False):
        known = draft.array(name)
        if known is None or dtype == known.dtype:
            raise NotHere
        low, high = (0 if "u" in other else -8), 15 if other == "uint4" else 7
        node.input[place] = draft.constant(np.clip(known.astype(np.int64), low, high).astype(dtype))
    return f"DequantizeLinear of {other}"


CONSTANTS: Sequence[tuple[int, Callable[[Draft], str]]] = (
    (4, feed_constant), (1, hold_input), (5, reshape_constant), (4, renumber_constant), (4, shift_zero_point),
    (4, rescale), (2, drop_input), (3, add_input), (2, retype_constant),
)  # fmt: skip
