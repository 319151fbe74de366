"""Microkernels: a tile of C (1 to MR rows, one panel of NR columns) plus the product of a strip of A and a panel of B.

``void tile(i64 depth, ptr a, i64 a_row, ptr b, i64 b_row, ptr c, i64 c_row, i64 first, ptr ahead, i64 ahead_step)``
computes ``c[r, j] = (first ? 0 : c[r, j]) + sum over k < depth of a[r, k] * b[k, j]`` with all sums in registers. Rows
of A are contiguous in k, rows of B and C in j; whole vectors are read from B and C, so both are padded to NR columns.
At each k it asks for the row of B at ``ahead + k * ahead_step`` bytes, for the tiles to come; the rows of C
below its own are asked for at the start, so that the next tile's stores do not wait.

One module holds a tile for each row count and the block copy; it is compiled once per target and shared by all
products, which find the functions in a table. So a new epilogue compiles a driver only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ort_core.cpu.codegen.code_table import CodeTable, code_table
from ort_core.cpu.codegen.emitter import Emitter, Operand, integer, module_text, vector_type
from ort_core.cpu.codegen.jit import CompiledModule, Target
from ort_core.cpu.codegen.packing import COPY_BLOCK, copy_block
from ort_core.cpu.codegen.vectors import prefetch, zero

Multiply = Callable[[Emitter, Operand, Operand, Operand], Operand]
"""Emits ``sum + a * b`` for a word of A in every lane, a vector of words of B, and sums; returns the new sums."""

_CHAINS = 8  # sums in flight that hide the latency of an FMA: 4 cycles on 2 units
_LINE = 16  # floats in a cache line
_ADDRESSED = 3  # rows that x86 reaches from one address: 0, 1 and 2 strides on
_TURN = 4  # numbers of K in a turn over dense panels, where a core that is shared runs 29 instructions for 12 products
# a fifth slower than 22: 128 x 768 x 768 takes 2.25 ms and 1.88 on a virtual machine with AVX2, 1.51 and 1.50 at best
_TILE = [
    ("i64", "depth"),
    ("ptr noalias readonly", "a"),
    ("i64", "a_row"),
    ("ptr noalias readonly", "b"),
    ("i64", "b_row"),
    ("ptr noalias", "c"),
    ("i64", "c_row"),
    ("i64", "first"),
    ("ptr readonly", "ahead"),
    ("i64", "ahead_step"),
]


@dataclass(frozen=True, slots=True)
class TileShape:
    """``rows`` x ``vectors`` sums of ``lanes`` floats that fit the register file with the operands they need."""

    rows: int
    vectors: int
    lanes: int

    @property
    def columns(self) -> int:
        """NR, the columns of a panel."""
        return self.vectors * self.lanes

    @property
    def is_large(self) -> bool:
        """Whether it takes more registers than AVX2 has; then its loads are few beside its products."""
        return self.rows * self.vectors > 12


def tile_shape(target: Target) -> TileShape:
    """Return the tile of a target: its sums, one row of B and one broadcast of A fill the registers."""
    if target.vector_registers >= 32:
        return TileShape(14, 2, target.lanes) if target.lanes >= 16 else TileShape(8, 3, target.lanes)
    return TileShape(6, 2, target.lanes)


def tile_name(rows: int, prefix: str = "product") -> str:
    """Return the symbol of the tile with so many rows."""
    return f"{prefix}_tile_{rows}"


def tiles_text(target: Target) -> str:
    """Return the module with the block copy and a tile for each row count."""
    shape = tile_shape(target)
    return module_text([copy_block(target), *(tile(shape, rows) for rows in range(1, shape.rows + 1))])


def tile_table(module: CompiledModule, target: Target) -> CodeTable:
    """Return the addresses that a product's ``tiles`` argument points to: the block copy, then the tiles by rows."""
    names = [COPY_BLOCK, *(tile_name(rows) for rows in range(1, tile_shape(target).rows + 1))]
    return code_table(module, names)


def _float_multiply(emitter: Emitter, a: Operand, b: Operand, total: Operand) -> Operand:
    return emitter.fma(a, b, total)


