"""Rows of float32 as signed bytes in blocks with a scale each: the left side of products of few bits in integers.

A number is one byte, or two: then a row of bytes is followed by another, alike, which holds what the first left of each
number, with scales that are smaller by 254. Two lose a 64,000th of a block's largest number, one a 254th.

A block of a row is 8 bytes of head and ``block`` bytes: what the middle of the weights' range adds to each sum (int32;
where blocks have zero points, the sum of the bytes as float32), the scale (float32), and the numbers divided by it,
rounded to -127 to 127. Bytes lie in the order in which weights leave their words: of 4 bits first the even ones of
eight, then the odd ones. What a row lacks to whole blocks is 0.

Behind the last row are the heads of as many rows as a tile may read there, zeros: what is scaled by them is left out,
but floats that happen to be denormal, as whole numbers of other steps are, take a processor 15 times as long.

A block with NaN has a scale of NaN; infinities are the largest byte times an infinite scale. Of such blocks the second
row has scales of 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ort_core.cpu.codegen.images.channels_last import divide, kernel_emitter, share_of
from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, float32, integer, suffix, vector_type
from ort_core.cpu.codegen.llvm_ir.part_access import load_first
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.codegen.nests.places import unravel

HEAD_NBYTES = 8
LARGEST = 127  # of a byte: -128 has no counterpart
ROW_DIMS = 3
FINER = 2 * LARGEST  # what is left of a number is at most half of a scale
_UNROLLED_VECTORS = 8
_LARGEST_FLOAT = 3.4028234663852886e38


@dataclass(frozen=True, slots=True)
class ByteRowArguments:
    """Positions in the argument table; sizes and strides (elements) of the rows, innermost last.

    ``most`` is how many rows the largest tile reads, a power of 2.
    """

    x: int = 0
    out: int = 1
    rows: int = 2  # the product of the sizes
    most: int = 3
    sizes: int = 4
    strides: int = 7
    count: int = 10


ARGUMENTS = ByteRowArguments()


@dataclass(frozen=True, slots=True)
class ByteRows:
    """What rows become.

    Attributes:
        depth: numbers of a row.
        block: numbers with one scale, a multiple of 8.
        bits: of the weights that they meet, 4 or 8.
        has_zero_points: whether those have zero points, or stand around the middle of their range.
        parts: bytes of a number, 1 or 2.
    """

    depth: int
    block: int
    bits: int
    has_zero_points: bool
    parts: int = 1

    @property
    def blocks(self) -> int:
        """Blocks of a row; the last may be part."""
        return -(-self.depth // self.block)

    @property
    def block_nbytes(self) -> int:
        """Bytes of a block with its head."""
        return HEAD_NBYTES + self.block

    @property
    def pitch(self) -> int:
        """Bytes from one row to the next."""
        return self.parts * self.part_nbytes

    @property
    def part_nbytes(self) -> int:
        """Bytes of one part of a row."""
        return self.blocks * self.block_nbytes


def byte_rows_kernel(name: str, spec: ByteRows, target: Target) -> Emitter:
    """Return the kernel that writes rows as bytes; see ``ByteRowArguments`` for its table."""
    emitter = kernel_emitter(name)
    args = emitter.parameter("args")
    x, out = (emitter.argument(args, i, "ptr") for i in (ARGUMENTS.x, ARGUMENTS.out))
    rows, most = (emitter.argument(args, i) for i in (ARGUMENTS.rows, ARGUMENTS.most))
    sizes = [emitter.argument(args, ARGUMENTS.sizes + i) for i in range(ROW_DIMS)]
    strides = [emitter.argument(args, ARGUMENTS.strides + i) for i in range(ROW_DIMS)]
    writer, behind = _BlockWriter(emitter, spec, target), _rows_behind(emitter, rows, most)
    with share_of(emitter, emitter.mul(rows, spec.blocks)) as unit:
        row, block = divide(emitter, unit, spec.blocks)
        offset: IRValue = emitter.mul(block, spec.block)
        for index, stride in zip(unravel(emitter, row, sizes), strides, strict=True):
            offset = emitter.add(offset, emitter.mul(index, stride))
        at = emitter.add(emitter.mul(row, spec.pitch), emitter.mul(block, spec.block_nbytes))
        to = emitter.element(out, at, "i8")
        writer.write(emitter.element(x, offset), to, block)
        with (
            emitter.when(emitter.compare("eq", row, emitter.sub(rows, 1))),
            emitter.loop(1, emitter.add(behind, 1), unroll=False, hint="behind") as number,
        ):
            writer.clear_heads(emitter.element(to, emitter.mul(number, spec.pitch), "i8"))
    return emitter


def _rows_behind(emitter: Emitter, rows: IRValue, most: IRValue) -> IRValue:
    """Return how many rows behind the last one tiles may read: a tile has less than twice the rows that it is for."""
    twice = emitter.sub(emitter.mul(rows, 2), 1)
    return emitter.sub(emitter.minimum(twice, most), 1)


class _BlockWriter:
    def __init__(self, emitter: Emitter, spec: ByteRows, target: Target) -> None:
        self.emitter, self.spec = emitter, spec
        self.width = 16 if target.lanes == 16 and spec.block % 16 == 0 else 8
        self.floats, self.words = (vector_type(self.width, each) for each in ("float", "i32"))

    def write(self, place: IRValue, to: IRValue, block: IRValue) -> None:
        """Write a block; the last one of a row may be part."""
        spec, rest = self.spec, self.spec.depth % self.spec.block
        if not rest:
            self._block(place, to, spec.block)
        elif spec.blocks == 1:
            self._block(place, to, rest)
        else:
            with self.emitter.either(self.emitter.compare("eq", block, spec.blocks - 1)) as branch:
                self._block(place, to, rest)
                with branch.otherwise():
                    self._block(place, to, spec.block)

    def clear_heads(self, to: IRValue) -> None:
        """Write zeros as the head of a block, of each part."""
        for part in range(self.spec.parts):
            self.emitter.store(integer(0), self.emitter.element(to, part * self.spec.part_nbytes, "i8"), 4)

    def _block(self, place: IRValue, to: IRValue, count: int) -> None:
        e, parts = self.emitter, self.spec.parts
        scales, inverses = zip(*self._scales(place, count), strict=True)
        factors = [e.splat(each, self.width) for each in inverses]
        less = e.splat(e.assign("float", f"fneg {scales[0].typed}"), self.width)
        totals = [self._zeros("sum") for _ in range(parts)]
        places = [e.element(to, part * self.spec.part_nbytes, "i8") for part in range(parts)]
        bytes_ = [e.element(each, HEAD_NBYTES, "i8") for each in places]

        def keep(first: IRValue, numbers: IRValue) -> None:
            for part, (factor, total, here) in enumerate(zip(factors, totals, bytes_, strict=True)):
                rounded = self._rounded(e.binary("fmul", numbers, factor))
                e.store(e.binary("add", e.load(self.words, total), rounded), total)
                e.store(self._ordered(rounded), e.element(here, first, "i8"), 1)
                if part + 1 < parts:
                    whole = e.assign(self.floats, f"sitofp {rounded.typed} to {self.floats}")
                    numbers = e.fma(whole, less, numbers)

        self._over(place, count, keep)
        for total, scale, at, here in zip(totals, scales, places, bytes_, strict=True):
            for first in range(-(-count // self.width) * self.width, self.spec.block, self.width):
                nothing = IRValue(vector_type(self.width, "i8"), "zeroinitializer")
                e.store(nothing, e.element(here, first, "i8"), 1)
            e.store(self._head(self._reduced("add", e.load(self.words, total))), at, 4)
            e.store(scale, e.element(at, 1), 4)

    def _scales(self, place: IRValue, count: int) -> list[tuple[IRValue, IRValue]]:
        """Return the scale of each part of a block and what its numbers are multiplied by.

        Both are finite but where the block is not. Magnitudes are compared as integers: NaN is above infinity, and
        infinity above all else.
        """
        e, top = self.emitter, self._zeros("top")
        mask = f"<{', '.join(['i32 2147483647'] * self.width)}>"

        def widen(_: IRValue, numbers: IRValue) -> None:
            bits = e.assign(self.words, f"bitcast {numbers.typed} to {self.words}")
            magnitude = e.assign(self.words, f"and {bits.typed}, {mask}")
            e.store(e.call(self.words, f"llvm.smax.{suffix(self.words)}", e.load(self.words, top), magnitude), top)

        self._over(place, count, widen)
        reduced = self._reduced("smax", e.load(self.words, top))
        largest = e.assign("float", f"bitcast {reduced.typed} to float")
        finite = self._lesser(largest, float32(_LARGEST_FLOAT))
        scale = e.binary("fdiv", largest, float32(LARGEST))
        inverse = self._lesser(e.binary("fdiv", float32(LARGEST), finite), float32(_LARGEST_FLOAT))
        if self.spec.parts == 1:
            return [(scale, inverse)]
        is_finite = e.assign("i1", f"fcmp ole {largest.typed}, {float32(_LARGEST_FLOAT).text}", "c")
        finer = e.select(is_finite, e.binary("fdiv", scale, float32(FINER)), float32(0.0))
        times = self._lesser(e.binary("fmul", inverse, float32(FINER)), float32(_LARGEST_FLOAT))
        return [(scale, inverse), (finer, times)]

    def _over(self, place: IRValue, count: int, body: Callable[[IRValue, IRValue], None]) -> None:
        """Hand the body each vector of a block and where it begins; behind the last number are zeros."""
        e, (whole, rest) = self.emitter, divmod(count, self.width)
        step = max(size for size in range(1, _UNROLLED_VECTORS + 1) if whole % size == 0)
        with e.loop(0, integer(whole), step, unroll=False, hint="vector") as vector:
            for part in range(step):
                first = e.mul(e.add(vector, part), self.width)
                body(first, e.load(self.floats, e.element(place, first), 4))
        if rest:
            first = integer(whole * self.width)
            body(first, load_first(e, self.floats, rest, e.element(place, first), 4))

    def _rounded(self, scaled: IRValue) -> IRValue:
        e = self.emitter
        bounded = self._lesser(scaled, self._floats(LARGEST))
        least = self._floats(-LARGEST)
        is_above = e.assign(f"<{self.width} x i1>", f"fcmp ogt {bounded.typed}, {least.text}", "c")
        bounded = e.select(is_above, bounded, least)
        whole = e.call(self.floats, f"llvm.rint.{suffix(self.floats)}", bounded)
        return e.assign(self.words, f"fptosi {whole.typed} to {self.words}")

    def _lesser(self, value: IRValue, bound: IRValue) -> IRValue:
        """Return the lesser of two; the bound for NaN."""
        flags = "i1" if value.type == "float" else f"<{self.width} x i1>"
        is_below = self.emitter.assign(flags, f"fcmp olt {value.typed}, {bound.text}", "c")
        return self.emitter.select(is_below, value, bound)

    def _ordered(self, rounded: IRValue) -> IRValue:
        """Return numbers as bytes in the order of the weights of a word."""
        e, type_ = self.emitter, vector_type(self.width, "i8")
        narrow = e.assign(type_, f"trunc {rounded.typed} to {type_}")
        if self.spec.bits == 8:
            return narrow
        order = [first + i for first in range(0, self.width, 8) for i in (0, 2, 4, 6, 1, 3, 5, 7)]
        lanes = ", ".join(f"i32 {lane}" for lane in order)
        return e.assign(type_, f"shufflevector {narrow.typed}, {type_} poison, <{self.width} x i32> <{lanes}>")

    def _head(self, total: IRValue) -> IRValue:
        if self.spec.has_zero_points:
            return self.emitter.assign("float", f"sitofp {total.typed} to float")
        return self.emitter.mul(total, -(2 ** (self.spec.bits - 1)))

    def _reduced(self, operation: str, vector: IRValue) -> IRValue:
        return self.emitter.call("i32", f"llvm.vector.reduce.{operation}.{suffix(self.words)}", vector)

    def _zeros(self, hint: str) -> IRValue:
        return self.emitter.variable(self.words, IRValue(self.words, "zeroinitializer"), hint)

    def _floats(self, value: float) -> IRValue:
        return IRValue(self.floats, f"<{', '.join([float32(value).typed] * self.width)}>")
