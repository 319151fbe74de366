"""What a convolution is, how its outputs are cut into tiles and panels, and weights in the order kernels read them."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from ort_core.cpu.codegen.images.channels_last import Epilogue, Lanes, channel_vectors
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.codegen.products.bfloat16_tiles import has_tile_products
from ort_core.cpu.codegen.products.partial_sums import CHAIN, even_part
from ort_core.plugin import frozen


@frozen
class ConvolutionArguments:
    """Positions in the argument table. Strides count elements; the epilogue's operands follow from ``epilogue`` on.

    ``x`` points to the first tap of the first output: into the border if there is one. Every tap of every output must
    lie inside the buffer; nothing else is read. ``weights`` are packed and aligned to 64 bytes. ``height`` and
    ``width`` are the output's. ``y`` may be the very tensor that the epilogue adds, but must not overlap ``x``.
    Where ``Convolution.border`` is set, ``x`` points to the input's first pixel, and ``x_height`` and ``x_width`` are
    its sizes; else they are not read. ``scale`` and ``scale_image``, its stride, are read where ``is_scaled``.
    Where ``Convolution.planes`` is set, ``batch`` counts the planes of all output volumes, ``planes`` those of one;
    ``x_image`` leads from one input volume to the next, ``x_plane`` from plane to plane, of which there are
    ``x_planes``.
    """

    x: int = 0
    weights: int = 1
    y: int = 2
    batch: int = 3
    height: int = 4
    width: int = 5
    x_row: int = 6
    x_image: int = 7
    y_row: int = 8
    y_image: int = 9
    x_height: int = 10
    x_width: int = 11
    scale: int = 12
    scale_image: int = 13
    x_plane: int = 14
    x_planes: int = 15
    planes: int = 16
    epilogue: int = 17


ARGUMENTS = ConvolutionArguments()
PAIR = 2  # channels of a word
FOLDS = (4, 2)  # input numbers that share a vector of few output channels: what one load spreads over it
MIN_FOLDED_LANES = 4  # channels of such a vector
MAX_FOLDED_VECTORS = 3  # of all output channels: of more it saves little, and those of one vector are rounded apart
MIN_FOLDED_DEPTH = 32  # products of an output: adding up its lanes takes one to three instructions for each
PAGE_NBYTES = 4096  # what a way of a usual first-level cache holds


@frozen
class Planes:
    """The third axis of a convolution over volumes: the window's planes. Those outside the volume are left out.

    Attributes:
        taps: of the window.
        stride: of the window.
        dilation: distance of taps.
        before: planes of zeros in front of the volume; how many are behind it follows from the output's size.
    """

    taps: int
    stride: int = 1
    dilation: int = 1
    before: int = 0


@frozen
class Convolution:
    """What is known when the kernel is generated. Batch and output height and width are run-time arguments.

    Attributes:
        in_channels: of all groups together.
        out_channels: of all groups together.
        kernel: height and width of the window.
        strides: of the window, vertical and horizontal.
        dilations: distance of taps, vertical and horizontal.
        groups: each reads its own ``in_channels / groups``.
        epilogue: what is done before the store.
        x_pixel: elements from one input pixel to the next; ``None``: ``in_channels``.
        y_pixel: elements from one output pixel to the next; ``None``: ``out_channels``.
        expected_width: the output width that tiles are made for; every width works. For a 1x1 convolution of stride 1
            on contiguous tensors pass all pixels as one row: height 1, this ``batch * height * width``.
        border: rows and columns of zeros around the input that are not in memory: top, left, bottom, right. ``None``:
            they are, if the windows reach beyond the input. Narrow kernels only.
        planes: the window's third axis; ``None`` for images.
        is_scaled: each input channel is multiplied by a number of its image, given at run time. Windows of 1x1 only.
    """

    in_channels: int
    out_channels: int
    kernel: tuple[int, int] = (1, 1)
    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    groups: int = 1
    epilogue: Epilogue | None = None
    x_pixel: int | None = None
    y_pixel: int | None = None
    expected_width: int | None = None
    border: tuple[int, int, int, int] | None = None
    is_scaled: bool = False
    planes: Planes | None = None

    @property
    def group_inputs(self) -> int:
        """Input channels that one output channel reads."""
        return self.in_channels // self.groups

    @property
    def group_outputs(self) -> int:
        """Output channels of one group."""
        return self.out_channels // self.groups

    @property
    def run(self) -> tuple[int, int]:
        """How the taps of a window row are walked: (separate taps, contiguous numbers of each)."""
        if self.dilations[1] == 1 and self.input_pitch == self.group_inputs:
            return 1, self.kernel[1] * self.group_inputs
        return self.kernel[1], self.group_inputs

    @property
    def chain(self) -> tuple[int, int]:
        """What is summed one after the other (``partial_sums``): window rows, 0 if less than one; numbers of a run."""
        taps, run = self.run
        if self.depth <= CHAIN:
            return self.window_rows, run
        if taps * run <= CHAIN:
            return even_part(self.kernel[0], CHAIN // (taps * run)), run
        return 0, even_part(run, CHAIN, turn(run))

    @property
    def input_pitch(self) -> int:
        """Elements from one input pixel to the next."""
        return self.x_pixel or self.in_channels

    @property
    def output_pitch(self) -> int:
        """Elements from one output pixel to the next."""
        return self.y_pixel or self.out_channels

    @property
    def stored(self) -> str:
        """The type of an element of the result as it lies in memory."""
        return self.epilogue.stored if self.epilogue else "float"

    @property
    def depth(self) -> int:
        """Products per output; of pairs, words."""
        return self.window_rows * self.kernel[1] * self.group_inputs

    @property
    def window_rows(self) -> int:
        """Rows of taps, in all planes of the window."""
        return self.kernel[0] * (self.planes.taps if self.planes else 1)


@frozen
class PairConvolution(Convolution):
    """A convolution of bfloat16, two channels a word of 32 bits: a product of words is two products, summed in float32.

    To the kernel such a word is what a float is: input channels, pitches and strides of the input count words.
    """


@frozen
class TwiceStoredConvolution(PairConvolution):
    """One whose results, floats, are stored once more as bfloat16, without gaps. Of ``tile_convolution`` only.

    Behind the epilogue's operands the argument table has where these lie, and their row and image strides in elements.
    """


@frozen
class RoundedInputConvolution(Convolution):
    """A depthwise convolution of images whose input is bfloat16; weights and sums are float32.

    Pitches and strides of the input count its elements. Of ``depthwise`` only.
    """


def is_tiled(spec: Convolution, target: Target) -> bool:
    """Return whether ``tile_convolution`` computes it, by registers of tiles."""
    return isinstance(spec, PairConvolution) and has_tile_products(target)


@frozen
class Tiling:
    """How a convolution is cut for a target.

    Attributes:
        rows: output rows of the main tile.
        widths: pixels of a tile, falling, ending in 1; a row is covered greedily.
        vectors: vectors of channels in a full panel.
    """

    rows: int
    widths: tuple[int, ...]
    vectors: int


def tiling(spec: Convolution, target: Target) -> Tiling:
    """Choose tiles that fill the registers and fit the expected width."""
    vectors, pixels = register_tile(target, spec)
    width = spec.expected_width
    rows = max(1, pixels // width) if width else 1
    return Tiling(rows, tile_widths(width, pixels), vectors)


def tile_widths(width: int | None, pixels: int) -> tuple[int, ...]:
    """Return falling sizes up to ``pixels``, ending in 1, that cover a row of the expected width in few pieces."""
    if width is None:
        return _falling(pixels, pixels // 2, pixels // 4, 1)
    if width < pixels:
        return _falling(width, 1)
    main = -(-width // -(-width // pixels))  # even pieces: threads share them more evenly
    return _falling(main, width % main, 1)


def register_tile(target: Target, spec: Convolution | None = None) -> tuple[int, int]:
    """Return (vectors of channels, pixels) whose sums, with the weights and one input, fill the registers.

    Pixels that lie a multiple of a page apart share one set of the first-level cache, eight lines: a tile of more reads
    all its pixels from the second level. Measured for 1024 to 256 channels of 14x14 images on two threads, with 14
    pixels and with 6: 172 and 224 GFLOP/s.
    """
    is_large = target.vector_registers >= 32 and target.lanes >= 16
    if spec is not None and is_large and spec.strides[1] * spec.input_pitch * 4 % PAGE_NBYTES == 0:
        return 4, 6
    vectors = 2 if target.lanes >= 8 else 4
    return vectors, (target.vector_registers - vectors - 2) // vectors


def turn(run: int) -> int:
    """Return how many numbers of a run, up to four, divide it."""
    return next(size for size in (4, 3, 2, 1) if run % size == 0)


def _falling(*sizes: int) -> tuple[int, ...]:
    return tuple(sorted({size for size in sizes if size > 0}, reverse=True))


@frozen
class Panels:
    """Output channels of a group, cut into full panels and possibly a smaller last one."""

    full: int
    vectors: tuple[Lanes, ...]
    last: tuple[Lanes, ...]

    @property
    def count(self) -> int:
        """All panels of a group."""
        return self.full + bool(self.last)

    @property
    def channels(self) -> int:
        """Channels of a full panel."""
        return sum(lanes.width for lanes in self.vectors)

    @property
    def stored_channels(self) -> int:
        """Channels of a group as packed: the last vector is filled with zeros."""
        return self.full * self.channels + sum(lanes.width for lanes in self.last)


def panels(spec: Convolution, target: Target) -> Panels:
    """Cut the output channels of a group into panels: of one vector where tiles are multiplied."""
    vectors = 1 if is_tiled(spec, target) else register_tile(target, spec)[0]
    width = target.lanes
    if width < spec.group_outputs < vectors * width and _fold(spec, spec.group_outputs % width, target) > 1:
        vectors = 1  # 24 channels are 16, and 8 in half the time
    full, rest = divmod(spec.group_outputs, vectors * width)
    fold = _fold(spec, rest, target)
    last = channel_vectors(rest, width) if fold == 1 else (Lanes(width // fold, rest, fold=fold),)
    return Panels(full, (Lanes(width, width),) * vectors, last)


def _fold(spec: Convolution, channels: int, target: Target) -> int:
    """Return how many neighboring input channels share a vector whose lanes so few output channels leave empty.

    Each vector is then as many products, which ``_Generator`` adds up behind the last one.
    """
    if isinstance(spec, PairConvolution) or spec.is_scaled or not channels or spec.depth < MIN_FOLDED_DEPTH:
        return 1
    if spec.group_outputs > MAX_FOLDED_VECTORS * target.lanes:
        return 1
    whole_rows, part = spec.chain
    for fold in FOLDS:
        is_divided = spec.group_inputs % fold == 0 and (whole_rows or part % fold == 0)
        if is_divided and channels * fold <= target.lanes and target.lanes // fold >= MIN_FOLDED_LANES:
            return fold
    return 1


def weights_count(spec: Convolution, target: Target) -> int:
    """Return how many elements the packed weights have, those for channels that do not exist included."""
    return spec.groups * spec.depth * panels(spec, target).stored_channels


def pack_weights(spec: Convolution, weights: np.ndarray, target: Target, out: np.ndarray | None = None) -> np.ndarray:
    """Return the weights ``[out][in / groups][kernel height][kernel width]`` in the order the kernel reads them.

    Those of volumes are ``[out][in / groups][kernel depth][kernel height][kernel width]``. The order is
    ``[group][panel][row][column][input channel][channel of the panel]``; channels that do not exist are 0. Those of
    input channels that share a vector (``Lanes.fold``) stand side by side. They are written to ``out``, a vector of
    ``weights_count`` elements, or to new memory. A word of two input channels is one input channel here.
    """
    if isinstance(spec, PairConvolution):
        return _pack_pairs(spec, weights, target, out)
    return _packed(spec, weights, target, out)


def _pack_pairs(spec: PairConvolution, weights: np.ndarray, target: Target, out: np.ndarray | None) -> np.ndarray:
    """Return the weights rounded to bfloat16, the even input channel of each word in its low half."""
    packed = np.empty(weights_count(spec, target), np.float32) if out is None else out
    halves = packed.view(np.uint16).reshape(-1, PAIR)
    for odd in range(PAIR):
        halves[:, odd] = _packed(spec, weights[:, odd::PAIR], target, None).astype(ml_dtypes.bfloat16).view(np.uint16)
    return packed


def _packed(spec: Convolution, weights: np.ndarray, target: Target, out: np.ndarray | None) -> np.ndarray:
    cut = panels(spec, target)
    outputs, inputs, window = spec.group_outputs, spec.group_inputs, (spec.window_rows, spec.kernel[1])
    grouped = np.asarray(weights).reshape(spec.groups, outputs, inputs, *window)
    packed = np.empty(weights_count(spec, target), np.float32) if out is None else out
    stored = packed.reshape(spec.groups, -1)
    for start in range(0, cut.stored_channels, cut.channels):
        stop = min(start + cut.channels, cut.stored_channels)
        fold = cut.vectors[0].fold if start < cut.full * cut.channels else cut.last[0].fold
        panel = stored[:, start * spec.depth : stop * spec.depth]
        panel = panel.reshape(spec.groups, *window, inputs // fold, stop - start, fold)
        present = grouped[:, start:stop]
        count = present.shape[1]
        present = present.reshape(spec.groups, count, inputs // fold, fold, *window)
        panel[..., :count, :] = present.transpose(0, 4, 5, 2, 1, 3)
        panel[..., count:, :] = 0
    return packed
