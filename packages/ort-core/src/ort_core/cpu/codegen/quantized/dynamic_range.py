"""The range of a tensor, the grid of unsigned bytes that covers it, and its bytes: DynamicQuantizeLinear.

The tensor is cut into blocks; the least and the greatest number of each are stored in two vectors. They are joined,
with 0 among the numbers, into a scale and a zero point by all who write bytes, each for itself.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

from ort_core.cpu.codegen.images.channels_last import kernel_emitter
from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, integer, vector_type
from ort_core.cpu.codegen.llvm_ir.memoized import memoized
from ort_core.cpu.codegen.llvm_ir.scalar_printer import ScalarPrinter, constant
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.codegen.nests.elementwise_nests import share
from ort_core.plugin.ir import DataType
from ort_core.plugin.loops import Scalar, binary, cast, element, maximum, minimum, select, unary

BLOCK = 1 << 14  # numbers of a block: 64 KiB, read in a few microseconds
_CHAINS = 4  # vectors in flight
_LINE = 64  # bytes of a cache line, of which threads share none
F32, U8 = DataType.FLOAT, DataType.UINT8
_PREDICATES = ("olt", "ogt")  # of the least and of the greatest number


def level(real: Scalar, scale: Scalar, zero_point: Scalar) -> Scalar:
    """Return the byte of a number: the nearest level, of two the even one, before the zero point is added."""
    return cast(unary("rint", real / scale) + cast(zero_point, F32), U8)


class _RangeState:
    """The least and the greatest of numbers, and 0, as they come in vectors; NaN where one is.

    One instruction compares numbers that are none of NaN. Whether one is NaN is noted beside, of two vectors at once.
    """

    def __init__(self, emitter: Emitter, width: int, chains: int) -> None:
        self._emitter, self._width = emitter, width
        nothing = constant(0.0, F32, width)
        self._sides = [[emitter.variable(nothing.type, nothing, "range") for _ in _PREDICATES] for _ in range(chains)]
        bits = vector_type(width, "i1")
        self._is_nan = emitter.variable(bits, IRValue(bits, "zeroinitializer" if width > 1 else "false"), "nan")

    def widen(self, vectors: Sequence[tuple[IRValue, IRValue]]) -> None:
        """Take in a pair of vectors, which may be the same one, for each chain: least and greatest numbers."""
        for sides, pair in zip(self._sides, vectors, strict=True):
            for slot, value, predicate in zip(sides, pair, _PREDICATES, strict=True):
                self._emitter.store(self._chosen(predicate, self._emitter.load(value.type, slot), value), slot)
        for left, right in self._unlike(vectors):
            self._note(left, right)

    def found(self) -> list[IRValue]:
        """Return the least and the greatest number."""
        e, found = self._emitter, []
        is_nan = e.load(vector_type(self._width, "i1"), self._is_nan)
        if self._width > 1:
            is_nan = e.call("i1", f"llvm.vector.reduce.or.v{self._width}i1", is_nan)
        for side, predicate in enumerate(_PREDICATES):
            values = [e.load(vector_type(self._width, "float"), sides[side]) for sides in self._sides]
            value = functools.reduce(functools.partial(self._chosen, predicate), values)
            width = self._width
            while width > 1:
                width //= 2
                value = self._chosen(predicate, *(_part(e, value, first, width) for first in (0, width)))
            found.append(e.select(is_nan, constant(math.nan, F32, 1), value))
        return found

    def _unlike(self, vectors: Sequence[tuple[IRValue, IRValue]]) -> list[tuple[IRValue, IRValue]]:
        """Return all vectors in pairs, each once."""
        if any(least is not greatest for least, greatest in vectors):
            return list(vectors)
        each = [least for least, _ in vectors]
        return list(zip(each[::2], each[1::2] or each, strict=True))

    def _note(self, left: IRValue, right: IRValue) -> None:
        e, bits = self._emitter, vector_type(self._width, "i1")
        one = e.assign(bits, f"fcmp uno {left.typed}, {right.text}")
        e.store(e.binary("or", e.load(bits, self._is_nan), one), self._is_nan)

    def _chosen(self, predicate: str, left: IRValue, right: IRValue) -> IRValue:
        bits = left.type.replace("float", "i1")
        return self._emitter.select(
            self._emitter.assign(bits, f"fcmp {predicate} {left.typed}, {right.text}"), left, right
        )


def _part(emitter: Emitter, vector: IRValue, first: int, width: int) -> IRValue:
    if width == 1:
        return emitter.assign("float", f"extractelement {vector.typed}, i32 {first}")
    places = ", ".join(f"i32 {first + index}" for index in range(width))
    mask = f"<{width} x i32> <{places}>"
    return emitter.assign(vector_type(width, "float"), f"shufflevector {vector.typed}, {vector.typed}, {mask}")


@memoized
def block_ranges_kernel(target: Target) -> tuple[str, Emitter]:
    """Return the kernel that finds each block's range.

    The argument table: the numbers (contiguous), the least of each block, the greatest, and how many numbers there are.
    """
    name = "block_ranges"
    emitter = kernel_emitter(name)
    args = emitter.parameter("args")
    x, least, greatest = (emitter.argument(args, i, "ptr") for i in range(3))
    count = emitter.argument(args, 3)
    first, last = share(emitter, emitter.udiv(emitter.add(count, BLOCK - 1), BLOCK))
    with emitter.loop(first, last, unroll=False, hint="block") as block:
        start = emitter.mul(block, BLOCK)
        stop = emitter.minimum(emitter.add(start, BLOCK), count)
        low, high = _range(emitter, x, x, start, stop, target.lanes)
        emitter.store(low, emitter.element(least, block))
        emitter.store(high, emitter.element(greatest, block))
    return name, emitter


def _range(
    emitter: Emitter, least: IRValue, greatest: IRValue, start: IRValue, stop: IRValue, lanes: int
) -> list[IRValue]:
    """Return the least of the numbers at one address, and the greatest of those at another, which may be the same."""
    whole = emitter.sub(stop, emitter.urem(emitter.sub(stop, start), lanes * _CHAINS))

    def walked(first: IRValue, end: IRValue, width: int, chains: int) -> list[IRValue]:
        state, type_ = _RangeState(emitter, width, chains), vector_type(width, "float")
        with emitter.loop(first, end, width * chains, unroll=False) as i:
            pairs = []
            for chain in range(chains):
                at = emitter.add(i, chain * width)
                low = emitter.load(type_, emitter.element(least, at), 4)
                pairs.append((low, low if greatest is least else emitter.load(type_, emitter.element(greatest, at), 4)))
            state.widen(pairs)
        return state.found()

    vectors, rest = walked(start, whole, lanes, _CHAINS), walked(whole, stop, 1, 1)
    sides = zip(("min", "max"), vectors, rest, strict=True)
    return [_joined(emitter, operation, left, right) for operation, left, right in sides]


def _joined(emitter: Emitter, operation: str, left: IRValue, right: IRValue) -> IRValue:
    both = binary(operation, element(0, F32), element(1, F32))
    return ScalarPrinter(emitter, 1, lambda index: (left, right)[index]).print(both)


@memoized
def grid_kernel(target: Target) -> tuple[str, Emitter]:
    """Return the kernel that joins ranges into a scale and a zero point; one thread does it.

    The argument table: the least numbers, the greatest, how many there are of each, the scale (float32), and the zero
    point (uint8).
    """
    name = "dynamic_grid"
    emitter = kernel_emitter(name)
    with emitter.when(emitter.compare("eq", emitter.parameter("piece"), 0)):
        _store_grid(emitter, *_grid(emitter, target.lanes))
    return name, emitter


@memoized
def dynamic_bytes_kernel(target: Target) -> tuple[str, Emitter]:
    """Return the kernel that joins ranges into a grid, stores it, and writes a tensor's bytes on it.

    The argument table: as ``grid_kernel``'s, then the numbers, the bytes (both contiguous), and how many they are.
    Every piece joins the ranges for itself, so that none waits for another.
    """
    name, lanes = "dynamic_bytes", target.lanes
    emitter = kernel_emitter(name)
    args = emitter.parameter("args")
    scale, zero = _grid(emitter, lanes)
    with emitter.when(emitter.compare("eq", emitter.parameter("piece"), 0)):
        _store_grid(emitter, scale, zero)
    x, y = emitter.argument(args, 5, "ptr"), emitter.argument(args, 6, "ptr")
    count = emitter.argument(args, 7)
    first, last = share(emitter, emitter.udiv(emitter.add(count, _LINE - 1), _LINE))
    start = emitter.mul(first, _LINE)
    stop = emitter.minimum(emitter.mul(last, _LINE), count)
    whole = emitter.sub(stop, emitter.urem(emitter.sub(stop, start), lanes))

    def write(at: IRValue, width: int) -> None:
        numbers = emitter.load(vector_type(width, "float"), emitter.element(x, at), 4)
        read = [numbers, emitter.splat(scale, width), emitter.splat(zero, width)]
        wanted = level(element(0, F32), element(1, F32), element(2, U8))
        made = ScalarPrinter(emitter, width, lambda index: read[index]).print(wanted)
        emitter.store(made, emitter.element(y, at, "i8"), 1)

    with emitter.loop(start, whole, lanes, hint="vector") as at:
        write(at, lanes)
    with emitter.loop(whole, stop, unroll=False, hint="number") as at:
        write(at, 1)
    return name, emitter


def _grid(emitter: Emitter, lanes: int) -> tuple[IRValue, IRValue]:
    """Return the scale and the zero point of the ranges that the argument table names."""
    args = emitter.parameter("args")
    least, greatest, count = (
        emitter.argument(args, 0, "ptr"),
        emitter.argument(args, 1, "ptr"),
        emitter.argument(args, 2),
    )
    loaded = _range(emitter, least, greatest, integer(0), count, lanes)
    low, high = element(0, F32), element(1, F32)
    scale = select(binary("eq", low, high), 1.0, (high - low) / 255.0)
    zero = unary("rint", minimum(maximum(-low / scale, 0.0), 255.0))
    printer = ScalarPrinter(emitter, 1, lambda index: loaded[index])
    return printer.print(scale), printer.print(cast(zero, U8))


def _store_grid(emitter: Emitter, scale: IRValue, zero: IRValue) -> None:
    args = emitter.parameter("args")
    emitter.store(scale, emitter.argument(args, 3, "ptr"))
    emitter.store(zero, emitter.argument(args, 4, "ptr"))
