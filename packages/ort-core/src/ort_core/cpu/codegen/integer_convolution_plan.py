"""What an integer convolution is, how it is cut, and its weights in the order kernels read them.

A matrix product with a constant right side is the same thing: a 1x1 window over one row of "pixels". Activations are
channels-last bytes; four neighbouring input channels (or window columns, where those follow each other in memory) are
multiplied at once. What zero points add to a sum depends on the weights alone where those have zero point 0, and is
taken off by the epilogue.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ort_core.cpu.codegen.bounded_words import PAIRINGS, has_bounded_products, ordered_words
from ort_core.cpu.codegen.convolution_plan import Tiling, tile_widths
from ort_core.cpu.codegen.integer_dot import WORD, packed_words, register_tile
from ort_core.cpu.codegen.jit import Target
from ort_core.plugin.ir import DataType
from ort_core.plugin.loops import Scalar

ALIGNMENT = 64
LEAST_ORDERED_WORDS = 8  # of a sequence: shorter ones lose by a second loop what they gain


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
        is_ordered: whether whole words are in the order of a table in front of their panel, bounded ones first
            (``bounded_words``): those of the window where all their places are known, else those of each run.
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
    is_ordered: bool = False

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
        """How the taps of a window row are walked: (separate taps, neighbouring bytes of each)."""
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
        """Runs of words that are put in order by themselves."""
        is_placed = self.x_pixel is not None and self.x_row is not None
        return 1 if is_placed or self.runs == 1 else self.runs

    @property
    def sequence_words(self) -> int:
        """Whole words of a sequence."""
        return self.runs // self.sequences * (self.run[1] // WORD)

    @property
    def table_stride(self) -> int:
        """Entries of a sequence in a panel's table: where each pairing ends, then the places of the words."""
        return len(PAIRINGS) + self.sequence_words

    @property
    def table_words(self) -> int:
        """Words of a panel's table, filled up to a cache line; 0 where there is none."""
        nbytes = self.sequences * self.table_stride * WORD if self.is_ordered else 0
        return -(-nbytes // ALIGNMENT) * ALIGNMENT // WORD

    @property
    def panel_words(self) -> int:
        """Words of weights for each output channel."""
        if self.is_depthwise:
            return self.kernel[0] * self.kernel[1]
        return self.runs * self.run_words


def is_depthwise(in_channels: int, out_channels: int, groups: int, kernel: tuple[int, int]) -> bool:
    """Return whether a convolution runs channel by channel; products of two bytes take 16 of float32's 24 bits."""
    return groups == in_channels == out_channels and groups > 1 and kernel[0] * kernel[1] <= 256


def put_in_order(spec: IntegerConvolution, x_row: int | None, target: Target) -> IntegerConvolution:
    """Return the convolution with bounded words first where that is faster; ``x_row`` is the row stride if known."""
    if spec.is_depthwise or not has_bounded_products(target):
        return spec
    placed = replace(spec, x_row=x_row if spec.runs > 1 else None, is_ordered=True)
    return placed if placed.sequence_words >= LEAST_ORDERED_WORDS else spec


def tiling(spec: IntegerConvolution, target: Target) -> Tiling:
    """Choose tiles that fill the registers and cover the expected width in few pieces."""
    vectors, pixels = register_tile(target)
    vectors = min(vectors, -(-spec.panel_outputs // target.lanes))
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


def pack_weights(spec: IntegerConvolution, weights: np.ndarray, target: Target) -> np.ndarray:
    """Return int8 weights ``[out][in / groups][kernel height][kernel width]`` as the kernel reads them.

    Of a depthwise convolution that is float32 ``[panel][tap][channel of the panel]``, else
    ``[group][panel][row][tap][word][channel of the panel][4 bytes]``, its words as ``packed_words`` has them; where
    ``is_ordered`` it is ``[group][panel]`` of a table, the sequences' whole words and the runs' last ones; what does
    not exist is 0. The memory starts on a cache line.
    """
    cut = panels(spec, target)
    if spec.is_depthwise:
        by_tap = np.zeros((spec.kernel[0] * spec.kernel[1], cut.count * cut.channels), np.float32)
        by_tap[:, : spec.out_channels] = weights.reshape(spec.out_channels, -1).T
        return aligned(by_tap.reshape(-1, cut.count, cut.channels).transpose(1, 0, 2))
    run, words = spec.run[1], spec.run_words
    by_tap = weights.reshape(spec.groups, spec.group_outputs, spec.group_inputs, *spec.kernel).transpose(0, 1, 3, 4, 2)
    padded = np.zeros((spec.groups, cut.count * cut.channels, spec.runs, words * WORD), np.int8)
    padded[:, : spec.group_outputs, :, :run] = by_tap.reshape(spec.groups, spec.group_outputs, -1, run)
    split = padded.reshape(spec.groups, cut.count, cut.channels, spec.runs, words, WORD).transpose(0, 1, 3, 4, 2, 5)
    return _ordered(spec, split, target) if spec.is_ordered else aligned(packed_words(split, target))


def _ordered(spec: IntegerConvolution, words: np.ndarray, target: Target) -> np.ndarray:
    """Return words ``[group][panel][run][word][channel of the panel][4 bytes]`` in order, each panel behind its table.

    Each panel is int8 ``[4 * (table_words + panel_words * channels)]``.
    """
    groups, panels_, _, _, channels, _ = words.shape
    whole = spec.run[1] // WORD
    shape = (groups, panels_, spec.sequences, spec.sequence_words, channels, WORD)
    ordered, entries = ordered_words(words[:, :, :, :whole].reshape(shape), _places(spec), target)
    last = packed_words(words[:, :, :, whole:], target)
    table = np.zeros((groups, panels_, spec.table_words), np.int32)
    table[..., : spec.sequences * spec.table_stride] = entries.reshape(groups, panels_, -1)
    parts = (table.view(np.int8), ordered, last)
    return aligned(np.concatenate([part.reshape(groups, panels_, -1) for part in parts], axis=-1))


def _places(spec: IntegerConvolution) -> np.ndarray:
    """Return the place of each whole word of a sequence, in bytes from its start."""
    words = np.arange(spec.run[1] // WORD) * WORD
    if spec.x_row is None or spec.x_pixel is None:
        return words
    rows = np.arange(spec.kernel[0]) * (spec.dilations[0] * spec.x_row)
    taps = np.arange(spec.run[0]) * (spec.dilations[1] * spec.x_pixel)
    return (rows[:, None, None] + taps[:, None] + words).reshape(-1)


def aligned(array: np.ndarray) -> np.ndarray:
    """Return a contiguous copy that starts on a cache line."""
    raw = np.empty(array.nbytes + ALIGNMENT, np.uint8)
    skip = -raw.ctypes.data % ALIGNMENT
    out = raw[skip : skip + array.nbytes].view(array.dtype).reshape(array.shape)
    out[...] = array
    return out
