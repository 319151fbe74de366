"""Convolution and pooling of volumes (rank 5): planes of images, channels-last.

A convolution's window is a few windows over planes. A pooling takes one axis after another: the largest of the largest,
and the mean of means, as windows and the parts of them that lie outside are boxes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ort_core.cpu.codegen.convolutions.convolution_plan import (
    Convolution,
    Planes,
)
from ort_core.cpu.codegen.images.channels_last import Epilogue
from ort_core.cpu.codegen.images.pooling import Pooling
from ort_core.cpu.lowering.images.layout_steps import (
    as_planes,
    emit_channels_last,
    is_channels_last,
)
from ort_core.cpu.lowering.images.pooling_steps import emit_pooling
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.operand_kinds import operand_kind
from ort_core.cpu.lowering.pending import PendingAnchor
from ort_core.cpu.lowering.rules.convolutions.convolution_steps import (
    ConvolutionBase,
    ConvolvedImages,
    bordered,
    emit_convolution,
)
from ort_core.cpu.lowering.rules.images.images import biased, pads_by_axis
from ort_core.cpu.lowering.steps import NotLowered
from ort_core.cpu.lowering.value_types import tensor_type
from ort_core.cpu.lowering.views import View, channels_last, ordered_strides
from ort_core.plugin import frozen
from ort_core.plugin.ir import DataType, KnownDim, Node, Value

F32 = DataType.FLOAT
RANK = 5
Triple = tuple[int, int, int]  # depth, height, width
ONES: Triple = (1, 1, 1)


@frozen
class Window:
    """A window over depth, height and width; of each axis the kernel, stride, dilation, and the pads on either side."""

    kernel: Triple
    strides: Triple
    dilations: Triple
    before: Triple
    behind: Triple

    @property
    def is_pointwise(self) -> bool:
        """Whether each output is of one input alone, and every input has one."""
        return self.kernel == self.strides == ONES and not any(self.before + self.behind)

    @property
    def plane_pads(self) -> tuple[int, int, int, int]:
        """The pads of a plane: top, left, bottom, right."""
        return (self.before[1], self.before[2], self.behind[1], self.behind[2])


def volumes(lowering: Lowering, value: Value | None) -> View:
    """Return a value as channels-last volumes, copied once if it lies otherwise."""
    assert value is not None
    view = lowering.view(value)
    if len(view.shape) != RANK or not isinstance(view.shape[1], int) or view.dtype is not F32:
        raise NotLowered("only float32 volumes with a known number of channels are generated")
    if not is_channels_last(view):
        view = emit_channels_last(lowering, lowering.contiguous(value))
        lowering.replace(value, view)
    return view


def window_of(node: Node, kernel: Sequence[int], sizes: Sequence[KnownDim]) -> Window:
    """Return a node's window over volumes of these sizes."""
    strides, dilations = (node.ints_attribute(name) or ONES for name in ("strides", "dilations"))
    before, behind = pads_by_axis(node, kernel, sizes)
    return Window(*map(_triple, (kernel, strides, dilations, before, behind)))


def _triple(values: Sequence[int]) -> Triple:
    if len(values) != RANK - 2:
        raise NotLowered(f"it has {len(values)} numbers for the axes of a volume")
    return (values[0], values[1], values[2])


# convolution ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class VolumeConvolution(ConvolutionBase):
    """A convolution of channels-last volumes. ``weights`` are as ONNX has them."""

    x: View
    weights: np.ndarray
    window: Window
    groups: int

    @property
    def layout(self) -> tuple[int, ...]:
        """The result lies channels-last."""
        return channels_last(RANK)

    def store(self, lowering: Lowering, pending: PendingAnchor, target: View) -> None:
        """Write the steps: a border around planes unless the kernel makes it up, then the convolution."""
        kinds = [kind for kind in (operand_kind(view, pending.shape) for view in pending.inputs) if kind is not None]
        epilogue = None if pending.expression.operation == "input" else Epilogue(pending.expression, tuple(kinds))
        x, y, depth = as_planes(self.x), as_planes(target), self.x.shape[2]
        spec, sizes = self._spec(y, epilogue)
        x, spec = bordered(lowering, x, spec, self.window.plane_pads)
        seen = ConvolvedImages(
            x, y, sizes, depth * x.strides[0], y.strides[2], y.strides[0], (x.strides[0], depth, target.shape[2])
        )
        emit_convolution(lowering, pending, spec, self.weights, seen, as_rank_4=as_planes)

    def _spec(self, y: View, epilogue: Epilogue | None) -> tuple[Convolution, tuple[KnownDim, KnownDim, KnownDim]]:
        window = self.window
        batch, _, height, width = y.shape
        sizes: tuple[KnownDim, KnownDim, KnownDim] = (batch, height, width)
        planes: Planes | None = Planes(window.kernel[0], window.strides[0], window.dilations[0], window.before[0])
        if window.is_pointwise:
            planes, sizes = None, (1, 1, batch * height * width)
        channels = self.x.shape[1]
        assert isinstance(channels, int)
        spec = Convolution(
            channels, self.weights.shape[0], window.kernel[1:], window.strides[1:], window.dilations[1:], self.groups,
            epilogue, expected_width=sizes[2] if isinstance(sizes[2], int) and sizes[2] else None, planes=planes,
        )  # fmt: skip
        return spec, sizes


def volume_convolution(lowering: Lowering, node: Node, weights: np.ndarray) -> None:
    """Conv with constant weights of rank 5; a bias is part of the epilogue."""
    x = volumes(lowering, node.input(0))
    groups = node.int_attribute("group", 1)
    if x.shape[1] != weights.shape[1] * groups:
        raise NotLowered(f"it has {x.shape[1]} channels for weights of {weights.shape[1]} in each of {groups} groups")
    window = window_of(node, weights.shape[2:], x.shape[2:])
    value, inputs = biased(lowering, node, len(weights), weights.ndim)
    _, shape = tensor_type(node.output)
    anchor = VolumeConvolution(x, weights, window, groups)
    lowering.set(node.output, PendingAnchor(anchor, value, inputs, shape, (node,)))


# pooling --------------------------------------------------------------------------------------------------------------


def pooled_volumes(lowering: Lowering, node: Node, x: View, kind: Pooling) -> View:
    """Pool channels-last volumes over a node's window; ``kind`` says how, its window and border do not matter."""
    _, shape = tensor_type(node.output)
    window = window_of(node, node.ints_attribute("kernel_shape") or (), x.shape[2:])
    kernel, strides, dilations = window.kernel, window.strides, window.dilations
    across = replace(
        kind, kernel=(kernel[1], kernel[2]), strides=(strides[1], strides[2]), dilations=(dilations[1], dilations[2]),
        pads=window.plane_pads,
    )  # fmt: skip
    planes = lowering.new_view(F32, (*x.shape[:3], *shape[3:]), channels_last(RANK))
    emit_pooling(lowering, node, across, as_planes(x), as_planes(planes))
    along = replace(
        kind, kernel=(kernel[0], 1), strides=(strides[0], 1), dilations=(dilations[0], 1),
        pads=(window.before[0], 0, window.behind[0], 0),
    )  # fmt: skip
    target = lowering.new_view(F32, shape, channels_last(RANK))
    emit_pooling(lowering, node, along, planes_as_rows(planes), planes_as_rows(target))
    return target


def planes_as_rows(view: View) -> View:
    """Return channels-last volumes as images of which each plane is a row."""
    batch, channels, depth, height, width = view.shape
    shape = (batch, channels, depth, height * width)
    return View(view.buffer, shape, ordered_strides(shape, channels_last(4)), view.offset, channels_last(4))
