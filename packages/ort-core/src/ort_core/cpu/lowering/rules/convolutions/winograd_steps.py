"""The three steps of a 3x3 convolution by Winograd's algorithm, and which convolutions take them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ort_core.cpu.codegen.convolutions.winograd import (
    OUTPUT_ARGUMENTS,
    PLACES,
    TILE,
    input_kernel,
    output_kernel,
    transformed_weights,
)
from ort_core.cpu.codegen.images.channels_last import Epilogue, OperandKind
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.codegen.products.microkernel import tile_shape
from ort_core.cpu.codegen.products.packing import aligned_empty, pack_panels, panels_shape
from ort_core.cpu.lowering.images.layout_steps import as_images, kernel_text, pixel_pitch
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.rules.products import emit_batched_product
from ort_core.cpu.lowering.steps import Argument, Operators, pointer
from ort_core.cpu.lowering.views import Buffer, Place, View, count_of, moved_nbytes
from ort_core.plugin.ir import DataType, KnownDim

F32 = DataType.FLOAT
LEAST_CHANNELS = 32  # fewer: the transforms cost more than the products save
LEAST_TILES = 16  # of an image; fewer leave the products too few rows
MOST_WEIGHTS = 1 << 17  # input times output channels: transformed weights take 16/9 of the memory, and its bandwidth
SKEW = 64  # elements between places beyond the tiles: else all places of a tile fall into one set of the cache


def takes_winograd(
    weights: np.ndarray, strides: tuple[int, int], dilations: tuple[int, int], groups: int, shape: Sequence[KnownDim],
    target: Target,
) -> bool:  # fmt: skip
    """Return whether a convolution with result ``shape`` (batch, channels, height, width) is done this way."""
    outputs, inputs, *window = weights.shape
    if window != [3, 3] or strides != (1, 1) or dilations != (1, 1) or groups != 1:
        return False
    height, width = shape[2:]
    if not isinstance(height, int) or not isinstance(width, int):
        return False
    tiles = -(-height // TILE) * -(-width // TILE)
    is_wide = min(outputs, inputs) >= LEAST_CHANNELS and outputs % target.lanes == inputs % target.lanes == 0
    return is_wide and outputs * inputs <= MOST_WEIGHTS and tiles >= LEAST_TILES


def emit_winograd(
    lowering: Lowering,
    x: View,
    weights: np.ndarray,
    pads: tuple[int, int, int, int],
    epilogue: Epilogue | None,
    operands: Sequence[View],
    y: View,
    operators: Operators,
) -> None:
    """Write the steps that convolve channels-last images ``x`` into ``y``."""
    machine = lowering.target
    outputs, inputs = weights.shape[:2]
    batch, _, height, width = y.shape
    assert isinstance(height, int)
    assert isinstance(width, int)
    down, across = -(-height // TILE), -(-width // TILE)
    tiles: KnownDim = batch * (down * across)
    v, m = _transformed_view(tiles, inputs), _transformed_view(tiles, outputs)
    zeros = lowering.constant_view(np.zeros(inputs, np.float32), F32)
    x_pixel, y_pixel = pixel_pitch(x), pixel_pitch(y)
    facts = f"{inputs} {pads[:2]} {x_pixel}"
    make_input = kernel_text(
        "winograd_in", facts, lambda name: input_kernel(name, inputs, pads[:2], machine, x_pixel), is_vectorized=True
    )
    words: list[Argument] = [
        pointer(x), pointer(v), pointer(zeros), batch, down, across, x.shape[2], x.shape[3], x.strides[2], x.strides[0],
        v.strides[0],
    ]  # fmt: skip
    work = count_of(v.shape)
    lowering.emit(
        make_input, words, [x.buffer], [v.buffer], work, (*operators, "WinogradTiles"), 2 * work, moved_nbytes([x, v])
    )
    panel = tile_shape(machine).columns
    packed = lowering.weights.packed(
        weights, f"winograd panels {panel}",
        lambda: aligned_empty(panels_shape((PLACES, inputs, outputs), panel)),
        lambda out: pack_panels(transformed_weights(weights), panel, out),
    )  # fmt: skip
    emit_batched_product(lowering, v, packed, m, (*operators, "WinogradProduct"))
    is_whole = height % TILE == 0 and width % TILE == 0
    facts = f"{outputs} {is_whole} {y_pixel} {epilogue.structure if epilogue else ''}"
    make_output = kernel_text(
        "winograd_out", facts, lambda name: output_kernel(name, outputs, epilogue, is_whole, machine, y_pixel),
        is_vectorized=True,
    )  # fmt: skip
    words = [pointer(m), pointer(y), batch, down, across, height, width, y.strides[2], y.strides[0], m.strides[0]]
    assert len(words) == OUTPUT_ARGUMENTS.epilogue
    for view, kind in zip(operands, epilogue.operands if epilogue else ()):
        words.append(pointer(view))
        if kind is OperandKind.TENSOR:
            image = as_images(view)
            words.extend([image.strides[2], image.strides[0]])
    reads = [m.buffer, *(view.buffer for view in operands)]
    work = count_of(m.shape)
    moved = moved_nbytes([m, y, *operands])
    lowering.emit(make_output, words, reads, [y.buffer], work, (*operators, "WinogradImages"), 2 * work, moved)


def _transformed_view(tiles: KnownDim, channels: int) -> View:
    stride = tiles * channels + SKEW
    return View(Buffer(F32, stride * PLACES, Place.ARENA), (PLACES, tiles, channels), (stride, channels, 1))
