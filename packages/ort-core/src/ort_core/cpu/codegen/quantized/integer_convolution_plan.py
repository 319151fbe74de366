"""What an integer convolution is, how it is cut, and its weights in the order kernels read them.

A matrix product with a constant right side is the same thing: a 1x1 window over one row of "pixels". Activations are
channels-last bytes; four neighboring input channels (or window columns, where those follow each other in memory) are
multiplied at once. What zero points add to a sum depends on the weights alone where those have zero point 0, and is
taken off by the epilogue.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from ort_core.cpu.codegen.convolutions.convolution_plan import Tiling, tile_widths
from ort_core.cpu.codegen.llvm_ir.matrix_tiles import LINE_NBYTES, ROWS
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.codegen.quantized.bounded_pairs import ALIGNMENT, block_places, has_bounded_products, packed_lists
from ort_core.cpu.codegen.quantized.integer_dot import WORD, packed_words, register_tile
from ort_core.cpu.codegen.quantized.pair_search import REACH
from ort_core.plugin.ir import DataType
from ort_core.plugin.loops import Scalar

Place = Callable[[np.ndarray], np.ndarray]  # copies an array to where it stays
TILE_PAIR = 2  # tiles of pixels, and of channels, that are multiplied with each other
LEAST_TILE_NBYTES = 16  # of a run
MOST_GATHERED_RUNS = 16
LEAST_PAIRED_NBYTES = 32  # of a sequence: shorter ones lose by reading a list what they gain


@dataclass(frozen=True, slots=True)
class IntegerOperand:
    """What an epilogue reads beside the sum.

    ``kind`` is ``channel`` (one number per output channel), ``tensor`` (a tensor of the result's shape), ``row`` (one
    number per pixel) or ``one`` (one number).
    """

    kind: str
    dtype: DataType

    @property
    def words(self) -> int:
        """Entries in the argument table: the pointer; where it moves also row, image and pixel strides (elements)."""
        return 4 if self.kind in ("tensor", "row") else 1


@dataclass(frozen=True, slots=True)
class IntegerConvolutionArguments:
    """Positions in the argument table. ``x`` strides count bytes, ``y`` strides elements; operands' words follow.

    ``x`` points to the first tap of the first output. Every tap of every output must lie inside the buffer.
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
    x_pixel: int = 10
    y_pixel: int = 11
    epilogue: int = 12


ARGUMENTS = IntegerConvolutionArguments()


