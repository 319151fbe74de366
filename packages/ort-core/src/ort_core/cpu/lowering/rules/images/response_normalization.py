"""LRN: each number over a power of the squares of the channels around it, which are shifted views of one copy."""

from __future__ import annotations

from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.pending import MAX_INPUTS, PendingElementwise
from ort_core.cpu.lowering.rules.images.lp_pooling import power_of
from ort_core.cpu.lowering.steps import NotLowered
from ort_core.cpu.lowering.views import View
from ort_core.plugin.ir import DataType, KnownDim, Node
from ort_core.plugin.loops import Scalar, element, lift, unary

F32 = DataType.FLOAT
MAX_WINDOW = MAX_INPUTS - 1  # channels: each is an operand beside the number itself


def local_response_normalization(lowering: Lowering, node: Node) -> None:
    """LRN: ``x / (bias + alpha / size * sum of squares of size channels) ** beta``."""
    value = node.input(0)
    size, beta = node.int_attribute("size", 0), node.float_attribute("beta", 0.75)
    x = lowering.view(value)
    if value is None or x.dtype is not F32 or len(x.shape) < 3 or not 1 <= size <= MAX_WINDOW:
        raise NotLowered(f"only windows of few channels over float32 images are generated, not of {size}")
    squares = _bordered_squares(lowering, node, x, size)
    total: Scalar = element(1, F32)
    for k in range(2, size + 1):
        total = total + element(k, F32)
    alpha, bias = node.float_attribute("alpha", 1e-4), node.float_attribute("bias", 1.0)
    divided = element(0, F32) * _inverse_power(total * (alpha / size) + bias, beta)
    lowering.set(node.output, PendingElementwise(divided, (x, *squares), x.shape, (node,)))


def _bordered_squares(lowering: Lowering, node: Node, x: View, size: int) -> list[View]:
    """Return the squares of the channels at each distance of the window; those that do not exist are 0."""
    before, behind = (size - 1) // 2, size // 2
    channels = x.shape[1]
    padded = (x.shape[0], channels + (size - 1), *x.shape[2:])
    whole = lowering.new_view(F32, padded, x.order)

    def part(first: KnownDim, count: KnownDim) -> View:
        shape = (x.shape[0], count, *x.shape[2:])
        return View(whole.buffer, shape, whole.strides, whole.offset + first * whole.strides[1], x.order)

    for first, count in ((0, before), (channels + before, behind)):
        if count:
            lowering.stores.store(lift(0.0, F32), (), part(first, count), (node,))
    number = element(0, F32)
    lowering.stores.store(number * number, (x,), part(before, channels), (node,))
    return [part(distance, channels) for distance in range(size)]


def _inverse_power(base: Scalar, exponent: float) -> Scalar:
    if exponent == 0.75:  # what every network has: two square roots are cheaper than a power
        root = unary("sqrt", base)
        return 1.0 / (root * unary("sqrt", root))
    return power_of(base, -exponent)
