"""What channels-last kernels share: a thread's share of the work, vectors of channels, epilogues.

An activation is ``[image][row][pixel][channel]``. Kernels take the row and image strides at run time and the pixel
stride when they are generated, so that a tensor may lie inside a larger buffer: with a border of zeros around each
image (then a convolution has no border cases at all), or as some channels of a concatenation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from enum import Enum

from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, float32, vector_type
from ort_core.cpu.codegen.llvm_ir.part_access import load_first, store_first
from ort_core.cpu.codegen.llvm_ir.scalar_printer import STORED, ScalarPrinter
from ort_core.cpu.codegen.nests.elementwise_nests import KERNEL_PARAMETERS, share
from ort_core.plugin import frozen
from ort_core.plugin.ir import DataType
from ort_core.plugin.loops import Scalar, structure


class OperandKind(Enum):
    """What an epilogue reads beside the value: one number per channel, or a tensor of the result's shape."""

    CHANNEL = "channel"
    TENSOR = "tensor"

    @property
    def words(self) -> int:
        """Entries in the argument table: the pointer; for a tensor also its row and image strides in elements."""
        return 1 if self is OperandKind.CHANNEL else 3


@frozen
class Epilogue:
    """What happens to a result between the registers and memory.

    ``expression`` reads the result as input 0 and operand ``i`` as input ``i + 1``; all are float32, but its own result
    may be bfloat16. ``pitches`` are elements from one pixel of an operand to the next, where that is not the result's
    number of channels.
    """

    expression: Scalar
    operands: tuple[OperandKind, ...] = ()
    pitches: tuple[int | None, ...] = ()

    def pitch(self, operand: int, channels: int) -> int:
        """Return the elements from one pixel of an operand to the next."""
        return self.own_pitch(operand) or channels

    def own_pitch(self, operand: int) -> int | None:
        """Return the same where pixels lie apart, ``None`` where they are as far apart as the result has channels."""
        return self.pitches[operand] if self.pitches else None

    def apply(self, emitter: Emitter, value: IRValue, width: int, read_operand: Callable[[int], IRValue]) -> IRValue:
        """Append the expression for ``width`` channels of one pixel and return its value."""

        def read(index: int) -> IRValue:
            return value if index == 0 else read_operand(index - 1)

        return ScalarPrinter(emitter, width, read).print(self.expression)

    @property
    def stored(self) -> str:
        """The type of an element of the result as it lies in memory: a float, or the bits of a bfloat16."""
        return STORED[self.expression.dtype]

    @property
    def unrounded(self) -> Epilogue | None:
        """The epilogue without the rounding to bfloat16 that it ends in; ``None`` where it ends in none."""
        last = self.expression
        is_rounding = last.operation == "cast" and last.dtype is DataType.BFLOAT16
        if not is_rounding or last.arguments[0].dtype is not DataType.FLOAT:
            return None
        return replace(self, expression=last.arguments[0])

    @property
    def structure(self) -> str:
        """What the epilogue computes, as text: equal for equal epilogues."""
        return f"{[kind.value for kind in self.operands]} {self.pitches} {structure(self.expression)}"

    def entries(self, first: int) -> tuple[int, ...]:
        """Return the position of each operand's first entry when the epilogue's entries start at ``first``."""
        positions = []
        for operand in self.operands:
            positions.append(first)
            first += operand.words
        return tuple(positions)


