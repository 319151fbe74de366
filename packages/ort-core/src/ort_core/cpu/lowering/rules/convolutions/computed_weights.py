"""Convolution with weights that are computed in the graph: windows copied out, then one product for each group.

Weights of constant convolutions are packed before a run, for kernels that read the images as they lie. Computed ones
(weights mixed by the input, or made by another network) are mostly used once, so that packing them is no gain.
"""

from __future__ import annotations

from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.pending import PendingAnchor, PendingElementwise
from ort_core.cpu.lowering.rules.images.images import open_pads_by_axis, strides_and_dilations
from ort_core.cpu.lowering.rules.products import Product
from ort_core.cpu.lowering.steps import NotLowered
from ort_core.cpu.lowering.value_types import tensor_type
from ort_core.cpu.lowering.views import View, count_of, dense_strides
from ort_core.plugin.ir import DataType, KnownDim, Node, minimum
from ort_core.plugin.loops import Scalar, element, lift

F32 = DataType.FLOAT


def convolution_of_windows(lowering: Lowering, node: Node) -> None:
    """Conv as ``weights [groups, channels out, channels in x taps] @ windows [..., channels in x taps, pixels]``."""
    _, shape = tensor_type(node.output)
    weights = lowering.contiguous(node.input(1))
    images = lowering.view(node.input(0))
    groups = node.int_attribute("group", 1)
    taps = weights.shape[2:]
    if images.dtype is not F32 or weights.dtype is not F32 or not all(isinstance(each, int) for each in taps):
        raise NotLowered("only float32 convolutions with windows of a known size are generated")
    channels, filters = weights.shape[1], weights.shape[0]
    if not isinstance(filters, int) or filters % groups:
        raise NotLowered("how many filters a group has is only known at run time")
    lowering.require_equal(images.shape[1], channels * groups)
    lowering.require_equal(minimum(count_of(weights.shape), 1), 1)
    windows = _windows(lowering, node, images, taps, shape[2:])
    depth, pixels = channels * count_of(taps), count_of(shape[2:])
    columns = windows.reshaped((shape[0], groups, depth, pixels))
    left = weights.reshaped((groups, filters // groups, depth))
    parted = (shape[0], groups, filters // groups, pixels)
    value: Scalar = element(0, F32)
    inputs: tuple[View, ...] = ()
    if node.input(2) is not None:
        bias = lowering.contiguous(node.input(2))
        lowering.require_equal(count_of(bias.shape), filters)
        value, inputs = value + element(1, F32), (bias.reshaped((groups, filters // groups, 1)),)
    product = Product(left, columns, None, "Conv")
    target = lowering.result_view(node.output)
    product.store(lowering, PendingAnchor(product, value, inputs, parted, (node,)), target.reshaped(parted))
    lowering.set(node.output, target)


def _windows(
    lowering: Lowering, node: Node, images: View, taps: tuple[KnownDim, ...], space: tuple[KnownDim, ...]
) -> View:
    """Return what each pixel of the result sees, shape (batch, channels, *taps, *space), without gaps."""
    before, after = open_pads_by_axis(node, taps, images.shape[2:])  # type: ignore[arg-type]  # the taps are numbers
    steps, dilations = strides_and_dilations(node, len(taps))
    padded = _padded(lowering, node, images, before, after) if any((*before, *after)) else images
    shape = (*padded.shape[:2], *taps, *space)
    strides = (
        *padded.strides[:2],
        *(each * wide for each, wide in zip(padded.strides[2:], dilations)),
        *(each * step for each, step in zip(padded.strides[2:], steps)),
    )
    for axis, size in enumerate(space):  # the last window ends within the images
        reach = (size - 1) * steps[axis] + (taps[axis] - 1) * dilations[axis] + 1
        lowering.require_equal(minimum(reach, padded.shape[axis + 2]), reach)
    seen = View(padded.buffer, shape, strides, padded.offset)
    return seen if seen.is_contiguous else lowering.copied(seen)


def _padded(lowering: Lowering, node: Node, images: View, before: list[KnownDim], after: list[KnownDim]) -> View:
    space = (size + low + high for size, low, high in zip(images.shape[2:], before, after))
    shape = (*images.shape[:2], *space)
    padded = lowering.new_view(F32, shape)
    lowering.stores.store_elementwise(PendingElementwise(lift(0.0, F32), (), shape, (node,)), padded)
    strides = dense_strides(shape)
    offset: KnownDim = sum((low * step for low, step in zip(before, strides[2:])), start=0)
    inside = View(padded.buffer, images.shape, strides, padded.offset + offset)
    pending = PendingElementwise(element(0, F32), (images,), images.shape, (node,))
    lowering.stores.store_elementwise(pending, inside)
    return padded