@dataclass(frozen=True, slots=True)
class IntegerConvolution:
    """What is known when the kernel is generated; batch, height and width of the result are run-time arguments.

    Attributes:
        in_channels: of all groups together.
        out_channels: of all groups together.
        expression: reads the int32 sum as input 0 and operand ``i`` as input ``i + 1``; its type is stored.
        operands: of the expression.
        is_signed: whether ``x`` holds signed bytes; they are read as unsigned ones, larger by 128.
        kernel: height and width of the window.
        strides: of the window.
        dilations: distance of taps.
        groups: each reads its own ``in_channels / groups``.
        expected_width: the width that tiles are made for; every width works.
        x_pixel: bytes from one input pixel to the next where known: addresses are then constants of the code.
        x_row: bytes from one input row to the next where known.
        is_paired: whether panels are lists of steps of safe pairs (``bounded_pairs``): one for the window where the
            places of all its bytes are known, else one for each run.
        in_tiles: whether panels are for registers of tiles: runs of more than a tile's row are cut into steps of one,
            the last of which ends with the run and begins earlier; what it shares with the step before has weights 0.
            Short runs that are no whole words are gathered (``is_gathered``).
            Of signed bytes, a panel begins with what they are larger by in each sum when read as unsigned ones.
    """

    in_channels: int
    out_channels: int
    expression: Scalar
    operands: tuple[IntegerOperand, ...] = ()
    is_signed: bool = False
    kernel: tuple[int, int] = (1, 1)
    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    groups: int = 1
    expected_width: int | None = None
    x_pixel: int | None = None
    x_row: int | None = None
    is_paired: bool = False
    in_tiles: bool = False

    @property
    def group_inputs(self) -> int:
        """Input channels that one output channel reads."""
        return self.in_channels // self.groups

    @property
    def group_outputs(self) -> int:
        """Output channels of one group."""
        return self.out_channels // self.groups

    @property
    def input_type(self) -> DataType:
        """The element type of ``x``."""
        return DataType.INT8 if self.is_signed else DataType.UINT8

    @property
    def is_depthwise(self) -> bool:
        """Whether each output channel reads its own input channel alone, in sums that float32 holds exactly."""
        return is_depthwise(self.in_channels, self.out_channels, self.groups, self.kernel)

    @property
    def panel_groups(self) -> int:
        """Groups whose output channels are cut into panels of their own."""
        return 1 if self.is_depthwise else self.groups

    @property
    def panel_outputs(self) -> int:
        """Output channels that are cut into panels together."""
        return self.out_channels // self.panel_groups

    @property
    def run(self) -> tuple[int, int]:
        """How the taps of a window row are walked: (separate taps, neighboring bytes of each)."""
        if self.dilations[1] == 1 and self.groups == 1:
            return 1, self.kernel[1] * self.in_channels
        return self.kernel[1], self.group_inputs

    @property
    def run_words(self) -> int:
        """Words that a run takes, the last possibly filled with zeros."""
        return -(-self.run[1] // WORD)

    @property
    def runs(self) -> int:
        """Runs of a window."""
        return self.kernel[0] * self.run[0]

    @property
    def sequences(self) -> int:
        """Lists of steps of a panel."""
        is_placed = self.x_pixel is not None and self.x_row is not None
        return 1 if is_placed or self.runs == 1 else self.runs

    @property
    def panel_words(self) -> int:
        """Words of weights for each output channel."""
        if self.is_depthwise:
            return self.kernel[0] * self.kernel[1]
        if self.in_tiles:
            count, nbytes = self.tile_runs
            return self.head_words + count * tile_words(nbytes)
        return self.runs * self.run_words

    @property
    def head_words(self) -> int:
        """Words of each output channel before its weights."""
        return int(self.in_tiles and self.is_signed)

    @property
    def is_gathered(self) -> bool:
        """Whether the runs of a window are copied beside each other, since a tile has no rows like one of them."""
        return self.in_tiles and self.run[1] < LINE_NBYTES and self.run[1] % WORD != 0

    @property
    def tile_runs(self) -> tuple[int, int]:
        """Runs of a window as tiles read them, and the bytes of each, whole words or more than a tile's row."""
        if self.is_gathered:
            return 1, -(-self.runs * self.run[1] // WORD) * WORD
        return self.runs, self.run[1]


def is_depthwise(in_channels: int, out_channels: int, groups: int, kernel: tuple[int, int]) -> bool:
    """Return whether a convolution runs channel by channel; products of two bytes take 16 of float32's 24 bits."""
    return groups == in_channels == out_channels and groups > 1 and kernel[0] * kernel[1] <= 256


def in_pairs(spec: IntegerConvolution, x_row: int | None, target: Target) -> IntegerConvolution:
    """Return the convolution with weights in safe pairs where that is faster; ``x_row`` is the row stride if known."""
    if spec.is_depthwise or not has_bounded_products(target) or spec.run[1] < REACH:
        return spec
    placed = replace(spec, x_row=x_row if spec.runs > 1 else None, is_paired=True)
    nbytes = spec.runs // placed.sequences * spec.run[1]
    return placed if nbytes >= LEAST_PAIRED_NBYTES else spec


def tile_words(nbytes: int) -> int:
    """Return the words of a run of so many bytes, which tiles cut into steps of one of their rows."""
    return -(-nbytes // LINE_NBYTES) * (LINE_NBYTES // WORD) if nbytes > LINE_NBYTES else nbytes // WORD


def has_byte_tiles(target: Target) -> bool:
    """Return whether the target multiplies tiles of bytes."""
    return target.lanes == ROWS and all(target.has(name) for name in ("amx-tile", "amx-int8"))


def arranged(spec: IntegerConvolution, x_row: int | None, target: Target) -> IntegerConvolution:
    """Return the convolution with weights in the order that is fastest; ``x_row`` is the row stride if known."""
    return replace(spec, in_tiles=True) if _suits_tiles(spec, target) else in_pairs(spec, x_row, target)


def _suits_tiles(spec: IntegerConvolution, target: Target) -> bool:
    """Return whether registers of tiles are faster."""
    if spec.is_depthwise or not has_byte_tiles(target):
        return False
    run = spec.run[1]
    if run < LINE_NBYTES and run % WORD:
        return 1 < spec.runs <= MOST_GATHERED_RUNS
    return run >= LEAST_TILE_NBYTES


def tiling(spec: IntegerConvolution, target: Target) -> Tiling:
    """Choose tiles that fill the registers and cover the expected width in few pieces."""
    vectors, pixels = register_tile(target)
    vectors = min(vectors, -(-spec.panel_outputs // target.lanes))
    if spec.in_tiles:
        return Tiling(1, (TILE_PAIR * ROWS,), vectors)
    width = spec.expected_width
    if spec.is_depthwise:  # inputs of a row of the window stay in registers beside the sums
        vectors, pixels = 1, max(2, pixels // 2)
    elif vectors == 1:
        pixels += pixels // 2
    rows = 1 if spec.is_depthwise else max(1, pixels // width) if width else 1
    return Tiling(rows, tile_widths(width, pixels), vectors)


@dataclass(frozen=True, slots=True)
class IntegerPanels:
    """Output channels of a group in panels of ``channels``; the last holds ``last`` of them."""

    count: int
    channels: int
    last: int


def panels(spec: IntegerConvolution, target: Target) -> IntegerPanels:
    """Cut the output channels of a group into panels."""
    return panels_of(spec, tiling(spec, target).vectors * target.lanes)


def panels_of(spec: IntegerConvolution, channels: int) -> IntegerPanels:
    """Cut the output channels of a group into panels of so many."""
    count = -(-spec.panel_outputs // channels)
    return IntegerPanels(count, channels, spec.panel_outputs - (count - 1) * channels)


def pack_weights(
    spec: IntegerConvolution, weights: np.ndarray, target: Target, place: Place | None = None
) -> np.ndarray:
    """Return int8 weights ``[out][in / groups][kernel height][kernel width]`` as the kernel reads them.

    Of a depthwise convolution that is float32 ``[panel][tap][channel of the panel]``, else
    ``[group][panel][row][tap][word][channel of the panel][4 bytes]``, its words as ``packed_words`` has them; where
    ``is_paired`` it is int64 ``[group][panel]``, where the lists of each begin in bytes, then the lists; what does not
    exist is 0. ``place`` copies them to where they stay, on a cache line: by default memory of their own.
    """
    place, cut = place or aligned, panels(spec, target)
    if spec.is_depthwise:
        by_tap = np.zeros((spec.kernel[0] * spec.kernel[1], cut.count * cut.channels), np.float32)
        by_tap[:, : spec.out_channels] = weights.reshape(spec.out_channels, -1).T
        return place(by_tap.reshape(-1, cut.count, cut.channels).transpose(1, 0, 2))
    run, words = spec.run[1], spec.run_words
    by_tap = weights.reshape(spec.groups, spec.group_outputs, spec.group_inputs, *spec.kernel).transpose(0, 1, 3, 4, 2)
    if spec.in_tiles:
        return place(_tiled(spec, by_tap.reshape(spec.groups, spec.group_outputs, -1), cut))
    padded = np.zeros((spec.groups, cut.count * cut.channels, spec.runs, words * WORD), np.int8)
    padded[:, : spec.group_outputs, :, :run] = by_tap.reshape(spec.groups, spec.group_outputs, -1, run)
    if spec.is_paired:
        return place(_paired(spec, padded[..., :run].reshape(spec.groups * cut.count, cut.channels, spec.runs, run)))
    split = padded.reshape(spec.groups, cut.count, cut.channels, spec.runs, words, WORD).transpose(0, 1, 3, 4, 2, 5)
    return place(packed_words(split, target))


def _tiled(spec: IntegerConvolution, by_tap: np.ndarray, cut: IntegerPanels) -> np.ndarray:
    """Return weights ``[group][channel][byte of the window]`` as int8 ``[group, panel][word][channel][4 bytes]``."""
    (runs, nbytes), (groups, channels, window) = spec.tile_runs, by_tap.shape
    given = np.zeros((groups, channels, runs * nbytes), np.int8)
    given[..., :window] = by_tap
    stored = tile_words(nbytes) * WORD
    padded = np.zeros((groups, cut.count * cut.channels, runs, stored), np.int8)
    padded[:, :channels, :, :nbytes] = given.reshape(groups, channels, runs, nbytes)
    if stored > nbytes:
        padded[..., -LINE_NBYTES:] = np.roll(padded[..., -LINE_NBYTES:], stored - nbytes, axis=-1)
    panels_ = padded.reshape(groups * cut.count, cut.channels, -1, WORD)
    out = np.zeros((len(panels_), spec.panel_words, cut.channels, WORD), np.int8)
    out[:, spec.head_words :] = panels_.transpose(0, 2, 1, 3)
    if spec.head_words:
        out.view(np.int32)[:, 0, :, 0] = 128 * panels_.sum(axis=(-2, -1), dtype=np.int32)
    return out


def _paired(spec: IntegerConvolution, panels_: np.ndarray) -> np.ndarray:
    """Return weights ``[panel][channel of the panel][run][byte]`` as lists of steps behind a table of their places."""
    count, channels, runs, run = panels_.shape
    starts, skipped = block_places(run)
    blocks = np.take(panels_, starts[:, None] + np.arange(REACH), axis=-1)
    blocks[..., np.arange(REACH) < skipped[:, None]] = 0
    split = blocks.reshape(count, channels, runs, len(starts), REACH // WORD, WORD).transpose(0, 2, 3, 4, 1, 5)
    words = split.reshape(count * spec.sequences, -1, REACH // WORD, channels, WORD)
    runs_of_list = runs // spec.sequences
    lists = packed_lists(words, _places(spec, starts), np.tile(skipped, runs_of_list))
    nbytes = np.array([each.size for each in lists]).reshape(count, spec.sequences).sum(axis=1)
    table = np.zeros(-(-count * 8 // ALIGNMENT) * ALIGNMENT // 8, np.int64)
    table[:count] = table.nbytes + np.cumsum(nbytes) - nbytes
    return np.concatenate([table.view(np.int8), *lists])


def _places(spec: IntegerConvolution, starts: np.ndarray) -> np.ndarray:
    """Return the place of each block of a list, in bytes from where it starts; ``starts`` are those of a run."""
    if spec.sequences == spec.runs:
        return starts
    assert spec.x_row is not None
    assert spec.x_pixel is not None
    rows = np.arange(spec.kernel[0]) * (spec.dilations[0] * spec.x_row)
    taps = np.arange(spec.run[0]) * (spec.dilations[1] * spec.x_pixel)
    return (rows[:, None, None] + taps[:, None] + starts).reshape(-1)


def aligned(array: np.ndarray) -> np.ndarray:
    """Return a contiguous copy that starts on a cache line."""
    raw = np.empty(array.nbytes + ALIGNMENT, np.uint8)
    skip = -raw.ctypes.data % ALIGNMENT
    out = raw[skip : skip + array.nbytes].view(array.dtype).reshape(array.shape)
    out[...] = array
    return out
