"""Integer products and convolutions as anchors: exact sums of 32 bits, with everything up to the store fused.

For unsigned activations ``a`` on zero point ``z`` and signed weights ``w`` on zero point 0::

    sum (a - z) w  =  sum a w  -  z sum w

The last term depends on the weights alone and is part of the bias where ``z`` is constant. Signed activations are read
as unsigned ones larger by 128. Weights with zero points are shifted to 0 where they still fit eight bits; where not,
the sums of the activations are computed beside: ``sum (a - z) (w - v) = sum a w - z sum w - v sum a + n z v``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ort_core.cpu.codegen.llvm_ir.emitter import module_text
from ort_core.cpu.codegen.quantized.integer_convolution import integer_convolution_kernel
from ort_core.cpu.codegen.quantized.integer_convolution_plan import (
    ARGUMENTS,
    IntegerConvolution,
    IntegerOperand,
    aligned,
    arranged,
    is_depthwise,
    pack_weights,
)
from ort_core.cpu.lowering.images.layout_steps import text_kernel
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.pending import PendingAnchor, structure_of
from ort_core.cpu.lowering.products.quantized import float_constant
from ort_core.cpu.lowering.steps import Argument, NotLowered, pointer
from ort_core.cpu.lowering.views import View, broadcast_strides, channels_last, collapse, count_of, moved_nbytes
from ort_core.plugin import frozen
from ort_core.plugin.ir import DataType, KnownDim
from ort_core.plugin.loops import Scalar, cast, element
from ort_core.plugin.memory import release_pages

F32, I32 = DataType.FLOAT, DataType.INT32
SUM = element(0, I32)  # stands for any expression where those are compared by structure
RESULTS = frozenset({F32, I32, DataType.UINT8, DataType.INT8, DataType.INT16, DataType.UINT16})
MAX_OPERANDS = 12
PIXEL_DIMS = 3  # that the kernel steps through: images, rows, pixels


@dataclass(frozen=True, slots=True, eq=False)
class IntegerWeights:
    """Weights as signed bytes ``[out][in / groups][rows][columns]``; of convolutions channel by channel also wider.

    ``zero_points`` is ``None`` where they are all 0, else one int32 for each output channel.
    """

    bytes: np.ndarray
    zero_points: np.ndarray | None

    @property
    def sums(self) -> np.ndarray:
        """Return each output channel's sum, int32."""
        return self.bytes.reshape(self.bytes.shape[0], -1).sum(axis=1, dtype=np.int32)

    @property
    def depth(self) -> int:
        """Products of a sum."""
        return int(np.prod(self.bytes.shape[1:]))


def integer_weights(integers: np.ndarray, zero_points: np.ndarray, groups: int = 1) -> IntegerWeights:
    """Return uint8 or int8 weights ``[out]...`` as signed bytes; zero points are one, or one for each output.

    Bytes that are signed and shifted by nothing are the array given, which may lie in a file that is mapped. Of a
    convolution channel by channel weights are multiplied as floats, and may take nine bits around their zero points.
    """
    if integers.dtype == np.int8 and not zero_points.any():
        return IntegerWeights(integers, None)
    shape = (-1, *[1] * (integers.ndim - 1))
    zeros = np.broadcast_to(zero_points.reshape(-1).astype(np.int32), integers.shape[:1])
    shifted = integers.astype(np.int16) - zeros.reshape(shape).astype(np.int16)
    if shifted.size == 0 or (shifted.min() >= -128 and shifted.max() <= 127):
        return IntegerWeights(shifted.astype(np.int8), None)
    if is_depthwise(groups * integers.shape[1], integers.shape[0], groups, _window(integers)):
        return IntegerWeights(shifted, None)
    excess = 128 if integers.dtype == np.uint8 else 0
    return IntegerWeights((integers.astype(np.int16) - excess).astype(np.int8), (zeros - excess).astype(np.int32))


def _window(weights: np.ndarray) -> tuple[int, int]:
    """Return rows and columns of the windows of weights ``[out][in / groups]`` and one or two axes."""
    rows, columns = (1, 1, *weights.shape[2:])[-2:]
    return rows, columns


Steps = tuple[KnownDim, KnownDim, KnownDim]  # strides of images, rows and pixels


