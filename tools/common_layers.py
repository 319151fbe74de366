"""layers(): what most models are made of, as small graphs; kernels that they lower to come compiled with the package.

A kernel whose code depends on sizes is another one in every model, and of no use: what layers of all ``SIZES`` lower to
is not. Layers are written as the usual exporters write them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
EPSILONS = (1e-5, 1e-6, 1e-12)
UNARY = ("Relu", "Sigmoid", "Tanh", "Exp", "Log", "Sqrt", "Neg", "Abs", "Erf", "Gelu", "Reciprocal", "Softplus")
BINARY = ("Add", "Sub", "Mul", "Div", "Max", "Min", "Pow")
Shape = Sequence[str | int]


@dataclass(frozen=True)
class Sizes:
    """The sizes of layers: of rows, of the rows between two products, how many heads there are, and of each."""

    hidden: int
    heads: int
    depth: int

    @property
    def width(self) -> int:
        """The size of rows."""
        return self.heads * self.depth

    @property
    def channels(self) -> int:
        """Of images: whole vectors, as Winograd's transforms take them."""
        return 32 * self.heads


SIZES = (Sizes(80, 2, 272), Sizes(208, 3, 208))  # short rows have kernels of their own size, which stay in registers


class Layer:
    """A graph under construction, whose weights are random numbers."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        self._nodes: list[onnx.NodeProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._weights: list[onnx.TensorProto] = []
        self._random = np.random.default_rng(0)

    def input(self, name: str, shape: Shape | None = None, dtype: int = FLOAT) -> str:
        """Add an input, rows if no shape is said, and return its name."""
        shape = ("N", "S", self.sizes.width) if shape is None else shape
        self._inputs.append(helper.make_tensor_value_info(name, dtype, shape))
        return name

    def weight(self, *shape: int) -> str:
        """Add a weight and return its name."""
        return self.constant((self._random.random(shape) + 0.5).astype(np.float32))

    def constant(self, value: object, dtype: type = np.float32) -> str:
        """Add a constant and return its name."""
        array = value if isinstance(value, np.ndarray) else np.array(value, dtype)
        name = f"c{len(self._weights)}"
        self._weights.append(numpy_helper.from_array(array, name))
        return name

    def node(self, op_type: str, *inputs: str, outputs: int = 1, **attributes: object) -> str:
        """Add a node and return the name of its first output; the others end in their number."""
        name = f"v{len(self._nodes)}"
        names = [name, *(f"{name}_{number}" for number in range(1, outputs))]
        self._nodes.append(helper.make_node(op_type, inputs, names, **attributes))
        return name

    def model(self, *outputs: str) -> onnx.ModelProto:
        """Return the model."""
        results = [helper.make_empty_tensor_value_info(name) for name in outputs]
        graph = helper.make_graph(self._nodes, "layer", self._inputs, results, self._weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)

    # parts of layers ---------------------------------------------------------------------------------------------

    def product(self, x: str, bias: str | None = "last") -> str:
        """Multiply with a matrix and add a bias, written as the ``first`` or ``last`` operand."""
        y = self.node("MatMul", x, self.weight(self.sizes.width, self.sizes.hidden))
        if bias is None:
            return y
        operands = (y, self.weight(self.sizes.hidden))
        return self.node("Add", *(operands if bias == "last" else reversed(operands)))

    def norm(self, x: str, epsilon: float) -> str:
        """Normalize rows."""
        scale, bias = self.weight(self.sizes.width), self.weight(self.sizes.width)
        return self.node("LayerNormalization", x, scale, bias, axis=-1, epsilon=epsilon)

    def root_mean_square_norm(self, x: str, epsilon: float) -> str:
        """Normalize rows by the mean of their squares."""
        mean = self.node("ReduceMean", self.node("Pow", x, self.constant(2.0)), self.constant([-1], np.int64))
        root = self.node("Sqrt", self.node("Add", mean, self.constant(epsilon)))
        normal = self.node("Mul", x, self.node("Div", self.constant(1.0), root))
        return self.node("Mul", normal, self.weight(self.sizes.width))

    def convolution(self, x: str, channels: int, stride: int = 1) -> str:
        """Convolve with windows of 3x3."""
        weights = (self.weight(self.sizes.channels, channels, 3, 3), self.weight(self.sizes.channels))
        return self.node("Conv", x, *weights, kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[stride, stride])

    def heads(self, x: str) -> str:
        """Cut rows into heads."""
        cut = self.node("Reshape", x, self.constant([0, 0, self.sizes.heads, self.sizes.depth], np.int64))
        return self.node("Transpose", cut, perm=[0, 2, 1, 3])


Activation = Callable[[Layer, str], str]


def _named(op_type: str, **attributes: object) -> Activation:
    return lambda layer, x: layer.node(op_type, x, **attributes)


def _silu(layer: Layer, x: str) -> str:
    return layer.node("Mul", x, layer.node("Sigmoid", x))


def _gelu_by_erf(layer: Layer, x: str) -> str:
    scaled = layer.node("Div", x, layer.constant(np.sqrt(2)))
    factor = layer.node("Add", layer.node("Erf", scaled), layer.constant(1.0))
    return layer.node("Mul", layer.node("Mul", x, factor), layer.constant(0.5))


ACTIVATIONS: tuple[Activation, ...] = (
    lambda layer, x: x,
    _named("Relu"),
    _named("Gelu"),
    _named("Gelu", approximate="tanh"),
    _gelu_by_erf,
    _named("Sigmoid"),
    _named("Tanh"),
    _named("Elu"),
    _named("LeakyRelu"),
    _silu,
)


def layers(sizes: Sizes) -> Iterator[onnx.ModelProto]:
    """Give all layers of some sizes."""
    yield from _products(sizes)
    yield from _norms(sizes)
    yield from _attentions(sizes)
    yield from _rotations(sizes)
    yield from _embeddings(sizes)
    yield from _masks(sizes)
    yield from _copies(sizes)
    yield from _images(sizes)
    yield from _elementwise(sizes)


def _products(sizes: Sizes) -> Iterator[onnx.ModelProto]:
    for activation in ACTIVATIONS:
        for bias in ("first", "last", None):
            for is_gated in (True, False):
                layer = Layer(sizes)
                x = layer.input("x")
                y = activation(layer, layer.product(x, bias))
                yield layer.model(layer.node("Mul", y, layer.product(x, bias)) if is_gated else y)
        layer = Layer(sizes)
        y = activation(layer, layer.product(layer.input("x", ("N", sizes.width))))
        yield layer.model(layer.node("BatchNormalization", y, *(layer.weight(sizes.hidden) for _ in range(4))))
    for bias in ("first", "last", None):
        for is_first in (True, False):
            layer = Layer(sizes)
            operands = (layer.input("r", ("N", "S", sizes.hidden)), layer.product(layer.input("x"), bias))
            yield layer.model(layer.node("Add", *(operands if is_first else reversed(operands))))
    layer = Layer(sizes)
    yield layer.model(layer.node("MatMul", layer.input("a", ("N", "S", "K")), layer.input("b", ("N", "K", "T"))))


def _norms(sizes: Sizes) -> Iterator[onnx.ModelProto]:
    for normed in (Layer.norm, Layer.root_mean_square_norm):
        for epsilon in EPSILONS:
            for is_read in (False, True):  # whether the sum is read again, as where norms come first
                for has_bias in (False, True):
                    layer = Layer(sizes)
                    total = layer.node("Add", layer.input("x"), layer.input("r"))
                    total = layer.node("Add", total, layer.weight(sizes.width)) if has_bias else total
                    y = normed(layer, total, epsilon)
                    yield layer.model(y, total) if is_read else layer.model(y)
            layer = Layer(sizes)
            yield layer.model(normed(layer, layer.input("x"), epsilon))
    for op_type in ("Softmax", "LogSoftmax"):
        layer = Layer(sizes)
        yield layer.model(layer.node(op_type, layer.input("x"), axis=-1))
    for classes in (2, 10, 20, 40):
        layer = Layer(sizes)
        yield layer.model(layer.node("Softmax", layer.input("x", ("N", classes)), axis=-1))


def _attentions(sizes: Sizes) -> Iterator[onnx.ModelProto]:
    masks: tuple[Shape | None, ...] = (None, ("N", 1, 1, "T"), ("N", 1, "S", "T"), ("S", "T"))
    for lengths in (("S", "T"), (37, 41)):  # how many queries there are says whether they may be few
        for mask in masks:
            for is_scaled in (True, False):
                layer = Layer(sizes)
                query, key, value = (
                    layer.heads(layer.input(name, ("N", lengths[name != "q"], sizes.width))) for name in ("q", "k", "v")
                )
                scores = layer.node("MatMul", query, layer.node("Transpose", key, perm=[0, 1, 3, 2]))
                scores = layer.node("Mul", scores, layer.constant(sizes.depth**-0.5)) if is_scaled else scores
                if mask is not None:
                    shape = [dict(zip("ST", lengths, strict=True)).get(str(size), size) for size in mask]
                    scores = layer.node("Add", scores, layer.input("mask", shape))
                mixed = layer.node("MatMul", layer.node("Softmax", scores, axis=-1), value)
                joined = layer.node("Transpose", mixed, perm=[0, 2, 1, 3])
                yield layer.model(layer.node("Reshape", joined, layer.constant([0, 0, sizes.width], np.int64)))


def _rotations(sizes: Sizes) -> Iterator[onnx.ModelProto]:
    layer = Layer(sizes)
    places = layer.node("Unsqueeze", layer.input("places", ("N", "S"), INT64), layer.constant([2], np.int64))
    angles = layer.node("Mul", layer.node("Cast", places, to=FLOAT), layer.weight(sizes.depth // 2))
    angles = layer.node("Concat", angles, angles, axis=-1)
    yield layer.model(layer.node("Cos", angles), layer.node("Sin", angles))
    for op_type in ("Cos", "Sin"):
        layer = Layer(sizes)
        yield layer.model(layer.node(op_type, layer.input("x")))
    layer = Layer(sizes)
    x, angle = layer.heads(layer.input("x")), ("N", 1, "S", sizes.depth)
    middle, end, last = (layer.constant([number], np.int64) for number in (sizes.depth // 2, sizes.depth, -1))
    first = layer.node("Slice", x, layer.constant([0], np.int64), middle, last)
    second = layer.node("Slice", x, middle, end, last)
    turned = layer.node("Concat", layer.node("Neg", second), first, axis=-1)
    straight = layer.node("Mul", x, layer.input("cos", angle))
    yield layer.model(layer.node("Add", straight, layer.node("Mul", turned, layer.input("sin", angle))))


def _embeddings(sizes: Sizes) -> Iterator[onnx.ModelProto]:
    for tables in (1, 2, 3):
        for epsilon in (None, *EPSILONS):
            for is_shared in (False, True):  # whether the last table is read at the same places in each entry
                layer = Layer(sizes)
                total = None
                for number in range(tables):
                    is_last = number == tables - 1
                    ids = layer.input(f"ids{number}", (1 if is_shared and is_last else "N", "S"), INT64)
                    row = layer.node("Gather", layer.weight(30, sizes.width), ids)
                    total = row if total is None else layer.node("Add", total, row)
                assert total is not None
                yield layer.model(total if epsilon is None else layer.norm(total, epsilon))


def _masks(sizes: Sizes) -> Iterator[onnx.ModelProto]:
    lowest = np.finfo(np.float32).min
    for axes in ([], [1], [1, 2]):
        layer = Layer(sizes)
        mask = layer.input("mask", ("N", "S"), INT64)
        mask = layer.node("Unsqueeze", mask, layer.constant(axes, np.int64)) if axes else mask
        kept = layer.node("Sub", layer.constant(1.0), layer.node("Cast", mask, to=FLOAT))
        yield layer.model(layer.node("Mul", kept, layer.constant(lowest)))
        layer = Layer(sizes)
        yield layer.model(layer.node("Cast", layer.input("mask", ("N", "S"), INT64), to=BOOL))
    for shape in (("N", 1, "S", "T"), ("N", "S", "T"), ("S", "T")):
        layer = Layer(sizes)
        seen = layer.input("seen", shape, BOOL)
        yield layer.model(layer.node("Where", seen, layer.constant(0.0), layer.constant(lowest)))
    yield _causal_mask(sizes, has_past=False)
    yield _causal_mask(sizes, has_past=True)


def _causal_mask(sizes: Sizes, *, has_past: bool) -> onnx.ModelProto:
    """Return the mask of a decoder as torch exports transformers' one: causal, and without padding."""
    layer = Layer(sizes)
    zero, one = layer.constant(0, np.int64), layer.constant(1, np.int64)
    axes = [layer.constant(each, np.int64) for each in ([0, 1, 2], [0, 1, 3], [1, 2, 3], [-1])]
    entries = layer.node("Squeeze", layer.node("Shape", layer.input("ids", ("N", "S"), INT64), end=1, start=0))
    queries = layer.node("Squeeze", layer.node("Shape", "ids", end=2, start=1))
    past = layer.node(
        "Squeeze", layer.node("Shape", layer.input("past", ("N", sizes.heads, "P", sizes.depth)), end=3, start=2)
    )
    keys = layer.node("Add", past, queries) if has_past else queries
    rows = layer.node("Range", zero, queries, one)
    rows = layer.node("Add", rows, past) if has_past else rows
    columns = layer.node("Unsqueeze", layer.node("Range", zero, keys, one), axes[0])
    seen = layer.node("LessOrEqual", columns, layer.node("Unsqueeze", rows, axes[1]))
    entry = layer.node("Unsqueeze", layer.node("Range", zero, entries, one), axes[2])
    whole = layer.node("Shape", layer.node("Max", entry, columns))
    places = [layer.node("Unsqueeze", layer.node("Expand", each, whole), axes[3]) for each in (entry, columns)]
    padding = layer.node("Cast", layer.input("mask", ("N", "T"), INT64), to=BOOL)
    kept = layer.node("GatherND", padding, layer.node("Concat", *places, axis=-1), batch_dims=0)
    kept = layer.node("And", layer.node("And", layer.constant(True, np.bool_), seen), kept)
    lowest = layer.constant(np.finfo(np.float32).min)
    return layer.model(layer.node("Where", kept, layer.constant(0.0), lowest), layer.node("Add", rows, zero))


