"""Networks as static quantization writes them: every value between two operators goes through integers."""

from __future__ import annotations

from random_graphs import element_types as et
from random_graphs.element_types import ElementType
from random_graphs.families.images import image
from random_graphs.families.quantized import scale, zero_point
from random_graphs.family import family
from random_graphs.writer import GraphWriter, Refused, Value


def through(g: GraphWriter, value: Value, dtype: ElementType) -> Value:
    """Quantize to the range that a value has, and dequantize."""
    largest = max((float(abs(sample.truth).max(initial=0.0)) for sample in value.samples), default=1.0)
    lowest = min((float(sample.truth.min(initial=0.0)) for sample in value.samples), default=0.0)
    is_positive = lowest >= 0 and dtype is et.U8
    step = max(largest, 0.01) / (255 if is_positive else 127) * g.choice((1.0, 1.0, 0.7))
    zero = g.constant(0 if is_positive or dtype is et.I8 else 128, dtype)
    parts = [g.constant(step, et.F32), zero]
    return g.node("DequantizeLinear", [g.node("QuantizeLinear", [value, *parts]), *parts])


def weights(g: GraphWriter, count: int, *rest: int, axis: int = 0) -> Value:
    """Return dequantized weights, ``count`` along their first axis, or, of products, along their last."""
    dtype = g.choice((et.I8, et.I8, et.U8))
    shape = (count, *rest) if axis == 0 else (*rest, count)
    low = -128 if dtype is et.I8 else 0
    integers = g.constant(g.numbers.integers(low, low + 256, shape), dtype)
    if g.chance(0.5):
        zeros = zero_point(g, dtype, count)
        return g.node("DequantizeLinear", [integers, scale(g, et.F32, count, low=0.001, high=0.006), zeros], axis=axis)
    return g.node("DequantizeLinear", [integers, scale(g, low=0.001, high=0.006), zero_point(g, dtype)])


def bias(g: GraphWriter, count: int) -> Value | None:
    """Return a bias: of 32 bits with its scale, of floats, or none."""
    if g.chance(0.3):
        return None
    if g.chance(0.5):
        return g.weights(et.F32, count)
    integers = g.constant(g.numbers.integers(-5000, 5000, count), et.I32)
    return g.node("DequantizeLinear", [integers, scale(g, low=1e-4, high=2e-4)])


@family(3, in_bodies=False)
def quantized_network(g: GraphWriter) -> Value:
    """Convolutions with sums and pooling between them, a classifier at the end."""
    dtype = g.choice((et.U8, et.I8))
    value = through(g, image(g, et.F32, least=4, most=4), dtype)
    for _ in range(g.choice((1, 2, 3))):
        before = value
        channels = value.size(1)
        kernel = g.choice((1, 3))
        groups = channels if g.chance(0.3) else 1
        count = channels if groups > 1 or g.chance(0.4) else g.choice((1, 3, 8, 16, 17, 33))
        made = weights(g, count, channels // groups, kernel, kernel)
        value = g.node("Conv", [value, made, bias(g, count)], group=groups, pads=[kernel // 2] * 4)
        if g.chance(0.5):
            value = g.node(g.choice(("Relu", "Relu", "HardSigmoid", "LeakyRelu")), [value])
        value = through(g, value, dtype)
        if value.shapes == before.shapes and g.chance(0.6):
            value = through(g, g.node(g.choice(("Add", "Add", "Mul")), [value, before]), dtype)
        if g.chance(0.3):
            value = through(g, g.node("MaxPool", [value], kernel_shape=[2, 2], pads=[0, 0, 1, 1]), dtype)
    value = through(g, g.node("GlobalAveragePool", [value]), dtype)
    rows = g.node("Flatten", [value])
    count = g.choice((1, 5, 16, 17))
    return through(g, g.node("Gemm", [rows, weights(g, count, rows.size(1)), bias(g, count)], transB=1), dtype)


def bent(g: GraphWriter, value: Value, dtype: ElementType) -> Value:
    """Return a function of a quantized value, written as one operator, or as several with bytes between them."""
    form = g.choice(("one", "swish", "gelu"))
    if form == "one":
        return g.node(g.choice(("Relu", "Sigmoid", "Tanh", "Softmax", "Elu")), [value])
    if form == "swish":
        return g.node("Mul", [value, through(g, g.node("Sigmoid", [value]), dtype)])
    root, one, half = (g.constant(each, et.F32) for each in (1.4142135, 1.0, 0.5))
    more = g.node("Erf", [g.node("Div", [value, root])])
    more = through(g, g.node("Add", [through(g, more, dtype), one]), dtype)
    return g.node("Mul", [through(g, g.node("Mul", [value, more]), dtype), half])


@family(3, in_bodies=False)
def quantized_block(g: GraphWriter) -> Value:
    """A product, an activation, a product and a sum, over rows."""
    dtype = g.choice((et.U8, et.I8))
    value = through(g, g.pick(et.F32, least=2, most=4), dtype)
    depth, inner = value.size(-1), g.choice((1, 8, 16, 17, 33))
    if not depth:
        raise Refused("rows of no elements")
    first = g.node("MatMul", [value, weights(g, inner, depth, axis=1)])
    if (added := bias(g, inner)) is not None:
        first = g.node("Add", [first, added])
    first = through(g, first, dtype)
    first = through(g, bent(g, first, dtype), dtype)
    second = through(g, g.node("MatMul", [first, weights(g, depth, inner, axis=1)]), dtype)
    return through(g, g.node("Add", [second, value]), dtype)