@frozen
class PixelOperands:
    """How an epilogue over pixels and channels reads its operands; ``axis`` is the channels' in the result."""

    axis: int

    def can_read(self, shape: Sequence[KnownDim], inputs: Sequence[View]) -> bool:
        """Return whether each operand is one number, one for each channel or pixel, or a tensor of the shape."""
        return len(inputs) <= MAX_OPERANDS and all(self.kind(view, shape) is not None for view in inputs)

    def kinds(self, pending: PendingAnchor) -> tuple[IntegerOperand, ...]:
        """Return what each operand is."""
        found = [self.kind(view, pending.shape) for view in pending.inputs]
        return tuple(each for each in found if each is not None)

    def kind(self, view: View, shape: Sequence[KnownDim]) -> IntegerOperand | None:
        """Return what an operand is, ``None`` if the kernel cannot read it."""
        strides = broadcast_strides(view, shape)
        if strides is None or view.dtype not in RESULTS:
            return None
        if count_of(view.shape) == 1:
            return IntegerOperand("one", view.dtype)
        if all(stride == 0 for a, stride in enumerate(strides) if a != self.axis):
            return IntegerOperand("channel", view.dtype) if strides[self.axis] == 1 else None
        if strides[self.axis] == 0:
            return IntegerOperand("row", view.dtype)
        return IntegerOperand("tensor", view.dtype) if strides[self.axis] == 1 else None

    def rest(self, pending: PendingAnchor, target: View) -> list[list[KnownDim]]:
        """Return the strides of the result and of each operand along all axes but the channels'."""
        operands = [target.strides]
        for view in pending.inputs:
            strides = broadcast_strides(view, pending.shape)
            assert strides is not None
            operands.append(strides)
        return [[s for a, s in enumerate(each) if a != self.axis] for each in operands]

    def pixels(
        self, pending: PendingAnchor, target: View, x: Sequence[KnownDim], sizes: Sequence[KnownDim]
    ) -> tuple[list[KnownDim], list[Steps]]:
        """Return images, rows and pixels with the strides of the input, the result and each operand, merged."""
        merged, steps = collapse(sizes, [x, *self.rest(pending, target)])
        if len(merged) > PIXEL_DIMS:
            raise NotLowered(f"the rows of a product take more than {PIXEL_DIMS} strides")
        missing: list[KnownDim] = [0] * (PIXEL_DIMS - len(merged))
        padded = [[*missing, *each] for each in steps]
        return [*[1] * len(missing), *merged], [(each[0], each[1], each[2]) for each in padded]

    def words(
        self, pending: PendingAnchor, kinds: Sequence[IntegerOperand], strides: Sequence[Steps]
    ) -> list[Argument]:
        """Return the entries of the argument table for the operands."""
        words: list[Argument] = []
        for view, operand, steps in zip(pending.inputs, kinds, strides, strict=True):
            words.append(pointer(view))
            if operand.words > 1:
                words.extend([steps[1], steps[0], steps[2]])
        return words


@dataclass(frozen=True, slots=True, eq=False)
class IntegerAnchor:
    """Sums of products of bytes.

    ``x`` is channels-last images of rank 4 with their border (``is_image``), or a matrix ``[..., rows, depth]`` with
    dense rows. ``rank`` is the result's.
    """

    x: View
    weights: np.ndarray  # signed bytes, of rank 4
    is_image: bool
    rank: int
    operator: str
    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    groups: int = 1

    @property
    def layout(self) -> tuple[int, ...]:
        """Images lie channels-last; products have no order of their own."""
        return channels_last(self.rank) if self.is_image else ()

    @property
    def result_types(self) -> frozenset[DataType]:
        """Everything that the epilogue can end in."""
        return RESULTS

    @property
    def channel_axis(self) -> int:
        """The result's axis that the weights' outputs run along."""
        return 1 if self.is_image else self.rank - 1

    @property
    def shift(self) -> int:
        """What the kernel adds to activations: it reads signed bytes as unsigned ones, but not channel by channel."""
        channels = self.weights.shape[1] * self.groups
        window = (self.weights.shape[2], self.weights.shape[3])
        if is_depthwise(channels, self.weights.shape[0], self.groups, window) or self.x.dtype is not DataType.INT8:
            return 0
        return 128

    def can_fuse(self, shape: Sequence[KnownDim], inputs: Sequence[View]) -> bool:
        """Return whether each operand is one number, one for each channel or pixel, or a tensor of the shape."""
        return self._operands.can_read(shape, inputs)

    @property
    def _operands(self) -> PixelOperands:
        return PixelOperands(self.channel_axis)

    def store(self, lowering: Lowering, pending: PendingAnchor, target: View) -> None:
        """Write the step."""
        kinds = self._operands.kinds(pending)
        sizes, strides = self._pixels(pending, target)
        known = (sizes[2], strides[0][2], strides[0][1])
        width, x_pixel, x_row = (each if isinstance(each, int) else None for each in known)
        machine = lowering.target
        spec = IntegerConvolution(
            self.weights.shape[1] * self.groups, self.weights.shape[0], pending.expression,
            kinds, self.x.dtype is DataType.INT8,
            (self.weights.shape[2], self.weights.shape[3]), self.strides, self.dilations, self.groups, width, x_pixel,
        )  # fmt: skip
        spec = arranged(spec, x_row, machine)
        kernel = lowering.kernel(
            (replace(spec, expression=SUM), structure_of(spec.expression)),
            lambda: text_kernel(
                "bytes", lambda name: module_text(integer_convolution_kernel(name, spec, machine)), is_vectorized=True
            ),
        )
        stored = F32 if spec.is_depthwise else DataType.INT8
        packed = lowering.constant_view(pack_weights(spec, self.weights, machine, lowering.weights.placed), stored)
        release_pages(self.weights)
        x, y = strides[0], strides[1]
        words: list[Argument] = [
            pointer(self.x), pointer(packed), pointer(target), *sizes, x[1], x[0], y[1], y[0], x[2], y[2],
        ]  # fmt: skip
        assert len(words) == ARGUMENTS.epilogue
        words.extend(self._operands.words(pending, kinds, strides[2:]))
        flops = count_of(pending.shape) * (2 * int(np.prod(self.weights.shape[1:])))
        reads = [self.x.buffer, packed.buffer, *(view.buffer for view in pending.inputs)]
        lowering.emit(
            kernel, words, reads, [target.buffer], flops // 96 + 1, pending.operators, flops,
            moved_nbytes([self.x, packed, target, *pending.inputs]),
        )  # fmt: skip

    def _pixels(self, pending: PendingAnchor, target: View) -> tuple[list[KnownDim], list[Steps]]:
        """Return the result's images, rows and pixels, and how the input, the result and each operand step there."""
        x = self.x.strides
        rest = [size for a, size in enumerate(pending.shape) if a != self.channel_axis]
        if not self.is_image:
            return self._operands.pixels(pending, target, x[:-1], rest)
        if self.weights.shape[2:] == (1, 1) and self.strides == (1, 1):
            return self._operands.pixels(pending, target, (x[0], x[3]) if self.rank == 3 else (x[0], x[2], x[3]), rest)
        each = self._operands.rest(pending, target)
        if self.rank == 3:
            return [rest[0], 1, rest[1]], [(x[0], x[2], x[3]), *((s[0], 0, s[1]) for s in each)]
        return rest, [(x[0], x[2], x[3]), *((s[0], s[1], s[2]) for s in each)]


