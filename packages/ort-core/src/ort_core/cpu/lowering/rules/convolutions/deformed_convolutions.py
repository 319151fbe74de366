"""DeformConv: its taps are sampled into pixels of more channels, and what is left is a convolution by pixels."""

from __future__ import annotations

from ort_core.cpu.codegen.images.deformed_sampling import DeformedSampling, deformed_sampling_kernel
from ort_core.cpu.lowering.images.layout_steps import kernel_text
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.pending import PendingAnchor
from ort_core.cpu.lowering.rules.convolutions.convolutions import ConvolutionAnchor
from ort_core.cpu.lowering.rules.images.images import images, strides_and_dilations
from ort_core.cpu.lowering.steps import Argument, NotLowered, pointer
from ort_core.cpu.lowering.value_types import tensor_type
from ort_core.cpu.lowering.views import View, channels_last, count_of, moved_nbytes
from ort_core.plugin.ir import DataType, KnownDim, Node, minimum
from ort_core.plugin.loops import Scalar, element
from ort_core.plugin.ops import node_windows

F32 = DataType.FLOAT
_CORNERS = 4  # pixels that one sample reads


def deformed_convolution(lowering: Lowering, node: Node) -> None:
    """DeformConv of images with constant weights and one group."""
    weights = lowering.constant_of(node.input(1))
    dtype, shape = tensor_type(node.output)
    if weights is None or weights.ndim != 4 or dtype is not F32:
        raise NotLowered("only float32 deformable convolutions of images with constant weights are generated")
    if node.int_attribute("group", 1) != 1:
        raise NotLowered("DeformConv of several groups is not generated")
    samples = _sampled(lowering, node, weights.shape)
    filters = len(weights)
    by_tap = weights.transpose(0, 2, 3, 1).reshape(filters, -1, 1, 1)
    for size, expected in zip(shape, (samples.shape[0], filters, *samples.shape[2:]), strict=True):
        lowering.require_equal(size, expected)
    value: Scalar = element(0, F32)
    inputs: tuple[View, ...] = ()
    if node.input(3) is not None:
        bias = lowering.contiguous(node.input(3))
        lowering.require_equal(count_of(bias.shape), filters)
        value, inputs = value + element(1, F32), (bias.reshaped((filters, 1, 1)),)
    anchor = ConvolutionAnchor(samples, by_tap, (1, 1), (1, 1), (0, 0, 0, 0), 1, 4)
    lowering.set(node.output, PendingAnchor(anchor, value, inputs, shape, (node,)))


def _sampled(lowering: Lowering, node: Node, weights: tuple[int, ...]) -> View:
    """Write the step that samples the taps of all windows; returns images of a pixel for each window."""
    offset = lowering.contiguous(node.input(2))
    mask = None if node.input(4) is None else lowering.contiguous(node.input(4))
    x = images(lowering, node.input(0), weights[1], as_parts=True)
    kernel, groups = (weights[2], weights[3]), node.int_attribute("offset_group", 1)
    if groups < 1 or weights[1] % groups:
        raise NotLowered("the groups of offsets do not divide the channels")
    windows = node_windows(node, x.shape[2:], kernel)
    before = [axis.before for axis in windows if isinstance(axis.before, int) and axis.before >= 0]
    counts: list[KnownDim] = [axis.count for axis in windows if axis.count is not None]
    stated = node.ints_attribute("kernel_shape")
    if stated and tuple(stated) != kernel:
        raise NotLowered("kernel_shape is not that of the weights")
    if len(counts) < 2 or len(before) < 2:
        raise NotLowered("windows whose number is not known, or that begin within the image, are not generated")
    for size in (*x.shape[2:], *counts):
        lowering.require_equal(minimum(size, 1), 1)
    taps = kernel[0] * kernel[1]
    _require_shape(lowering, offset, (x.shape[0], 2 * taps * groups, *counts))
    if mask is not None:
        _require_shape(lowering, mask, (x.shape[0], taps * groups, *counts))
    strides, dilations = strides_and_dilations(node, 2)
    spec = DeformedSampling(
        weights[1], groups, kernel, (strides[0], strides[1]), (dilations[0], dilations[1]), (before[0], before[1]),
        mask is not None,
    )  # fmt: skip
    target = lowering.new_view(F32, (x.shape[0], taps * weights[1], *counts), channels_last(4))
    machine, read = lowering.target, [x, offset, *([] if mask is None else [mask])]
    text = kernel_text("deformed", spec.structure, lambda name: deformed_sampling_kernel(name, spec, machine))
    words: list[Argument] = [
        pointer(target), pointer(x), pointer(offset), pointer(read[-1]), x.shape[0], *counts, *x.shape[2:],
        x.strides[0], x.strides[2], x.strides[3],
    ]  # fmt: skip
    work = count_of(target.shape) * _CORNERS
    lowering.emit(
        text, words, [view.buffer for view in read], [target.buffer], work, (node,), work * 2,
        moved_nbytes([target, offset]),
    )  # fmt: skip
    return target


def _require_shape(lowering: Lowering, view: View, shape: tuple[KnownDim, ...]) -> None:
    if view.dtype is not F32 or len(view.shape) != len(shape):
        raise NotLowered("only float32 offsets and masks of images are generated")
    for size, expected in zip(view.shape, shape, strict=True):
        lowering.require_equal(size, expected)
