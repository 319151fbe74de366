"""The steps of a 3x3 convolution by Winograd's algorithm, and which convolutions take them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

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
    has_far_weights,
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
from ort_core.plugin.ir import DataType, KnownDim, ceil_div, maximum, minimum

F32 = DataType.FLOAT
LEAST_CHANNELS = 32  # fewer: the transforms cost more than the products save
LEAST_TILES = 16  # of an image of known size; fewer leave the products too few rows
MOST_PHASES = 36  # of a dilated window: each has steps of its own
LEAST_PHASE = 1 << 13  # tiles of a phase times channels: less, and threads wait for each other longer than they work
MOST_OPEN_PHASES = 4  # of images of open size, which may have few pixels
MOST_PRODUCTS = 0.8  # of those of taps outside the border, which other steps leave out
LEAST_SAVED = 256  # multiplications with each far weight: 8x8 pixels save 320, 7x7 save 185, and reading takes as long
LEAST_FAR_SIZE = 8  # pixels along an axis then, where the other one is open
NEAR_NBYTES = 1 << 21  # transformed inputs and products up to this lie in the second-level caches
MOST_NBYTES = 1 << 26  # of them in memory as a whole: they take eight times the memory of the images


def takes_winograd(
    weights: np.ndarray, strides: tuple[int, int], dilations: tuple[int, int], groups: int, shape: Sequence[KnownDim],
    target: Target,
) -> bool:  # fmt: skip
    """Return whether a convolution with result ``shape`` (batch, channels, height, width) is done this way.

    Transformed weights take 16/9 of the memory. Where they are far, images of known size must be large enough.
    """
    outputs, inputs, *window = weights.shape  # a group's inputs
    outputs //= groups
    phases = dilations[0] * dilations[1]
    if window != [3, 3] or strides != (1, 1) or phases > MOST_PHASES:
        return False
    height, width = shape[2:]
    is_wide = min(outputs, inputs) >= LEAST_CHANNELS and outputs % target.lanes == inputs % target.lanes == 0
    if not is_wide:
        return False
    tiles = _tiles_along(height, dilations[0]) * _tiles_along(width, dilations[1])
    if phases > 1 and not _pays_in_phases(tiles, (height, width), dilations, inputs + outputs):
        return False
    if has_far_weights(inputs, outputs):
        saved = 9 * height * width - PLACES * tiles
        if not isinstance(saved, int):
            return all(size >= LEAST_FAR_SIZE for size in (height, width) if isinstance(size, int))
        return saved * (shape[0] if isinstance(shape[0], int) else 1) >= LEAST_SAVED
    return not isinstance(tiles, int) or tiles >= LEAST_TILES


def _tiles_along(size: KnownDim, dilation: int) -> KnownDim:
    """Return how many tiles cover an axis, those of all phases of a dilated window."""
    total: KnownDim = 0
    for phase in range(dilation):
        total = total + ceil_div(_phase_size(size, phase, dilation), TILE)
    return total


def _phase_size(size: KnownDim, phase: int, dilation: int) -> KnownDim:
    """Return how many pixels of an axis lie ``dilation`` apart from number ``phase`` on."""
    return ceil_div(size - phase, dilation)


def _pays_in_phases(
    tiles: KnownDim, sizes: tuple[KnownDim, KnownDim], dilations: tuple[int, int], channels: int
) -> bool:
    """Return whether the tiles of all phases take fewer products than the taps of a dilated window that read images.

    ``sizes`` are height and width, ``channels`` those of the input and of the result.
    """
    phases = dilations[0] * dilations[1]
    taps: KnownDim = 1
    for size, dilation in zip(sizes, dilations, strict=True):
        taps = taps * (size + 2 * maximum(size - dilation, 0))
    if not isinstance(tiles, int) or not isinstance(taps, int):
        return phases <= MOST_OPEN_PHASES
    return PLACES * tiles <= MOST_PRODUCTS * taps and tiles * channels >= LEAST_PHASE * phases


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
    dilations: tuple[int, int] = (1, 1),
) -> None:
    """Write the steps that convolve channels-last images ``x`` into ``y``; ``weights`` are as ONNX has them.

    Of a dilated window every phase is a convolution of its own: the pixels that lie as far apart as its taps do.
    """
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
    phases = [convolved] if dilations == (1, 1) else list(_phases(convolved, dilations))
    if groups == 1 and has_far_weights(inputs, outputs) and not isinstance(_transformed_nbytes(phases), int):
        _emit_either(lowering, phases, operators)
        return
    for part in _fitting(phases):
        if groups == 1 and _takes_steps(part, lowering.target):
            _emit_whole(lowering, part, operators)
            continue
        for phase in part:
            _emit_blocks(lowering, phase, operators)


def _emit_either(lowering: Lowering, phases: Sequence[_Convolved], operators: Operators) -> None:
    """Write steps that take images as a whole and steps that take them in blocks; a run's sizes leave one without any.

    So threads share the weights of small images, and large ones take no more memory than blocks do.
    """
    tiles: KnownDim = 0
    for phase in phases:
        tiles = tiles + phase.tiles[0]
    fits = minimum(maximum(MOST_NBYTES // _tile_nbytes(phases[0]) + 1 - tiles, 0), 1)
    _emit_whole(lowering, [_images_where(phase, fits) for phase in phases], operators)
    for phase in phases:
        _emit_blocks(lowering, _images_where(phase, 1 - fits), operators)


def _images_where(convolved: _Convolved, condition: KnownDim) -> _Convolved:
    """Return all images where a condition is 1, none where it is 0."""
    x, y = (
        View(view.buffer, (view.shape[0] * condition, *view.shape[1:]), view.strides, view.offset, view.order)
        for view in (convolved.x, convolved.y)
    )
    return replace(convolved, x=x, y=y)


def _fitting(phases: Sequence[_Convolved]) -> list[list[_Convolved]]:
    """Return phases in parts that may lie in memory as a whole, transformed, if none is too large by itself."""
    parts: list[list[_Convolved]] = []
    for phase in phases:
        if parts and _fits([*parts[-1], phase]):
            parts[-1].append(phase)
        else:
            parts.append([phase])
    return parts


def _fits(phases: Sequence[_Convolved]) -> bool:
    nbytes = _transformed_nbytes(phases)
    return isinstance(nbytes, int) and nbytes <= MOST_NBYTES


def _transformed_nbytes(phases: Sequence[_Convolved]) -> KnownDim:
    """Return what transformed inputs and products take; of an open batch those of one image."""
    total: KnownDim = 0
    for phase in phases:
        tiles, down, across = phase.tiles
        total = total + (tiles if isinstance(tiles, int) else down * across)
    return total * _tile_nbytes(phases[0])


def _tile_nbytes(convolved: _Convolved) -> int:
    """Return what a tile's transformed input and product take."""
    return 4 * PLACES * sum(convolved.channels)


