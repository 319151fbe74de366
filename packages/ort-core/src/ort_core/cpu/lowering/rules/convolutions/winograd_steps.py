"""The steps of a 3x3 convolution by Winograd's algorithm, and which convolutions take them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ort_core.cpu.codegen.convolutions.winograd import (
    INPUT_ARGUMENTS,
    OUTPUT_ARGUMENTS,
    PLACES,
    TILE,
    input_kernel,
    output_kernel,
    transformed_weights,
)
from ort_core.cpu.codegen.convolutions.winograd_blocks import (
    FIRST_PART,
    SKEW,
    WinogradBlocks,
    block_tiles,
    winograd_kernel,
)
from ort_core.cpu.codegen.images.channels_last import Epilogue, OperandKind
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.codegen.products.microkernel import tile_shape
from ort_core.cpu.codegen.products.packing import aligned_empty, pack_panels, panels_shape
from ort_core.cpu.lowering.images.layout_steps import as_images, kernel_text, pixel_pitch
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.products.product_panels import winograd_product_buffer
from ort_core.cpu.lowering.rules.products import batched_product_words, emit_batched_product
from ort_core.cpu.lowering.steps import Argument, Operators, Pointer, pointer
from ort_core.cpu.lowering.views import Buffer, Place, View, count_of, moved_nbytes
from ort_core.plugin import frozen
from ort_core.plugin.ir import DataType, KnownDim, ceil_div

F32 = DataType.FLOAT
LEAST_CHANNELS = 32  # fewer: the transforms cost more than the products save
LEAST_TILES = 16  # of an image of known size; fewer leave the products too few rows
MOST_WEIGHTS = 1 << 17  # input times output channels: transformed weights take 16/9 of the memory, and its bandwidth
NEAR_NBYTES = 1 << 21  # transformed inputs and products up to this may lie in memory as a whole


def takes_winograd(
    weights: np.ndarray, strides: tuple[int, int], dilations: tuple[int, int], groups: int, shape: Sequence[KnownDim],
    target: Target,
) -> bool:  # fmt: skip
    """Return whether a convolution with result ``shape`` (batch, channels, height, width) is done this way."""
    outputs, inputs, *window = weights.shape  # a group's inputs
    outputs //= groups
    if window != [3, 3] or strides != (1, 1) or dilations != (1, 1):
        return False
    height, width = shape[2:]
    is_wide = min(outputs, inputs) >= LEAST_CHANNELS and outputs % target.lanes == inputs % target.lanes == 0
    if not is_wide or outputs * inputs > MOST_WEIGHTS:
        return False
    tiles = ceil_div(height, TILE) * ceil_div(width, TILE)
    return not isinstance(tiles, int) or tiles >= LEAST_TILES


@frozen
class _Convolved:
    """A convolution of channels-last images ``x`` into ``y``."""

    x: View
    y: View
    packed: np.ndarray
    pads: tuple[int, int, int, int]
    epilogue: Epilogue | None
    operands: Sequence[View]
    groups: int

    @property
    def channels(self) -> tuple[int, int]:
        """Of a group of the input and of the result."""
        inputs, outputs = self.x.shape[1], self.y.shape[1]
        assert isinstance(inputs, int)
        assert isinstance(outputs, int)
        return inputs // self.groups, outputs // self.groups

    @property
    def tiles(self) -> tuple[KnownDim, KnownDim, KnownDim]:
        """Of all images, of a column and of a row."""
        down, across = ceil_div(self.y.shape[2], TILE), ceil_div(self.y.shape[3], TILE)
        return self.y.shape[0] * (down * across), down, across

    @property
    def is_whole(self) -> bool:
        """Whether tiles are known to cover images exactly."""
        return all(isinstance(size, int) and size % TILE == 0 for size in self.y.shape[2:])

    def input_words(self, lowering: Lowering, v: Argument, stride: KnownDim) -> list[Argument]:
        """Return the argument table of the input's transform."""
        x, (tiles, down, across) = self.x, self.tiles
        zeros = lowering.constant_view(np.zeros(self.channels[0], np.float32), F32)
        words: list[Argument] = [
            pointer(x), v, pointer(zeros), tiles, down, across, x.shape[2], x.shape[3], x.strides[2], x.strides[0],
            stride, 0,
        ]  # fmt: skip
        assert len(words) == INPUT_ARGUMENTS.count
        return words

    def output_words(self, m: Argument, stride: KnownDim) -> list[Argument]:
        """Return the argument table of the output's transform."""
        y, (tiles, down, across) = self.y, self.tiles
        words: list[Argument] = [
            m, pointer(y), tiles, down, across, y.shape[2], y.shape[3], y.strides[2], y.strides[0], stride, 0,
        ]  # fmt: skip
        assert len(words) == OUTPUT_ARGUMENTS.epilogue
        for view, kind in zip(self.operands, self.epilogue.operands if self.epilogue else ()):
            words.append(pointer(view))
            if kind is OperandKind.TENSOR:
                image = as_images(view)
                words.extend([image.strides[2], image.strides[0]])
        return words


