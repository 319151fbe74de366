"""ConvTranspose to a few channels: one product for each image, whose columns are added up.

    columns [M x taps, pixels] = weights [M x taps, C] @ image [C, pixels]

Where the result has few channels, vectors of them would be almost empty; pixels of a row-major image fill them.
"""

from __future__ import annotations

import numpy as np

from ort_core.cpu.codegen.images.column_sums import ColumnSums, column_sums_kernel
from ort_core.cpu.lowering.images.layout_steps import is_channels_last, kernel_text
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.pending import PendingAnchor, PendingElementwise, known_order
from ort_core.cpu.lowering.rules.convolutions.transposed_phases import edge_of
from ort_core.cpu.lowering.rules.images.images import strides_and_dilations
from ort_core.cpu.lowering.rules.products import Product
from ort_core.cpu.lowering.steps import Argument, pointer
from ort_core.cpu.lowering.value_types import tensor_type
from ort_core.cpu.lowering.views import View, count_of
from ort_core.plugin.ir import DataType, Node
from ort_core.plugin.loops import element
from ort_core.plugin.ops import node_transposed

F32 = DataType.FLOAT
MOST_FILTERS = 4  # more channels fill half a vector of them
MOST_TAPS = 64  # of a window: all of them are written out
LEAST_DEPTH = 8  # channels that are added up by the product: fewer are sooner added by taps


def transposed_by_columns(lowering: Lowering, node: Node, weights: np.ndarray) -> bool:
    """Lower a ConvTranspose of row-major images to a few channels; return whether it is one."""
    value = node.input(0)
    if value is None or weights.ndim != 4 or node.int_attribute("group", 1) != 1:
        return False
    depth, filters, *kernel = weights.shape
    taps = (kernel[0], kernel[1])
    if filters > MOST_FILTERS or depth < LEAST_DEPTH or not 1 < taps[0] * taps[1] <= MOST_TAPS:
        return False
    if known_order(lowering.pending(value)) or is_channels_last(lowering.view(value)):
        return False
    _, shape = tensor_type(node.output)
    x = lowering.contiguous(value)
    strides, dilations = strides_and_dilations(node, 2)
    before = []
    for axis, facts in enumerate(node_transposed(node, x.shape[2:], taps)):
        pad, surplus = edge_of(facts)
        before.append(pad)
        lowering.require_equal(shape[2 + axis], x.shape[2 + axis] * strides[axis] + surplus)
    lowering.require_equal(x.shape[1], depth)
    batch, pixels, rows = x.shape[0], count_of(x.shape[2:]), filters * taps[0] * taps[1]
    left = lowering.constant_view(np.ascontiguousarray(weights.reshape(depth, rows).T, np.float32), F32)
    columns = lowering.new_view(F32, (batch, rows, pixels))
    product = Product(left, x.reshaped((batch, depth, pixels)), None, "ConvTranspose")
    product.store(lowering, PendingAnchor(product, element(0, F32), (), columns.shape, (node,)), columns)
    bias = None if node.input(2) is None else lowering.contiguous(node.input(2))
    target = lowering.result_view(node.output, shape) if bias is None else lowering.new_view(F32, shape)
    spec = ColumnSums(taps, (strides[0], strides[1]), (dilations[0], dilations[1]), (before[0], before[1]))
    machine = lowering.target
    kernel_of_sums = kernel_text("columnsums", repr(spec), lambda name: column_sums_kernel(name, spec, machine))
    words: list[Argument] = [pointer(target), pointer(columns), batch * filters, *shape[2:], *x.shape[2:]]
    work = count_of(columns.shape)
    lowering.emit(kernel_of_sums, words, [columns.buffer], [target.buffer], work, (node,), work)
    if bias is None:
        lowering.set(node.output, target)
        return True
    lowering.require_equal(count_of(bias.shape), filters)
    operands: tuple[View, ...] = (target, bias.reshaped((filters, 1, 1)))
    lowering.set(node.output, PendingElementwise(element(0, F32) + element(1, F32), operands, shape, (node,)))
    return True