def _copies(sizes: Sizes) -> Iterator[onnx.ModelProto]:
    for dtype in (FLOAT, INT64):
        for rank in range(1, 5):
            axes: Shape = ("N", "A", "B", "C")[:rank]
            for axis in {0, rank - 1}:
                layer = Layer(sizes)
                inputs = [layer.input(name, (*axes[:axis], name, *axes[axis + 1 :]), dtype) for name in "xy"]
                yield layer.model(layer.node("Concat", *inputs, axis=axis))
            layer = Layer(sizes)
            target = layer.node("Shape", layer.input("y", axes, dtype))
            yield layer.model(layer.node("Expand", layer.input("x", (*axes[:-1], 1), dtype), target))
    for perm in ([1, 0], [0, 2, 1], [1, 0, 2], [0, 2, 1, 3], [0, 1, 3, 2], [0, 2, 3, 1], [0, 3, 1, 2]):
        layer = Layer(sizes)
        yield layer.model(layer.node("Transpose", layer.input("x", ("N", "A", "B", "C")[: len(perm)]), perm=perm))


def _images(sizes: Sizes) -> Iterator[onnx.ModelProto]:
    for activation in ACTIVATIONS:
        for pixels in (28, 37):  # even and odd: tiles of two by two cover the first exactly
            for is_added in (False, True):
                layer = Layer(sizes)
                x = layer.node("Relu", layer.convolution(layer.input("x", ("N", 3, 2 * pixels, 2 * pixels)), 3, 2))
                y = layer.convolution(x, sizes.channels)
                yield layer.model(activation(layer, layer.node("Add", y, x) if is_added else y))


def _elementwise(sizes: Sizes) -> Iterator[onnx.ModelProto]:
    shapes: tuple[tuple[Shape, Shape], ...] = (
        (("N", "S", sizes.width), ("N", "S", sizes.width)),
        (("N", "S", sizes.width), (sizes.width,)),
        (("N", "S", sizes.width), (1,)),
        (("N", "S", sizes.width), ("N", "S", 1)),
    )
    for op_type in UNARY:
        layer = Layer(sizes)
        yield layer.model(layer.node(op_type, layer.input("x")))
    for op_type in BINARY:
        for left, right in shapes:
            layer = Layer(sizes)
            yield layer.model(layer.node(op_type, layer.input("x", left), layer.input("y", right)))