def tile(shape: TileShape, rows: int, multiply: Multiply = _float_multiply, prefix: str = "product") -> Emitter:
    """Return the tile of so many rows; its words are floats, or what else of 32 bits ``multiply`` takes them for."""
    emitter = Emitter(tile_name(rows, prefix), _TILE)
    sets = max(1, -(-_CHAINS // (rows * shape.vectors)))
    sums = [_start_sums(emitter, shape, rows, first=s == 0) for s in range(sets)]
    a, a_row = emitter.parameter("a"), emitter.parameter("a_row")
    strips = [emitter.element(a, emitter.mul(a_row, row)) for row in range(rows)]
    for row in range(rows):
        for line in range(0, shape.columns, _LINE):
            prefetch(emitter, emitter.element(_output(emitter, shape, row + rows, 0), line), write=True, level=3)
    depth = emitter.parameter("depth")
    done = _unrolled(emitter, shape, rows, sums, multiply)
    whole = emitter.sub(depth, emitter.urem(emitter.sub(depth, done), sets))
    with emitter.loop(done, whole, sets, unroll=False, hint="k") as k:
        for s in range(sets):
            _step(emitter, shape, strips, emitter.add(k, s), sums[s], multiply)
    if sets > 1:
        with emitter.loop(whole, depth, unroll=False, hint="k") as k:
            _step(emitter, shape, strips, k, sums[0], multiply)
    _store_sums(emitter, shape, sums)
    return emitter


def _unrolled(
    emitter: Emitter, shape: TileShape, rows: int, sums: list[list[list[Operand]]], multiply: Multiply
) -> Operand:
    """Emit turns of ``_TURN`` numbers of K, where B is packed and what is fetched ahead is near; return their K."""
    if shape.is_large:
        return integer(0)
    depth, a_row = emitter.parameter("depth"), emitter.parameter("a_row")
    step = emitter.parameter("ahead_step")
    dense = emitter.compare("eq", emitter.parameter("b_row"), shape.columns)
    near = emitter.compare("sle", step, 4 * _LINE // _TURN)
    whole = emitter.sub(depth, emitter.urem(depth, _TURN))
    done = emitter.select(emitter.binary("and", dense, near), whole, integer(0))
    firsts = [emitter.element(emitter.parameter("a"), emitter.mul(a_row, row)) for row in range(0, rows, _ADDRESSED)]
    with emitter.loop(0, done, _TURN, unroll=False, hint="k") as k:
        ahead = emitter.element(emitter.parameter("ahead"), emitter.mul(k, step), "i8")
        prefetch(emitter, ahead, write=False, level=2)
        panel = emitter.element(emitter.parameter("b"), emitter.mul(k, shape.columns))
        nears = [emitter.element(first, k) for first in firsts]
        strips = [
            emitter.element(nears[row // _ADDRESSED], emitter.mul(a_row, row % _ADDRESSED)) for row in range(rows)
        ]
        for t in range(_TURN):
            b = emitter.element(panel, t * shape.columns)
            _add_products(emitter, shape, b, strips, integer(t), sums[t % len(sums)], multiply)
    return done


def _start_sums(emitter: Emitter, shape: TileShape, rows: int, *, first: bool) -> list[list[Operand]]:
    type_ = vector_type(shape.lanes, "float")
    sums = [[emitter.variable(type_, zero(type_), "sum") for _ in range(shape.vectors)] for _ in range(rows)]
    if first:
        with emitter.when(emitter.compare("eq", emitter.parameter("first"), 0)):
            for row, slots in enumerate(sums):
                for vector, slot in enumerate(slots):
                    emitter.store(emitter.load(type_, _output(emitter, shape, row, vector), 4), slot)
    return sums


def _step(
    emitter: Emitter,
    shape: TileShape,
    strips: list[Operand],
    k: Operand,
    sums: list[list[Operand]],
    multiply: Multiply,
) -> None:
    row = emitter.element(emitter.parameter("b"), emitter.mul(k, emitter.parameter("b_row")))
    ahead = emitter.element(emitter.parameter("ahead"), emitter.mul(k, emitter.parameter("ahead_step")), "i8")
    for line in range(0, shape.columns, _LINE):
        prefetch(emitter, emitter.element(ahead, line), write=False, level=2)
    _add_products(emitter, shape, row, strips, k, sums, multiply)


def _add_products(
    emitter: Emitter,
    shape: TileShape,
    row: Operand,
    strips: list[Operand],
    k: Operand,
    sums: list[list[Operand]],
    multiply: Multiply,
) -> None:
    """Add the products of a row of B with word ``k`` of each strip of A to the sums."""
    type_ = vector_type(shape.lanes, "float")
    panel = [emitter.load(type_, emitter.element(row, v * shape.lanes), 4) for v in range(shape.vectors)]
    for strip, slots in zip(strips, sums, strict=True):
        value = emitter.splat(emitter.load("float", emitter.element(strip, k)), shape.lanes)
        for vector, slot in zip(panel, slots, strict=True):
            emitter.store(multiply(emitter, value, vector, emitter.load(type_, slot)), slot)


def _store_sums(emitter: Emitter, shape: TileShape, sums: list[list[list[Operand]]]) -> None:
    type_ = vector_type(shape.lanes, "float")
    for row in range(len(sums[0])):
        for vector in range(shape.vectors):
            total = emitter.load(type_, sums[0][row][vector])
            for other in sums[1:]:
                total = emitter.binary("fadd", total, emitter.load(type_, other[row][vector]))
            emitter.store(total, _output(emitter, shape, row, vector), 4)


def _output(emitter: Emitter, shape: TileShape, row: int, vector: int) -> Operand:
    start = emitter.mul(emitter.parameter("c_row"), row)
    return emitter.element(emitter.parameter("c"), emitter.add(start, vector * shape.lanes))
