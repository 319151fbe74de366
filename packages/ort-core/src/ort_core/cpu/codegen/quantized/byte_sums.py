"""Sums of a tile of rows with a panel of bytes by dot products of vectors."""

from __future__ import annotations

from collections.abc import Callable

from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, integer, vector_type
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.codegen.quantized.integer_dot import WORD, ByteProducts, register_tile

Tile = Callable[[IRValue, IRValue], None]
"""Appends the sums of a tile with the panel at one address to another: row by row, as many as a panel has columns."""
_FEW = 4  # rows of a smaller function for what whole tiles leave
_SIGN = IRValue("i32", "-2139062144")  # 0x80808080: turns signed bytes into unsigned ones, larger by 128
_PARAMETERS = (
    ("ptr noalias readonly", "a"), ("i64", "a_row"), ("ptr noalias readonly", "panel"), ("i64", "depth"),
    ("ptr noalias", "kept"),
)  # fmt: skip


class VectorSums:
    """The functions that sum whole tiles, a few rows, and one."""

    head = 0  # rows that are written in front of those asked for

    def __init__(self, name: str, is_signed: bool, target: Target, width: int) -> None:
        self.rows, self._width = register_tile(target)[1], width
        heights = sorted({self.rows, min(_FEW, self.rows), 1}, reverse=True)
        self._by_height = {
            height: _function(f"{name}.sums{height}", is_signed, target, height, width) for height in heights
        }

    @property
    def functions(self) -> list[Emitter]:
        """All of them."""
        return list(self._by_height.values())

    def tile(
        self, emitter: Emitter, a: IRValue, a_row: IRValue, first: IRValue, count: IRValue, height: IRValue,
        depth: IRValue,
    ) -> Tile:  # fmt: skip
        """Return what appends the sums of ``count`` rows of the matrix at ``a`` from ``first`` on."""
        del height
        start = emitter.element(a, emitter.mul(first, a_row), "i8")

        def append(panel: IRValue, kept: IRValue) -> None:
            begin: IRValue = integer(0)
            for rows, function in self._by_height.items():
                stop = emitter.sub(count, emitter.urem(emitter.sub(count, begin), rows))
                with emitter.loop(begin, stop, rows, unroll=False, hint="row") as row:
                    line = emitter.element(start, emitter.mul(row, a_row), "i8")
                    place = emitter.element(kept, emitter.mul(row, self._width), "i32")
                    emitter.call_void(function.name, line, a_row, panel, depth, place)
                begin = stop

        return append


def _function(name: str, is_signed: bool, target: Target, rows: int, width: int) -> Emitter:
    """Return the function that sums so many rows."""
    emitter = Emitter(name, _PARAMETERS, linkage="internal")
    lanes, products = target.lanes, ByteProducts(emitter, target)
    type_, vectors = vector_type(lanes, "i32"), range(width // lanes)
    panel, depth = emitter.parameter("panel"), emitter.parameter("depth")
    nothing = IRValue(type_, "zeroinitializer")
    sums = [[emitter.variable(type_, nothing, "sum") for _ in vectors] for _ in range(rows)]
    a_row = emitter.parameter("a_row")
    lines = [emitter.element(emitter.parameter("a"), emitter.mul(a_row, row), "i8") for row in range(rows)]
    whole, rest = emitter.udiv(depth, WORD), emitter.urem(depth, WORD)

    def add(word: IRValue, of_row: Callable[[IRValue], IRValue]) -> None:
        place = emitter.element(panel, emitter.mul(word, width), "i32")
        factors = [products.prepared(emitter.element(place, i * lanes, "i32")) for i in vectors]
        for line, slots in zip(lines, sums, strict=True):
            spread = products.spread(emitter.splat(of_row(line), lanes))
            for slot, factor in zip(slots, factors, strict=True):
                emitter.store(products.add(emitter.load(type_, slot), spread, factor), slot)

    with emitter.loop(0, whole, unroll=False, hint="k") as k:

        def four(line: IRValue, k: IRValue = k) -> IRValue:
            word = emitter.load("i32", emitter.element(line, k, "i32"), 1)
            return emitter.binary("xor", word, _SIGN) if is_signed else word

        add(k, four)
    with emitter.loop(0, rest, unroll=False, hint="byte") as byte:  # one of the last word, beside zeros

        def single(line: IRValue, byte: IRValue = byte) -> IRValue:
            place = emitter.element(line, emitter.add(emitter.mul(whole, WORD), byte), "i8")
            wide = emitter.load("i8", place, 1)
            wide = emitter.binary("xor", wide, integer(-128, "i8")) if is_signed else wide
            word = emitter.assign("i32", f"zext {wide.typed} to i32")
            bits = emitter.assign("i32", f"trunc i64 {emitter.mul(byte, 8).text} to i32")
            return emitter.binary("shl", word, bits)

        add(whole, single)
    for row, slots in enumerate(sums):
        for vector, slot in enumerate(slots):
            place = emitter.element(emitter.parameter("kept"), row * width + vector * lanes, "i32")
            emitter.store(emitter.load(type_, slot), place, WORD)
    return emitter
