"""Computed matrices of bytes in the panels that dot products of bytes read, as constants are packed at load.

A panel is a few vectors of columns; of each four neighboring rows it holds a word of every column (``integer_dot``).
Bytes are stored signed: unsigned ones are smaller by 128. What lies behind the last row and the last column is 0.
Beside the panels stand the sums of the columns, of which zero points are made.
"""

from __future__ import annotations

from dataclasses import dataclass

from ort_core.cpu.codegen.images.channels_last import ceil_divide, divide, kernel_emitter, share_of
from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, integer, vector_type
from ort_core.cpu.codegen.llvm_ir.matrix_tiles import ROWS
from ort_core.cpu.codegen.llvm_ir.part_access import load_masked
from ort_core.cpu.codegen.llvm_ir.vectors import lane_mask, shuffle
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.codegen.quantized.integer_convolution_plan import has_byte_tiles
from ort_core.cpu.codegen.quantized.integer_dot import (
    WORD,
    ByteProducts,
    has_byte_products,
    pair_instruction,
    register_tile,
    splat_text,
)

BATCH_DIMS = 4


@dataclass(frozen=True, slots=True)
class BytePanelsArguments:
    """Positions in the argument table; strides count bytes, ``batch`` and ``b_batch`` are four entries each.

    ``panels`` are dense: for each matrix, each panel has ``words`` words of each column. ``sums`` are int32, one for
    each column of each matrix. Columns of ``b`` lie one behind the other.
    """

    panels: int = 0
    sums: int = 1
    b: int = 2
    depth: int = 3
    columns: int = 4
    words: int = 5
    b_row: int = 6
    batch: int = 7
    b_batch: int = 11


ARGUMENTS = BytePanelsArguments()


def panel_columns(target: Target) -> int:
    """Return how many columns a panel has."""
    return register_tile(target)[0] * target.lanes


def uses_tiles(target: Target) -> bool:
    """Return whether the products of panels go through registers of tiles; dot products share their panels."""
    return has_byte_tiles(target) and has_byte_products(target)


def rows_of_words(target: Target) -> int:
    """Return of how many words a panel's depth is a multiple."""
    return ROWS if uses_tiles(target) else 1


def byte_panels_kernel(name: str, is_signed: bool, target: Target) -> list[Emitter]:
    """Return the kernel that packs matrices of bytes, signed or not."""
    emitter = kernel_emitter(name)
    args = emitter.parameter("args")
    columns, words = (emitter.argument(args, i) for i in (ARGUMENTS.columns, ARGUMENTS.words))
    width = panel_columns(target)
    sizes = [emitter.argument(args, ARGUMENTS.batch + i) for i in range(BATCH_DIMS)]
    matrices = integer(1)
    for size in sizes:
        matrices = emitter.mul(matrices, size)
    panels = ceil_divide(emitter, columns, width)
    with share_of(emitter, emitter.mul(matrices, panels)) as unit:
        matrix, panel = divide(emitter, unit, panels)
        first = emitter.mul(panel, width)
        source = emitter.element(_matrix(emitter, matrix, sizes), first, "i8")
        to = emitter.argument(args, ARGUMENTS.panels, "ptr")
        to = emitter.element(to, emitter.mul(unit, words), f"[{width} x i32]")
        sums = emitter.argument(args, ARGUMENTS.sums, "ptr")
        sums = emitter.element(sums, emitter.add(emitter.mul(matrix, columns), first), "i32")
        for begin in range(0, width, target.lanes):
            places = [emitter.element(each, begin, type_) for each, type_ in ((source, "i8"), (to, "i32"))]
            packer = _Packer(emitter, target, is_signed, places[0], places[1])
            has = emitter.sub(emitter.sub(columns, first), begin)
            packer.pack_existing(has, emitter.element(sums, begin, "i32"))
    return [emitter]


def _matrix(emitter: Emitter, number: IRValue, sizes: list[IRValue]) -> IRValue:
    """Return where the matrix of a number begins."""
    args = emitter.parameter("args")
    found = emitter.argument(args, ARGUMENTS.b, "ptr")
    for i in reversed(range(BATCH_DIMS)):
        number, index = divide(emitter, number, sizes[i])
        found = emitter.element(found, emitter.mul(index, emitter.argument(args, ARGUMENTS.b_batch + i)), "i8")
    return found


