"""Convolution as a channels-last anchor."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ort_core.cpu.codegen.convolutions.convolution_plan import (
    Convolution,
    PairConvolution,
    RoundedInputConvolution,
)
from ort_core.cpu.codegen.images.channels_last import Epilogue
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.codegen.products.bfloat16_tiles import has_tile_products
from ort_core.cpu.lowering.images.layout_steps import as_images, is_channels_last, pixel_pitch, words_of
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.operand_kinds import epilogue_of
from ort_core.cpu.lowering.pending import PendingAnchor, PendingElementwise
from ort_core.cpu.lowering.products.quantized import quantized_constant
from ort_core.cpu.lowering.rules.convolutions.computed_weights import convolution_of_windows
from ort_core.cpu.lowering.rules.convolutions.convolution_steps import (
    ConvolutionBase,
    ConvolvedImages,
    bordered,
    emit_convolution,
    stage_of,
)
from ort_core.cpu.lowering.rules.convolutions.input_parts import can_add_parts, emit_in_parts, input_parts
from ort_core.cpu.lowering.rules.convolutions.rounded_images import (
    bordered_words,
    made_rounded,
    rounded_images,
    takes_pairs,
    takes_rounded,
)
from ort_core.cpu.lowering.rules.convolutions.volumes import volume_convolution
from ort_core.cpu.lowering.rules.convolutions.window_taps import emit_taps, window_taps
from ort_core.cpu.lowering.rules.convolutions.winograd_steps import emit_winograd, takes_winograd
from ort_core.cpu.lowering.rules.images.images import Pads, biased, has_known_pads, images, open_pads_of, pair
from ort_core.cpu.lowering.rules.quantized.integer_convolutions import quantized_convolution
from ort_core.cpu.lowering.steps import NotLowered
from ort_core.cpu.lowering.value_types import tensor_type
from ort_core.cpu.lowering.views import View, channels_last
from ort_core.plugin.ir import DataType, KnownDim, Node

F32 = DataType.FLOAT


@dataclass(frozen=True, slots=True)
class ConvolutionAnchor(ConvolutionBase):
    """A convolution of channels-last images (rank 4; a 1-D one has height 1). ``weights`` are as ONNX has them.

    Images of one column ``is_turned`` makes images of one row; ``x`` and ``weights`` are so already, the result is not.
    """

    x: View
    weights: np.ndarray
    strides: tuple[int, int]
    dilations: tuple[int, int]
    pads: Pads
    groups: int
    rank: int
    scale: View | None = None  # one number for each image and input channel, multiplied to the input
    is_turned: bool = False
    is_paired: bool = False  # the images are ``words_of`` such in bfloat16
    copy: View | None = None  # where the result is stored once more, rounded to bfloat16

    def with_copy(self, copy: View, target: Target) -> ConvolutionAnchor | None:
        """Return an anchor that stores its result once more, rounded, if there are kernels that do."""
        is_able = self.is_paired and self.rank == 4 and not self.is_turned and has_tile_products(target)
        return replace(self, copy=copy) if is_able else None

    @property
    def layout(self) -> tuple[int, ...]:
        """The result lies channels-last."""
        return channels_last(self.rank)

    @property
    def stores_in_border(self) -> bool:
        """Its rows may lie apart."""
        return self.rank == 4 and not self.is_turned

    @property
    def stores_among_others(self) -> bool:
        """Its channels may lie among those of other results."""
        return True

    def store(self, lowering: Lowering, pending: PendingAnchor, target: View) -> None:
        """Write the steps: a border if there are pads that the kernel does not make up, then the convolution."""
        x, y = self.x, _turned(target) if self.is_turned else as_images(target)
        epilogue = epilogue_of(pending.expression, pending.inputs, pending.shape)
        machine = lowering.target
        is_float = not self.is_paired and pending.dtype is F32
        if (
            self.rank == 4
            and is_float
            and has_known_pads(self.pads)
            and takes_winograd(self.weights, self.strides, self.dilations, self.groups, pending.shape, machine)
        ):
            operands, operators = pending.inputs, pending.operators
            emit_winograd(
                lowering, x, self.weights, self.pads, epilogue, operands, y, operators, self.groups, self.dilations
            )
            return
        spec, sizes = self._spec(x, y, epilogue)
        seen = ConvolvedImages(x, y, sizes, x.strides[0], y.strides[2], y.strides[0])
        can_add = self.copy is None and can_add_parts(pending)
        taps = window_taps(spec, x, y, self.pads) if can_add else None
        if taps is not None:
            emit_taps(lowering, pending, spec, self.weights, seen, taps)
            return
        parts = input_parts(spec, sizes, self.pads, machine) if can_add else 1
        if parts > 1:
            emit_in_parts(lowering, pending, spec, self.weights, seen, self.pads, parts)
            return
        x, spec = bordered(lowering, x, spec, self.pads)
        seen = ConvolvedImages(x, y, sizes, x.strides[0], y.strides[2], y.strides[0], scale=self.scale)
        stage = stage_of(spec, machine, x, y)
        emit_convolution(lowering, pending, spec, self.weights, seen, stage, copy=self.copy)

    def _spec(
        self, x: View, y: View, epilogue: Epilogue | None
    ) -> tuple[Convolution, tuple[KnownDim, KnownDim, KnownDim]]:
        kernel = self.weights.shape[2:]
        window = (1, kernel[0]) if len(kernel) == 1 else (kernel[0], kernel[1])
        batch, _, height, width = y.shape
        channels = x.shape[1]
        assert isinstance(channels, int)
        # rows inside a border may follow each other where images do not
        lies_whole = y.strides[2] == y.strides[3] * width and (batch == 1 or y.strides[0] == y.strides[2] * height)
        pointwise = window == (1, 1) and self.strides == (1, 1) and not any(self.pads) and lies_whole
        sizes: tuple[KnownDim, KnownDim, KnownDim] = (batch, height, width)
        if pointwise and self.scale is not None:
            sizes = (batch, 1, height * width)
        elif pointwise:
            sizes = (1, 1, batch * height * width)
        expected = sizes[2] if isinstance(sizes[2], int) else None
        weights = self.weights.reshape(self.weights.shape[0], self.weights.shape[1], *window)
        make = PairConvolution if self.is_paired else Convolution
        if not self.is_paired and x.dtype is DataType.BFLOAT16:
            make = RoundedInputConvolution
        spec = make(
            channels, weights.shape[0], window, self.strides, self.dilations, self.groups, epilogue,
            x_pixel=pixel_pitch(x), y_pixel=pixel_pitch(y), expected_width=expected, is_scaled=self.scale is not None,
        )  # fmt: skip
        return spec, sizes


def _turned(images: View) -> View:
    """Return channels-last images of one column as images of one row: their pixels are the same run of memory."""
    batch, channels, height, _ = images.shape
    strides = (images.strides[0], images.strides[1], images.strides[0], images.strides[2])
    return View(images.buffer, (batch, channels, 1, height), strides, images.offset, channels_last(4))


def convolution(lowering: Lowering, node: Node) -> None:
    """Conv of rank 3 to 5, with constant weights a channels-last anchor; a bias is part of the epilogue."""
    if quantized_convolution(lowering, node):
        return
    weights = lowering.constant_of(node.input(1))
    if weights is None:
        constant = quantized_constant(lowering, node.input(1))
        weights = None if constant is None else constant.real()
    dtype, shape = tensor_type(node.output)
    if weights is None and len(shape) >= 3 and dtype is F32:
        convolution_of_windows(lowering, node)
        return
    if weights is None or weights.ndim not in (3, 4, 5) or dtype is not F32:
        raise NotLowered("only float32 convolutions of one to three axes are generated")
    if weights.ndim == 5:
        volume_convolution(lowering, node, weights)
        return
    rank = weights.ndim
    is_paired = takes_pairs(lowering, node)
    x, scale = _images(lowering, node, weights, is_paired=is_paired)
    window = weights.shape[2:]
    dilations = pair(node.ints_attribute("dilations"), rank)
    strides = pair(node.ints_attribute("strides"), rank)
    pads = open_pads_of(node, rank, window, x.shape[2:])
    words = bordered_words(lowering, x, weights, pads) if scale is None and not is_paired else None
    if words is not None:
        x, is_paired, pads = words, True, (0, 0, 0, 0)
        weights = np.pad(weights, ((0, 0), (0, 1), (0, 0), (0, 0)))
    is_turned = rank == 4 and window[0] > 1 and window[1] == 1 == x.shape[3] and not any(pads)
    if rank == 3 or is_turned:
        weights = weights.reshape(*weights.shape[:2], 1, weights.shape[2])
    if is_turned:
        x, strides, dilations = _turned(x), strides[::-1], dilations[::-1]
    anchor = ConvolutionAnchor(
        x, weights, strides, dilations, pads, node.int_attribute("group", 1), rank, scale, is_turned, is_paired
    )
    value, inputs = biased(lowering, node, len(weights), rank)
    lowering.set(node.output, PendingAnchor(anchor, lowering.expressions.shared(value), inputs, shape, (node,)))


def _images(lowering: Lowering, node: Node, weights: np.ndarray, *, is_paired: bool) -> tuple[View, View | None]:
    """Return the images that a convolution reads, and a factor for each image and channel if there is one."""
    channels, value = weights.shape[1] * node.int_attribute("group", 1), node.input(0)
    if is_paired and value is not None:
        return words_of(rounded_images(lowering, value, channels)), None
    rounded = made_rounded(lowering, value) if value is not None and takes_rounded(lowering, node) else None
    if rounded is not None:
        return rounded, None
    scaled = _scaled_images(lowering, node, weights)
    return scaled if scaled is not None else (images(lowering, value, channels, as_parts=True), None)


def _scaled_images(lowering: Lowering, node: Node, weights: np.ndarray) -> tuple[View, View] | None:
    """Return images and a factor for each image and channel, where the input of a 1x1 convolution is their product.

    That is what a squeeze-and-excitation block ends in; the product is then never stored.
    """
    value = node.input(0)
    known = lowering.pending(value) if value is not None else None
    if not isinstance(known, PendingElementwise) or value is None or not lowering.is_single_use(value):
        return None
    is_dense = weights.shape[2:] == (1, 1) and node.int_attribute("group", 1) == 1
    is_product = known.expression.operation == "mul" and len(known.inputs) == 2
    if not is_dense or any(node.ints_attribute("pads") or ()) or not is_product:
        return None
    if sorted((a.operation, a.index) for a in known.expression.arguments) != [("input", 0), ("input", 1)]:
        return None
    for x, scale in (known.inputs, known.inputs[::-1]):
        per_channel = scale.dtype is F32 and scale.shape == (*known.shape[:2], 1, 1) and scale.strides[1] == 1
        if x.shape == known.shape and is_channels_last(x) and per_channel:
            return x, scale
    return None