def _phases(convolved: _Convolved, dilations: tuple[int, int]) -> Iterator[_Convolved]:
    """Yield the convolutions of the phases of a dilated window, without dilation, of pixels that lie apart."""
    x, y, epilogue = convolved.x, convolved.y, convolved.epilogue
    kinds = epilogue.operands if epilogue else ()
    if epilogue is not None:
        channels = convolved.channels[1] * convolved.groups
        pitches = (dilations[1] * epilogue.pitch(i, channels) for i in range(len(kinds)))
        epilogue = replace(epilogue, pitches=tuple(pitches))
    for place in itertools.product(*map(range, dilations)):
        pads, starts = zip(*(divmod(place[i] - convolved.pads[i], dilations[i]) for i in range(2)), strict=True)
        made = _phase(y, place, dilations)
        if 0 in made.shape[2:]:
            continue
        operands = [
            _phase(view, place, dilations) if kind is OperandKind.TENSOR else view
            for view, kind in zip(convolved.operands, kinds, strict=True)
        ]
        yield replace(
            convolved, x=_phase(x, starts, dilations), y=made, epilogue=epilogue, operands=operands,
            pads=(-pads[0], -pads[1], 0, 0),
        )  # fmt: skip


def _phase(images: View, place: Sequence[int], dilations: tuple[int, int]) -> View:
    """Return the pixels of images that lie as far apart as taps do, from one on."""
    (row, column), (down, across) = place, dilations
    image, channel, of_row, of_pixel = images.strides
    shape = (*images.shape[:2], _phase_size(images.shape[2], row, down), _phase_size(images.shape[3], column, across))
    offset = images.offset + (of_row * row + of_pixel * column)
    return View(images.buffer, shape, (image, channel, of_row * down, of_pixel * across), offset, images.order)