@frozen
class Lanes:
    """A vector of ``width`` channels, of which the first ``count`` exist; of floats, or of integers as they lie.

    ``fold`` neighboring lanes of a sum belong to each channel: products of as many neighboring numbers.
    """

    width: int
    count: int
    element: str = "float"
    fold: int = 1

    @property
    def type(self) -> str:
        """The vector's LLVM type."""
        return vector_type(self.width, self.element)

    @property
    def sum_width(self) -> int:
        """The lanes of a sum."""
        return self.width * self.fold

    @property
    def sum_type(self) -> str:
        """The LLVM type of a sum whose lanes have not been added up."""
        return vector_type(self.sum_width, self.element)

    @property
    def align(self) -> int:
        """The alignment in bytes that an element has."""
        return alignment_of(self.element)

    @property
    def is_part(self) -> bool:
        """Whether memory behind the last channel must not be touched."""
        return self.count < self.width

    def read(self, emitter: Emitter, address: IRValue) -> IRValue:
        """Load the channels; lanes that do not exist are 0."""
        if not self.is_part:
            return emitter.load(self.type, address, align=self.align)
        return load_first(emitter, self.type, self.count, address, align=self.align)

    def write(self, emitter: Emitter, value: IRValue, address: IRValue) -> None:
        """Store the channels that exist, as floats or as what else the value's lanes are."""
        align = self.align if value.type == self.type else 2
        if not self.is_part:
            emitter.store(value, address, align=align)
            return
        store_first(emitter, value, self.count, address, align=align)


def alignment_of(element: str) -> int:
    """Return the alignment in bytes of an element: a float, or an integer by its bits."""
    return 4 if element == "float" else int(element[1:]) // 8


def channel_vectors(channels: int, width: int) -> tuple[Lanes, ...]:
    """Cut channels into vectors; the last one may be part."""
    return tuple(Lanes(width, min(width, channels - first)) for first in range(0, channels, width))


def each_channels(emitter: Emitter, channels: int, width: int, body: Callable[[IRValue, Lanes], None]) -> None:
    """Append the body for every whole vector of the channels, then for the rest of them."""
    whole = channels - channels % width
    if whole:
        with emitter.loop(0, IRValue("i64", str(whole)), width, unroll=False, hint="channel") as channel:
            body(channel, Lanes(width, width))
    if channels % width:
        body(IRValue("i64", str(whole)), Lanes(width, channels % width))


def call_void(emitter: Emitter, function: str, *arguments: IRValue) -> None:
    """Call an intrinsic without a result, declaring it."""
    emitter.declarations[f"declare void @{function}({', '.join(a.type for a in arguments)})"] = None
    emitter.call_void(function, *arguments)


def zeros(lanes: Lanes) -> IRValue:
    """Return a vector of 0."""
    return float32(0.0) if lanes.type == "float" else IRValue(lanes.type, "zeroinitializer")


@contextmanager
def share_of(emitter: Emitter, units: IRValue) -> Iterator[IRValue]:
    """Loop over a piece's share of ``units`` of work, as ``share`` cuts it; the body gets the unit."""
    begin, end = share(emitter, units)
    with emitter.loop(begin, end, unroll=False, hint="unit") as unit:
        yield unit


def kernel_emitter(name: str) -> Emitter:
    """Return an emitter with the parameters of every kernel; the argument table may be written to."""
    return Emitter(name, [("ptr noalias", "args"), *KERNEL_PARAMETERS[1:]])


def ceil_divide(emitter: Emitter, value: IRValue, divisor: int) -> IRValue:
    """Return how many pieces of ``divisor`` cover ``value``."""
    return emitter.udiv(emitter.add(value, divisor - 1), divisor)


def divide(emitter: Emitter, value: IRValue, divisor: IRValue | int) -> tuple[IRValue, IRValue]:
    """Return quotient and remainder."""
    quotient = emitter.udiv(value, divisor)
    return quotient, emitter.sub(value, emitter.binary("mul nsw", quotient, _as_operand(divisor)))


Terms = Sequence[tuple[IRValue | int, IRValue | int]]


def position(emitter: Emitter, base: IRValue, terms: Terms, type_: str = "float") -> IRValue:
    """Return the address ``base`` plus the sum of the products, in elements of a type."""
    total = _as_operand(0)
    for left, right in terms:
        total = emitter.add(total, emitter.mul(_as_operand(left), _as_operand(right)))
    return emitter.element(base, total, type_)


def _as_operand(value: IRValue | int) -> IRValue:
    return IRValue("i64", str(value)) if isinstance(value, int) else value