class _Packer:
    """Packs a vector of columns of one matrix."""

    def __init__(self, emitter: Emitter, target: Target, is_signed: bool, source: IRValue, to: IRValue) -> None:
        self._emitter, self._target, self._is_signed = emitter, target, is_signed
        self._source, self._to = source, to
        self._products = ByteProducts(emitter, target)
        self._bytes = vector_type(target.lanes, "i8")
        args = emitter.parameter("args")
        self._row = emitter.argument(args, ARGUMENTS.b_row)

    def pack_existing(self, has: IRValue, sums: IRValue) -> None:
        """Append the packing of a vector of which so many columns exist, perhaps none, and store their sums."""
        emitter, lanes = self._emitter, self._target.lanes
        with emitter.either(emitter.compare("sge", has, lanes)) as branch:
            emitter.store(self._pack(None), sums, WORD)
            with branch.otherwise():
                total = self._pack(lane_mask(emitter, has, lanes))
                kept = emitter.variable(total.type, total)
                with emitter.loop(0, has, unroll=False, hint="column") as column:
                    one = emitter.load("i32", emitter.element(kept, column, "i32"), WORD)
                    emitter.store(one, emitter.element(sums, column, "i32"), WORD)

    def _pack(self, mask: IRValue | None) -> IRValue:
        """Append the packing of the lanes that exist, and return the sums of their columns."""
        emitter, args = self._emitter, self._emitter.parameter("args")
        depth, words = emitter.argument(args, ARGUMENTS.depth), emitter.argument(args, ARGUMENTS.words)
        sums_type = vector_type(self._target.lanes, "i32")
        sums = emitter.variable(sums_type, IRValue(sums_type, "zeroinitializer"), "sums")
        whole, rest = emitter.udiv(depth, WORD), emitter.urem(depth, WORD)
        with emitter.loop(0, whole, unroll=False, hint="word") as word:
            first = emitter.mul(word, WORD)
            self._store(word, [self._loaded(emitter.add(first, i), mask) for i in range(WORD)], sums)
        with emitter.when(emitter.compare("sgt", rest, 0)):
            nothing = IRValue(self._bytes, "zeroinitializer")
            rows = [emitter.variable(self._bytes, nothing, "row") for _ in range(WORD)]
            for i, slot in enumerate(rows[:-1]):
                with emitter.when(emitter.compare("sgt", rest, i)):
                    emitter.store(self._loaded(emitter.add(emitter.mul(whole, WORD), i), mask), slot)
            self._store(whole, [emitter.load(self._bytes, slot) for slot in rows], sums)
        used = ceil_divide(emitter, depth, WORD)
        with emitter.loop(used, words, unroll=False, hint="word") as word:
            emitter.store(IRValue(sums_type, "zeroinitializer"), self._place(word), WORD)
        return emitter.load(sums_type, sums)

    def _loaded(self, row: IRValue, mask: IRValue | None) -> IRValue:
        """Load bytes of a row as signed ones; those that the mask leaves out are 0."""
        emitter, type_ = self._emitter, self._bytes
        address = emitter.element(self._source, emitter.mul(row, self._row), "i8")
        value = emitter.load(type_, address, 1) if mask is None else load_masked(emitter, type_, address, 1, mask)
        if self._is_signed:
            return value
        value = emitter.assign(type_, f"xor {value.typed}, {splat_text(-128, 8, self._target.lanes)}")
        return value if mask is None else emitter.select(mask, value, IRValue(type_, "zeroinitializer"))

    def _store(self, word: IRValue, rows: list[IRValue], sums: IRValue) -> None:
        """Store a word of each column, and add its bytes to the sums."""
        emitter, lanes, place = self._emitter, self._target.lanes, self._place(word)
        pairs = [lane for i in range(lanes) for lane in (i, lanes + i)]
        if has_byte_products(self._target) or pair_instruction(self._target) is None:
            halves = [shuffle(emitter, rows[i], rows[i + 1], pairs) for i in (0, 2)]
            type_ = vector_type(lanes, "i16")
            low, high = (emitter.assign(type_, f"bitcast {half.typed} to {type_}") for half in halves)
            emitter.store(shuffle(emitter, low, high, pairs), place, WORD)
        else:  # as ``packed_words`` has them
            for i in range(2):
                half = shuffle(emitter, rows[i], rows[i + 2], pairs)
                emitter.store(half, emitter.element(place, i, half.type), WORD)
        ones = self._products.spread(emitter.splat(integer(0x01010101, "i32"), lanes))
        total = self._products.add(emitter.load(vector_type(lanes, "i32"), sums), ones, self._products.prepared(place))
        emitter.store(total, sums)

    def _place(self, word: IRValue) -> IRValue:
        return self._emitter.element(self._to, self._emitter.mul(word, panel_columns(self._target)), "i32")
