"""Random graphs of the operators that the CPU engine lowers, with feeds of several dynamic sizes.

Values carry what a generator must know to stay within sense: their shape with named sizes, and whether every bit of
them is determined (only such values go through comparisons, roundings and casts, where a last bit decides much).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

Size = int | str
Shape = tuple[Size, ...]
FLOAT, INT64, INT32, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL
NUMPY = {FLOAT: np.float32, INT64: np.int64, INT32: np.int32, BOOL: np.bool_}
SYMBOLS = ("N", "M")
SIZES = (1, 2, 3, 5, 16, 19)


@dataclass(frozen=True)
class Known:
    """A value of the graph."""

    name: str
    dtype: int
    shape: Shape
    exact: bool = True


class RandomGraph:
    """Builds one graph, an operator at a time."""

    def __init__(self, seed: int, length: int, *, images: bool = False) -> None:
        self.random = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.values: list[Known] = []
        self.inputs: list[Known] = []
        self._nodes: list[NodeProto] = []
        self._initializers: list[TensorProto] = []
        for _ in range(self.random.randint(1, 3)):
            self.input(FLOAT, self.shape())
        steps = [*_STEPS, *[_image] * 8] if images else list(_STEPS)
        while len(self._nodes) < length:
            self.random.choice(steps)(self)
        results = [v for v in self.values if v not in self.inputs]
        last = results[-1]
        chosen = {last.name: last}
        for value in self.random.sample(results, min(len(results), self.random.randint(0, 2))):
            chosen[value.name] = value
        if self.random.random() < 0.15:
            chosen[self.inputs[0].name] = self.inputs[0]
        self.outputs = list(chosen.values())

    def model(self) -> ModelProto:
        """Return the model; outputs carry no shapes, so that inference is what gives them."""
        ins = [helper.make_tensor_value_info(v.name, v.dtype, v.shape) for v in self.inputs]
        outs = [helper.make_tensor_value_info(v.name, v.dtype, None) for v in self.outputs]
        graph = helper.make_graph(self._nodes, "random", ins, outs, initializer=self._initializers)
        opsets = [helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)

    def feeds(self, sizes: dict[str, int]) -> dict[str, np.ndarray]:
        """Return inputs for an assignment of the named sizes."""
        return {v.name: self._array(v, [sizes[s] if isinstance(s, str) else s for s in v.shape]) for v in self.inputs}

    # for steps --------------------------------------------------------------------------------------------------------

    def shape(self) -> Shape:
        rank = self.random.choice((0, 1, 2, 2, 3, 3, 4))
        return tuple(self.random.choice((*SYMBOLS, *SIZES)) for _ in range(rank))

    def input(self, dtype: int, shape: Shape) -> Known:
        known = Known(f"in{len(self.inputs)}", dtype, shape)
        self.inputs.append(known)
        self.values.append(known)
        return known

    def constant(self, array: np.ndarray) -> str:
        name = f"c{len(self._initializers)}"
        self._initializers.append(numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name))
        return name

    def weights(self, *shape: int, scale: float = 1.0) -> str:
        return self.constant((self.numbers.standard_normal(shape) * scale).astype(np.float32))

    def pick(self, *dtypes: int, rank: int = 0, where: Callable[[Known], bool] = lambda value: True) -> Known | None:
        fitting = [v for v in self.values if v.dtype in dtypes and len(v.shape) >= rank and where(v)]
        if not fitting:
            return None
        return self.random.choice(fitting[-4:] if self.random.random() < 0.6 else fitting)

    def node(
        self, operator: str, inputs: list[str], dtype: int, shape: Shape, exact: bool = False, **attributes: object
    ) -> Known:
        domain = str(attributes.pop("domain", ""))
        known = Known(f"v{len(self.values)}", dtype, shape, exact)
        self._nodes.append(helper.make_node(operator, inputs, [known.name], domain=domain, **attributes))
        self.values.append(known)
        return known

    def split(self, value: Known, axis: int, sizes: list[int]) -> None:
        parts = [
            Known(f"v{len(self.values) + i}", value.dtype, (*value.shape[:axis], size, *value.shape[axis + 1 :]),
                  value.exact)
            for i, size in enumerate(sizes)
        ]  # fmt: skip
        names = [value.name, self.constant(np.array(sizes, np.int64))]
        self._nodes.append(helper.make_node("Split", names, [p.name for p in parts], axis=axis))
        self.values.extend(parts)

    def partner(self, value: Known) -> tuple[str, bool]:
        """Return something of the same type that broadcasts to a value, and whether it is exact."""
        kind = self.random.random()
        same = [v for v in self.values if v.dtype == value.dtype and _broadcasts(v.shape, value.shape)]
        if kind < 0.5 and same:
            chosen = self.random.choice(same)
            return chosen.name, chosen.exact
        if kind < 0.7:
            array = np.array(self.random.choice((2, 3, -1, 0.5)), NUMPY[value.dtype])
            return self.constant(array if self.random.random() < 0.5 or not value.shape else array.reshape(1)), True
        if kind < 0.85 and value.shape and isinstance(value.shape[-1], int):
            return self.constant(self._array(value, [value.shape[-1]])), True
        if len(self.inputs) < 5 and "?" not in value.shape:
            shape = tuple(1 if self.random.random() < 0.4 else s for s in value.shape)
            return self.input(value.dtype, shape[self.random.randint(0, len(shape)) :]).name, True
        return value.name, value.exact

    def _array(self, value: Known, shape: list[int]) -> np.ndarray:
        if value.dtype == FLOAT:
            return self.numbers.standard_normal(shape).astype(np.float32)
        if value.dtype == BOOL:
            return self.numbers.integers(0, 2, shape).astype(np.bool_)
        return self.numbers.integers(-5, 6, shape).astype(NUMPY[value.dtype])


Step = Callable[[RandomGraph], None]
_SMOOTH = ("Tanh", "Sigmoid", "Erf", "Elu", "Selu", "Celu", "HardSigmoid", "HardSwish", "Gelu", "Softplus", "Softsign",
           "Mish", "LeakyRelu")  # fmt: skip


def _smooth(graph: RandomGraph) -> None:
    if value := graph.pick(FLOAT):
        graph.node(graph.random.choice(_SMOOTH), [value.name], FLOAT, value.shape)


def _kept(graph: RandomGraph) -> None:
    if value := graph.pick(FLOAT, INT32, INT64):
        operators: tuple[str, ...] = (
            ("Neg", "Abs", "Relu", "Identity") if value.dtype == FLOAT else ("Neg", "Abs", "Identity")
        )
        graph.node(graph.random.choice(operators), [value.name], value.dtype, value.shape, value.exact)


def _rounded(graph: RandomGraph) -> None:
    if value := graph.pick(FLOAT, where=lambda v: v.exact):
        graph.node(graph.random.choice(("Floor", "Ceil", "Round", "Sign")), [value.name], FLOAT, value.shape, True)


def _arithmetic(graph: RandomGraph) -> None:
    if value := graph.pick(FLOAT, INT32, INT64):
        other, exact = graph.partner(value)
        operator = graph.random.choice(("Add", "Sub", "Mul", "Min", "Max", "Add"))
        names = [value.name, other] if graph.random.random() < 0.7 else [other, value.name]
        kept = value.exact and exact and (value.dtype != FLOAT or operator in ("Min", "Max"))
        graph.node(operator, names, value.dtype, value.shape, kept)


def _divided(graph: RandomGraph) -> None:
    if value := graph.pick(FLOAT):
        size = graph.node("Abs", [graph.partner(value)[0]], FLOAT, ())
        graph.values.pop()  # its shape is not known here
        graph.values.append(Known(size.name, FLOAT, ("?",), False))
        above = graph.node("Add", [size.name, graph.constant(np.float32(1))], FLOAT, ("?",))
        graph.node("Div", [value.name, above.name], FLOAT, value.shape)


def _compared(graph: RandomGraph) -> None:
    if value := graph.pick(FLOAT, INT32, INT64, where=lambda v: v.exact):
        other, exact = graph.partner(value)
        if exact:
            operators = ("Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual")
            graph.node(graph.random.choice(operators), [value.name, other], BOOL, value.shape, True)


def _logic(graph: RandomGraph) -> None:
    if value := graph.pick(BOOL):
        if graph.random.random() < 0.4:
            graph.node("Not", [value.name], BOOL, value.shape, True)
        else:
            other, _ = graph.partner(value)
            graph.node(graph.random.choice(("And", "Or", "Xor")), [value.name, other], BOOL, value.shape, True)


def _chosen(graph: RandomGraph) -> None:
    if value := graph.pick(FLOAT, INT32, INT64):
        fitting = [v for v in graph.values if v.dtype == BOOL and _broadcasts(v.shape, value.shape)]
        condition = graph.random.choice(fitting).name if fitting else None
        if condition is None and len(graph.inputs) < 5 and "?" not in value.shape:
            condition = graph.input(BOOL, tuple(1 if graph.random.random() < 0.5 else s for s in value.shape)).name
        if condition is not None:
            other, exact = graph.partner(value)
            graph.node("Where", [condition, value.name, other], value.dtype, value.shape, value.exact and exact)


def _cast(graph: RandomGraph) -> None:
    if value := graph.pick(FLOAT, INT32, INT64, BOOL, where=lambda v: v.exact):
        to = graph.random.choice((FLOAT, INT32, INT64, BOOL))
        graph.node("Cast", [value.name], to, value.shape, True, to=to)


def _clipped(graph: RandomGraph) -> None:
    if value := graph.pick(FLOAT, INT32, INT64):
        low, high = (graph.constant(np.array(x, NUMPY[value.dtype])) for x in (-1, 2))
        names = graph.random.choice(([value.name], [value.name, low], [value.name, low, high], [value.name, "", high]))
        graph.node("Clip", names, value.dtype, value.shape, value.exact)


def _product(graph: RandomGraph) -> None:
    value = graph.pick(FLOAT, rank=2, where=lambda v: "?" not in v.shape)
    if value is None:
        return
    depth = value.shape[-1]
    if isinstance(depth, int) and depth > 0 and graph.random.random() < 0.8:
        columns = graph.random.choice(SIZES)
        if len(value.shape) == 2 and graph.random.random() < 0.4:
            names = [value.name, graph.weights(columns, depth, scale=depth**-0.5), graph.weights(columns)]
            graph.node("Gemm", names, FLOAT, (value.shape[0], columns), transB=1, alpha=0.5)
        else:
            names = [value.name, graph.weights(depth, columns, scale=depth**-0.5)]
            graph.node("MatMul", names, FLOAT, (*value.shape[:-1], columns))
    else:
        order = [*range(len(value.shape) - 2), len(value.shape) - 1, len(value.shape) - 2]
        squashed = graph.node("Tanh", [value.name], FLOAT, value.shape)
        flipped = graph.node("Transpose", [squashed.name], FLOAT, tuple(value.shape[a] for a in order), perm=order)
        shape = (*value.shape[:-1], value.shape[-2])
        graph.node("MatMul", [squashed.name, flipped.name], FLOAT, shape)


def _rows(graph: RandomGraph) -> None:
    value = graph.pick(FLOAT, rank=1, where=lambda v: "?" not in v.shape)
    if value is None:
        return
    kind, length = graph.random.random(), value.shape[-1]
    if kind < 0.4:
        operator = graph.random.choice(("Softmax", "LogSoftmax"))
        graph.node(operator, [value.name], FLOAT, value.shape, axis=graph.random.choice((-1, -1, -1, 0)))
    elif kind < 0.6 and isinstance(length, int) and length > 1:
        names = [value.name, graph.weights(length), graph.weights(length)][: graph.random.randint(2, 3)]
        graph.node("LayerNormalization", names, FLOAT, value.shape, epsilon=0.1)
    elif kind < 0.7 and isinstance(length, int):
        graph.node("RMSNormalization", [value.name, graph.weights(length)], FLOAT, value.shape, epsilon=0.1)
    else:
        operators = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceSumSquare", "ReduceL1", "ReduceL2")
        first = graph.random.randint(0, len(value.shape) - 1)
        axes = list(range(first, len(value.shape)))
        keep = graph.random.randint(0, 1)
        shape = (*value.shape[:first], *([1] * len(axes) if keep else []))
        graph.node(
            graph.random.choice(operators), [value.name, graph.constant(np.array(axes, np.int64))], FLOAT, shape,
            keepdims=keep,
        )  # fmt: skip


def _moved(graph: RandomGraph) -> None:
    value = graph.pick(FLOAT, INT32, INT64, BOOL, where=lambda v: "?" not in v.shape)
    if value is None or not value.shape:
        return
    shape, rank, kind = value.shape, len(value.shape), graph.random.choice("tufsr")
    if kind == "t":
        order = graph.random.sample(range(rank), rank)
        graph.node("Transpose", [value.name], value.dtype, tuple(shape[a] for a in order), value.exact, perm=order)
    elif kind == "u":
        axis = graph.random.randint(0, rank)
        names = [value.name, graph.constant(np.array([axis], np.int64))]
        graph.node("Unsqueeze", names, value.dtype, (*shape[:axis], 1, *shape[axis:]), value.exact)
    elif kind == "s" and 1 in shape:
        axis = shape.index(1)
        names = [value.name, graph.constant(np.array([axis], np.int64))]
        graph.node("Squeeze", names, value.dtype, (*shape[:axis], *shape[axis + 1 :]), value.exact)
    elif kind == "r" and rank >= 2 and isinstance(shape[-1], int) and isinstance(shape[-2], int):
        names = [value.name, graph.constant(np.array([0] * (rank - 2) + [shape[-1] * shape[-2]], np.int64))]
        graph.node("Reshape", names, value.dtype, (*shape[:-2], shape[-1] * shape[-2]), value.exact)
    elif kind == "f" and rank >= 1 and shape[-1] == 16:
        names = [value.name, graph.constant(np.array([0] * (rank - 1) + [4, 4], np.int64))]
        graph.node("Reshape", names, value.dtype, (*shape[:-1], 4, 4), value.exact)


def _sliced(graph: RandomGraph) -> None:
    value = graph.pick(FLOAT, INT32, INT64, BOOL, rank=1, where=lambda v: "?" not in v.shape)
    if value is None:
        return
    axis = graph.random.randrange(len(value.shape))
    size = value.shape[axis]
    if isinstance(size, int) and size >= 3 and graph.random.random() < 0.5:
        graph.split(value, axis, [1, size - 2, 1])
        return
    start, end, step = graph.random.choice(
        ((0, 1, 1), (1, 2**62, 1), (-2, 2**62, 1), (0, 2, 1), (1, 4, 2), (0, -1, 1), (-100, 3, 1), (2, 1, 1), (3, 5, 1))
    )
    names = [value.name, *(graph.constant(np.array([n], np.int64)) for n in (start, end, axis, step))]
    shape = (*value.shape[:axis], len(range(size)[start:end:step]) if isinstance(size, int) else "?",
             *value.shape[axis + 1 :])  # fmt: skip
    graph.node("Slice", names, value.dtype, shape, value.exact)


def _joined(graph: RandomGraph) -> None:
    value = graph.pick(FLOAT, INT64, rank=1, where=lambda v: "?" not in v.shape)
    if value is None:
        return
    axis = graph.random.randrange(len(value.shape))

    def meets(other: Known) -> bool:
        rest = (*other.shape[:axis], *other.shape[axis + 1 :])
        wanted = (*value.shape[:axis], *value.shape[axis + 1 :])
        return other.dtype == value.dtype and rest == wanted and len(other.shape) == len(value.shape)

    others = [v for v in graph.values if meets(v)]
    parts = [value, *(graph.random.choice(others) for _ in range(graph.random.randint(1, 2)))]
    sizes = [p.shape[axis] for p in parts]
    total: Size = sum(s for s in sizes if isinstance(s, int)) if all(isinstance(s, int) for s in sizes) else "?"
    shape = (*value.shape[:axis], total, *value.shape[axis + 1 :])
    exact = all(p.exact for p in parts)
    graph.node("Concat", [p.name for p in parts], value.dtype, shape, exact, axis=axis)


def _expanded(graph: RandomGraph) -> None:
    if value := graph.pick(FLOAT, INT64, BOOL, where=lambda v: all(isinstance(s, int) for s in v.shape)):
        shape = tuple(graph.random.choice((2, 3)) if s == 1 else s for s in value.shape)
        shape = (*([2] if len(shape) < 4 else []), *shape)
        names = [value.name, graph.constant(np.array(shape, np.int64))]
        graph.node("Expand", names, value.dtype, shape, value.exact)


def _gathered(graph: RandomGraph) -> None:
    value = graph.pick(FLOAT, INT64, INT32, BOOL, rank=1, where=lambda v: "?" not in v.shape)
    if value is None:
        return
    axes = [a for a, s in enumerate(value.shape) if isinstance(s, int) and s > 0]
    if not axes:
        return
    axis = graph.random.choice(axes)
    size = value.shape[axis]
    assert isinstance(size, int)
    shape = graph.random.choice(((), (1,), (3,), (2, 2)))
    kind = graph.random.choice((np.int64, np.int32))
    indices = graph.constant(graph.numbers.integers(-size, size, shape).astype(kind))
    result = (*value.shape[:axis], *shape, *value.shape[axis + 1 :])
    graph.node("Gather", [value.name, indices], value.dtype, result, value.exact, axis=axis)


def _image(graph: RandomGraph) -> None:
    """A convolution, a pooling or a normalisation of images, whose results lie channels-last in memory."""
    images = [v for v in graph.values if len(v.shape) == 4 and v.dtype == FLOAT and _is_image(v.shape)]
    if not images and len(graph.inputs) >= 5:
        return
    sides = graph.random.choice(((7, 6), ("M", 9), (8, 8)))
    value = images[-1] if images else graph.input(FLOAT, ("N", graph.random.choice((3, 16)), *sides))
    batch, channels, height, width = value.shape
    assert isinstance(channels, int)
    kind = graph.random.random()
    if kind < 0.5:
        count = graph.random.choice((4, 16, 17))
        names = [value.name, graph.weights(count, channels, 3, 3, scale=(channels * 9) ** -0.5), graph.weights(count)]
        names = names[: graph.random.randint(2, 3)]
        graph.node("Conv", names, FLOAT, (batch, count, height, width), pads=[1, 1, 1, 1], kernel_shape=[3, 3])
    elif kind < 0.6:
        names = [value.name, graph.weights(5, channels, 1, 1, scale=channels**-0.5)]
        graph.node("Conv", names, FLOAT, (batch, 5, height, width), kernel_shape=[1, 1])
    elif kind < 0.8:
        operator = graph.random.choice(("MaxPool", "AveragePool"))
        graph.node(operator, [value.name], FLOAT, value.shape, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    elif kind < 0.9:
        graph.node("GlobalAveragePool", [value.name], FLOAT, (batch, channels, 1, 1))
    else:
        names = [value.name, graph.weights(channels), graph.weights(channels)]
        graph.node("InstanceNormalization", names, FLOAT, value.shape, epsilon=0.1)


def _is_image(shape: Shape) -> bool:
    return "?" not in shape and isinstance(shape[1], int) and shape[1] > 0 and 1 not in shape[2:]


def _broadcasts(shape: Shape, to: Shape) -> bool:
    if len(shape) > len(to) or "?" in to or "?" in shape:
        return False
    return all(size in (1, wanted) for size, wanted in zip(shape[::-1], to[::-1], strict=False))


_STEPS: tuple[Step, ...] = (
    _smooth, _smooth, _kept, _rounded, _arithmetic, _arithmetic, _arithmetic, _divided, _compared, _logic, _chosen,
    _cast, _clipped, _product, _product, _rows, _rows, _moved, _moved, _sliced, _joined, _expanded, _gathered,
)  # fmt: skip