def _takes_steps(phases: Sequence[_Convolved], target: Target) -> bool:
    """Return whether to write and read transformed images as a whole takes less time than blocks do.

    They lie near where they are small; else blocks save that traffic, but each of them reads all transformed weights.
    Threads share far weights, so that small images are worth it. Of an open batch this looks at one image.
    """
    (inputs, outputs), nbytes = phases[0].channels, _transformed_nbytes(phases)
    if not isinstance(nbytes, int) or nbytes > MOST_NBYTES:
        return False
    is_small = nbytes <= NEAR_NBYTES or has_far_weights(inputs, outputs)
    return is_small or 2 * _tile_nbytes(phases[0]) < phases[0].packed.nbytes / block_tiles(inputs, outputs, target)


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


def _emit_whole(lowering: Lowering, phases: Sequence[_Convolved], operators: Operators) -> None:
    """Write steps for each part: threads share the weights of small images, rather than reading all of them each.

    All phases are multiplied in one step.
    """
    tiles: KnownDim = 0
    firsts = []
    for phase in phases:
        firsts.append(tiles)
        tiles = tiles + phase.tiles[0]
    v, m = (_transformed_view(tiles, channels) for channels in phases[0].channels)
    for phase, first in zip(phases, firsts, strict=True):
        _emit_inputs(lowering, phase, _tiles_from(v, first, phase), operators)
    emit_batched_product(lowering, v, phases[0].packed, m, (*operators, "WinogradProduct"))
    for phase, first in zip(phases, firsts, strict=True):
        _emit_outputs(lowering, phase, _tiles_from(m, first, phase), operators)


def _emit_inputs(lowering: Lowering, convolved: _Convolved, v: View, operators: Operators) -> None:
    """Write the step that transforms images; tiles of other phases are written by others."""
    machine, x, (inputs, _) = lowering.target, convolved.x, convolved.channels
    pads, x_pixel = convolved.pads[:2], pixel_pitch(x)
    make_input = kernel_text(
        "winograd_in", f"{inputs} {pads} {x_pixel}", lambda name: input_kernel(name, inputs, pads, machine, x_pixel),
        is_vectorized=True,
    )  # fmt: skip
    work, first = count_of(v.shape), len(lowering.steps)
    lowering.emit(
        make_input, convolved.input_words(lowering, pointer(v), v.strides[0]), [x.buffer], [v.buffer], work,
        (*operators, "WinogradTiles"), 2 * work, moved_nbytes([x, v]),
    )  # fmt: skip
    lowering.note_part(first, v.buffer)


def _emit_outputs(lowering: Lowering, convolved: _Convolved, m: View, operators: Operators) -> None:
    """Write the step that makes results of products."""
    machine, y, (_, outputs) = lowering.target, convolved.y, convolved.channels
    epilogue, is_whole, y_pixel = convolved.epilogue, convolved.is_whole, pixel_pitch(y)
    make_output = kernel_text(
        "winograd_out", f"{outputs} {is_whole} {y_pixel} {epilogue.structure if epilogue else ''}",
        lambda name: output_kernel(name, outputs, epilogue, is_whole, machine, y_pixel), is_vectorized=True,
    )  # fmt: skip
    reads = [m.buffer, *(view.buffer for view in convolved.operands)]
    work, first = count_of(m.shape), len(lowering.steps)
    lowering.emit(
        make_output, convolved.output_words(pointer(m), m.strides[0]), reads, [y.buffer], work,
        (*operators, "WinogradImages"), 2 * work, moved_nbytes([m, y, *convolved.operands]),
    )  # fmt: skip
    lowering.note_part(first, y.buffer)


def _tiles_from(transformed: View, first: KnownDim, phase: _Convolved) -> View:
    """Return the tiles of a phase, which are those from number ``first`` on."""
    places, _, channels = transformed.shape
    shape = (places, phase.tiles[0], channels)
    return View(transformed.buffer, shape, transformed.strides, transformed.offset + first * channels)


def _transformed_view(tiles: KnownDim, channels: int) -> View:
    stride = tiles * channels + SKEW
    return View(Buffer(F32, stride * PLACES, Place.ARENA), (PLACES, tiles, channels), (stride, channels, 1))