def exact_sum(
    lowering: Lowering,
    anchor: IntegerAnchor,
    weights: IntegerWeights,
    zero_point: int | View,
    bias: np.ndarray | None,
    shape: Sequence[KnownDim],
) -> tuple[Scalar, list[View]]:
    """Return the int32 sum of products with zero points taken off and an int32 bias added, and its operands.

    Args:
        lowering: what is being lowered.
        anchor: the product of the bytes.
        weights: what it was made from.
        zero_point: of the activations, of their own type; a view of one element where it is known at run time.
        bias: one number for each channel, or ``None``.
        shape: of the result.
    """
    inputs: list[View] = []

    def add(view: View) -> Scalar:
        inputs.append(view)
        return element(len(inputs), view.dtype)

    total = element(0, I32)
    fixed = np.zeros(anchor.weights.shape[0], np.int32) if bias is None else bias.astype(np.int32)
    zeros = weights.zero_points
    with np.errstate(over="ignore"):
        offset = np.int32(anchor.shift + (zero_point if isinstance(zero_point, int) else 0))
        slope = weights.sums if zeros is None else weights.sums - np.int32(weights.depth) * zeros
        fixed = fixed - offset * slope
    if np.any(fixed):
        total = total + add(_per_channel(lowering, anchor, fixed))
    if isinstance(zero_point, View):
        factor = cast(add(zero_point.reshaped(())), I32)
        total = total - factor * add(_per_channel(lowering, anchor, slope))
    if zeros is not None:
        total = total - add(_activation_sums(lowering, anchor, shape)) * add(_per_channel(lowering, anchor, zeros))
    return total, inputs


def _per_channel(lowering: Lowering, anchor: IntegerAnchor, numbers: np.ndarray) -> View:
    return per_channel(lowering, numbers.astype(np.int32), I32, anchor)


def per_channel(lowering: Lowering, numbers: np.ndarray, dtype: DataType, anchor: IntegerAnchor) -> View:
    """Return constants, one for each output channel, as a view that broadcasts to the result."""
    view = lowering.constant_view(aligned(numbers), dtype)
    return view.reshaped((numbers.size, *[1] * (anchor.rank - 1 - anchor.channel_axis)))


def _activation_sums(lowering: Lowering, anchor: IntegerAnchor, shape: Sequence[KnownDim]) -> View:
    """Write the step that sums the activations under each window, as unsigned bytes."""
    if anchor.groups != 1:
        raise NotLowered("weights of a grouped convolution do not fit eight bits around their zero points")
    ones = np.ones((1, *anchor.weights.shape[1:]), np.int8)
    sums = replace(anchor, weights=ones, operator="ReduceSum")
    size = tuple(1 if axis == anchor.channel_axis else each for axis, each in enumerate(shape))
    target = lowering.new_view(I32, size, anchor.layout)
    sums.store(lowering, PendingAnchor(sums, element(0, I32), (), size, ("ReduceSum",)), target)
    return target


def scale_operand(lowering: Lowering, anchor: IntegerAnchor, inputs: list[View], scales: np.ndarray) -> Scalar:
    """Append scales, one or one for each channel, to the operands and return how they are read."""
    numbers = np.ascontiguousarray(scales.reshape(-1), np.float32)
    one = numbers.size == 1
    inputs.append(float_constant(lowering, float(numbers[0])) if one else per_channel(lowering, numbers, F32, anchor))
    return element(len(inputs), F32)