def emit_winograd(
    lowering: Lowering,
    x: View,
    weights: np.ndarray,
    pads: tuple[int, int, int, int],
    epilogue: Epilogue | None,
    operands: Sequence[View],
    y: View,
    operators: Operators,
    groups: int = 1,
) -> None:
    """Write the steps that convolve channels-last images ``x`` into ``y``; ``weights`` are as ONNX has them."""
    outputs, inputs = weights.shape[0] // groups, weights.shape[1]
    panel = tile_shape(lowering.target).columns

    def fill(out: np.ndarray) -> None:
        of_groups = weights.reshape(groups, outputs, *weights.shape[1:])
        for each, of_group in zip(of_groups, out.reshape(groups, PLACES, *out.shape[1:]), strict=True):
            pack_panels(transformed_weights(each), panel, of_group)

    packed = lowering.weights.packed(
        weights, f"winograd panels {panel} {groups}",
        lambda: aligned_empty(panels_shape((groups * PLACES, inputs, outputs), panel)), fill,
    )  # fmt: skip
    convolved = _Convolved(x, y, packed, pads, epilogue, operands, groups)
    if groups == 1 and _takes_steps(convolved, lowering.target):
        _emit_whole(lowering, convolved, operators)
    else:
        _emit_blocks(lowering, convolved, operators)


def _takes_steps(convolved: _Convolved, target: Target) -> bool:
    """Return whether to write and read transformed images as a whole takes less time than blocks do.

    They lie near where they are small; else blocks save that traffic, but each of them reads all transformed weights.
    Of an open batch this looks at one image.
    """
    (tiles, down, across), (inputs, outputs) = convolved.tiles, convolved.channels
    if not isinstance(tiles, int):
        tiles = down * across
    if not isinstance(tiles, int):
        return False
    nbytes = 4 * PLACES * (inputs + outputs)  # of a tile's transformed input and product
    return tiles * nbytes <= NEAR_NBYTES or 2 * nbytes < convolved.packed.nbytes / block_tiles(inputs, outputs, target)


def _emit_blocks(lowering: Lowering, convolved: _Convolved, operators: Operators) -> None:
    """Write one step, which takes block after block of tiles through all three parts."""
    machine, (inputs, outputs), x, y = lowering.target, convolved.channels, convolved.x, convolved.y
    blocks = WinogradBlocks(
        inputs, outputs, convolved.pads[:2], block_tiles(inputs, outputs, machine), convolved.is_whole,
        convolved.epilogue, pixel_pitch(x), pixel_pitch(y), convolved.groups,
    )  # fmt: skip
    kernel = kernel_text(
        "winograd", blocks.facts, lambda name: winograd_kernel(name, blocks, machine), is_vectorized=True
    )
    scratch, tiles = lowering.scratch(F32, blocks.scratch_floats), convolved.tiles[0]
    # the kernel writes in its own tables where a block lies
    v, m = (View(scratch, (PLACES, blocks.tiles, n), (blocks.tiles * n, n, 1)) for n in convolved.channels)
    product, b, panels = batched_product_words(lowering, v, convolved.packed, m)
    code = winograd_product_buffer(machine)
    words: list[Argument] = [Pointer(scratch), 4 * blocks.scratch_floats, tiles, Pointer(code)]
    assert len(words) == FIRST_PART
    words += [*convolved.input_words(lowering, 0, 0), *product, *convolved.output_words(0, 0)]
    reads = [x.buffer, b.buffer, *(view.buffer for view in convolved.operands)]
    flops = tiles * (2 * PLACES * convolved.groups * (inputs * outputs + inputs + outputs))
    moved = moved_nbytes([x, b, y, *convolved.operands])
    lowering.emit(
        kernel, words, reads, [y.buffer, scratch, panels], flops // 32 + 1, (*operators, "Winograd"), flops, moved
    )


def _emit_whole(lowering: Lowering, convolved: _Convolved, operators: Operators) -> None:
    """Write a step for each part: threads share the weights of small images, rather than reading all of them each."""
    machine, (inputs, outputs), x, y = lowering.target, convolved.channels, convolved.x, convolved.y
    tiles, pads = convolved.tiles[0], convolved.pads[:2]
    v, m = _transformed_view(tiles, inputs), _transformed_view(tiles, outputs)
    x_pixel, y_pixel = pixel_pitch(x), pixel_pitch(y)
    make_input = kernel_text(
        "winograd_in", f"{inputs} {pads} {x_pixel}", lambda name: input_kernel(name, inputs, pads, machine, x_pixel),
        is_vectorized=True,
    )  # fmt: skip
    work = count_of(v.shape)
    lowering.emit(
        make_input, convolved.input_words(lowering, pointer(v), v.strides[0]), [x.buffer], [v.buffer], work,
        (*operators, "WinogradTiles"), 2 * work, moved_nbytes([x, v]),
    )  # fmt: skip
    emit_batched_product(lowering, v, convolved.packed, m, (*operators, "WinogradProduct"))
    epilogue, is_whole = convolved.epilogue, convolved.is_whole
    make_output = kernel_text(
        "winograd_out", f"{outputs} {is_whole} {y_pixel} {epilogue.structure if epilogue else ''}",
        lambda name: output_kernel(name, outputs, epilogue, is_whole, machine, y_pixel), is_vectorized=True,
    )  # fmt: skip
    reads = [m.buffer, *(view.buffer for view in convolved.operands)]
    work = count_of(m.shape)
    lowering.emit(
        make_output, convolved.output_words(pointer(m), m.strides[0]), reads, [y.buffer], work,
        (*operators, "WinogradImages"), 2 * work, moved_nbytes([m, y, *convolved.operands]),
    )  # fmt: skip


def _transformed_view(tiles: KnownDim, channels: int) -> View:
    stride = tiles * channels + SKEW
    return View(Buffer(F32, stride * PLACES, Place.ARENA), (PLACES, tiles, channels), (stride, channels, 1))
