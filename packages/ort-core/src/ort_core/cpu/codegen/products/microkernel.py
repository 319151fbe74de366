"""Microkernels: a tile of C (1 to MR rows, one panel of NR columns) plus the product of a strip of A and a panel of B.

``void tile(i64 depth, ptr a, i64 a_row, ptr b, i64 b_row, ptr c, i64 c_row, i64 first, ptr ahead, i64 ahead_step)``
computes ``c[r, j] = (first ? 0 : c[r, j]) + sum over k < depth of a[r, k] * b[k, j]`` with sums in registers. Rows
of A are contiguous in k, rows of B and C in j; whole vectors are read from B and C, so both are padded to NR columns.
Sums of a part of K start from zero and are added to C at its end, so that rounding errors stay small
(``partial_sums``). At each k it asks for the row of B at ``ahead + k * ahead_step`` bytes, for the tiles to come; the
rows of C below its own are asked for at the start, so that the next tile's stores do not wait.

One module holds a tile for each row count and the block copy; it is compiled once per target and shared by all
products, which find the functions in a table. So a new epilogue compiles a driver only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, integer, module_text, vector_type
from ort_core.cpu.codegen.llvm_ir.vectors import prefetch, word_nbytes, zero
from ort_core.cpu.codegen.machine_code.code_table import CodeTable, code_table
from ort_core.cpu.codegen.machine_code.compiled_module import CompiledModule
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.codegen.products.packing import COPY_BLOCK, copy_block
from ort_core.cpu.codegen.products.partial_sums import CHAIN

Multiply = Callable[[Emitter, IRValue, IRValue, IRValue], IRValue]
"""Emits ``sum + a * b`` for a word of A in every lane, a vector of words of B, and sums; returns the new sums."""
AddProducts = Callable[[Emitter, "TileShape", IRValue, list[IRValue], IRValue, list[list[IRValue]]], None]
"""Emits a step of K: the row of B, the strips of A, the step's number, and the variables that hold the sums."""

_CHAINS = 8  # sums in flight that hide the latency of an FMA: 4 cycles on 2 units
_LINE_NBYTES = 64
_ADDRESSED = 3  # rows that x86 reaches from one address: 0, 1 and 2 strides on
_TURN = 4  # numbers of K in a turn over dense panels, where a core that is shared runs 29 instructions for 12 products
# a fifth slower than 22: 128 x 768 x 768 takes 2.25 ms and 1.88 on a virtual machine with AVX2, 1.51 and 1.50 at best
TILE_PARAMETERS = [
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
    """``rows`` x ``vectors`` sums of ``lanes`` words that fit the register file with the operands they need."""

    rows: int
    vectors: int
    lanes: int
    word: str = "float"  # or double

    @property
    def columns(self) -> int:
        """NR, the columns of a panel."""
        return self.vectors * self.lanes

    @property
    def word_nbytes(self) -> int:
        """How many bytes a word has."""
        return word_nbytes(self.word)

    @property
    def line(self) -> int:
        """How many words a cache line has."""
        return _LINE_NBYTES // self.word_nbytes

    @property
    def is_large(self) -> bool:
        """Whether it takes more registers than AVX2 has; then its loads are few beside its products."""
        return self.rows * self.vectors > 12


def tile_shape(target: Target, word: str = "float") -> TileShape:
    """Return the tile of a target: its sums, one row of B and one broadcast of A fill the registers."""
    lanes = target.vector_nbytes // word_nbytes(word)
    if target.vector_registers >= 32:
        return TileShape(14, 2, lanes, word) if target.vector_nbytes >= 64 else TileShape(8, 3, lanes, word)
    return TileShape(6, 2, lanes, word)


def tile_name(rows: int, prefix: str = "product") -> str:
    """Return the symbol of the tile with so many rows."""
    return f"{prefix}_tile_{rows}"


def tiles_text(target: Target, word: str = "float") -> str:
    """Return the module with the block copy and a tile for each row count."""
    shape = tile_shape(target, word)
    return module_text([copy_block(target, word), *(tile(shape, rows) for rows in range(1, shape.rows + 1))])


def tile_table(module: CompiledModule, target: Target) -> CodeTable:
    """Return the addresses that a product's ``tiles`` argument points to: the block copy, then the tiles by rows."""
    names = [COPY_BLOCK, *(tile_name(rows) for rows in range(1, tile_shape(target).rows + 1))]
    return code_table(module, names)


def _float_multiply(emitter: Emitter, a: IRValue, b: IRValue, total: IRValue) -> IRValue:
    return emitter.fma(a, b, total)


def products_of(multiply: Multiply) -> AddProducts:
    """Return the step that multiplies word ``k`` of each strip of A with the words of a row of B."""

    def add(
        emitter: Emitter, shape: TileShape, row: IRValue, strips: list[IRValue], k: IRValue, sums: list[list[IRValue]]
    ) -> None:
        _add_products(emitter, shape, row, strips, k, sums, multiply)

    return add


_FLOAT_PRODUCTS = products_of(_float_multiply)


def tile(shape: TileShape, rows: int, add: AddProducts = _FLOAT_PRODUCTS, prefix: str = "product") -> Emitter:
    """Return the tile of so many rows; its words are floats, or what else as wide ``add`` takes them for."""
    emitter = Emitter(tile_name(rows, prefix), TILE_PARAMETERS, word=shape.word)
    sums = _Sums(emitter, shape, rows, max(1, -(-_CHAINS // (rows * shape.vectors))))
    a, a_row = emitter.parameter("a"), emitter.parameter("a_row")
    strips = [emitter.element(a, emitter.mul(a_row, row)) for row in range(rows)]
    for row in range(rows):
        for line in range(0, shape.columns, shape.line):
            prefetch(emitter, emitter.element(_output(emitter, shape, row + rows, 0), line), write=True, level=3)
    depth = emitter.parameter("depth")
    done = _unrolled(emitter, shape, rows, sums) if add is _FLOAT_PRODUCTS else integer(0)
    whole = emitter.sub(depth, emitter.urem(emitter.sub(depth, done), sums.sets))
    with sums.parts(done, whole) as part, emitter.loop(*part, sums.sets, unroll=False, hint="k") as k:
        for s in range(sums.sets):
            _step(emitter, shape, strips, emitter.add(k, s), sums.slots[s], add)
    if sums.sets > 1:
        with emitter.loop(whole, depth, unroll=False, hint="k") as k:
            _step(emitter, shape, strips, k, sums.slots[0], add)
    sums.store()
    return emitter


def _unrolled(emitter: Emitter, shape: TileShape, rows: int, sums: _Sums) -> IRValue:
    """Emit turns of ``_TURN`` numbers of K, where B is packed and what is fetched ahead is near; return their K."""
    if shape.is_large:
        return integer(0)
    depth, a_row = emitter.parameter("depth"), emitter.parameter("a_row")
    step = emitter.parameter("ahead_step")
    dense = emitter.compare("eq", emitter.parameter("b_row"), shape.columns)
    near = emitter.compare("sle", step, _LINE_NBYTES // _TURN)
    whole = emitter.sub(depth, emitter.urem(depth, _TURN))
    done = emitter.select(emitter.binary("and", dense, near), whole, integer(0))
    firsts = [emitter.element(emitter.parameter("a"), emitter.mul(a_row, row)) for row in range(0, rows, _ADDRESSED)]
    with sums.parts(integer(0), done) as part, emitter.loop(*part, _TURN, unroll=False, hint="k") as k:
        ahead = emitter.element(emitter.parameter("ahead"), emitter.mul(k, step), "i8")
        prefetch(emitter, ahead, write=False, level=2)
        panel = emitter.element(emitter.parameter("b"), emitter.mul(k, shape.columns))
        nears = [emitter.element(first, k) for first in firsts]
        strips = [
            emitter.element(nears[row // _ADDRESSED], emitter.mul(a_row, row % _ADDRESSED)) for row in range(rows)
        ]
        for t in range(_TURN):
            b = emitter.element(panel, t * shape.columns)
            _add_products(emitter, shape, b, strips, integer(t), sums.slots[t % sums.sets], _float_multiply)
    return done


class _Sums:
    """The sums of a tile while it is emitted: ``sets`` for each number; parts of K are added up in C."""

    def __init__(self, emitter: Emitter, shape: TileShape, rows: int, sets: int) -> None:
        self.emitter, self.shape, self.sets, self.chain = emitter, shape, sets, CHAIN * sets
        self.type = vector_type(shape.lanes, shape.word)
        self.places = [(row, vector) for row in range(rows) for vector in range(shape.vectors)]
        self.slots = [[[self._slot() for _ in range(shape.vectors)] for _ in range(rows)] for _ in range(sets)]
        self.is_first = emitter.variable("i1", emitter.compare("ne", emitter.parameter("first"), 0), "first")

    def _slot(self) -> IRValue:
        return self.emitter.variable(self.type, zero(self.type), "sum")

    @contextmanager
    def parts(self, start: IRValue, stop: IRValue) -> Iterator[tuple[IRValue, IRValue]]:
        """Emit the body for parts of K between two places, whose sums are stored behind all but the last."""
        e = self.emitter
        with e.loop(start, stop, self.chain, unroll=False, hint="part") as part:
            behind = e.add(part, self.chain)
            yield part, e.minimum(behind, stop)
            with e.when(e.compare("slt", behind, stop)):
                self.store()
                e.store(IRValue("i1", "false"), self.is_first)
                for slot in (slot for each in self.slots for slots in each for slot in slots):
                    e.store(zero(self.type), slot)

    def store(self) -> None:
        """Write the sums to C, added to what it holds but for the first ones."""
        e, outputs = self.emitter, [_output(self.emitter, self.shape, *place) for place in self.places]
        totals = self._totals()
        with e.either(e.load("i1", self.is_first)) as branch:
            for output, total in zip(outputs, totals, strict=True):
                e.store(total, output, self.shape.word_nbytes)
            with branch.otherwise():
                for output, total in zip(outputs, totals, strict=True):
                    known = e.load(self.type, output, self.shape.word_nbytes)
                    e.store(e.binary("fadd", total, known), output, self.shape.word_nbytes)

    def _totals(self) -> list[IRValue]:
        e = self.emitter
        totals = []
        for row, vector in self.places:
            total = e.load(self.type, self.slots[0][row][vector])
            for other in self.slots[1:]:
                total = e.binary("fadd", total, e.load(self.type, other[row][vector]))
            totals.append(total)
        return totals


def _step(
    emitter: Emitter,
    shape: TileShape,
    strips: list[IRValue],
    k: IRValue,
    sums: list[list[IRValue]],
    add: AddProducts,
) -> None:
    row = emitter.element(emitter.parameter("b"), emitter.mul(k, emitter.parameter("b_row")))
    ahead = emitter.element(emitter.parameter("ahead"), emitter.mul(k, emitter.parameter("ahead_step")), "i8")
    for line in range(0, shape.columns, shape.line):
        prefetch(emitter, emitter.element(ahead, line), write=False, level=2)
    add(emitter, shape, row, strips, k, sums)


def _add_products(
    emitter: Emitter,
    shape: TileShape,
    row: IRValue,
    strips: list[IRValue],
    k: IRValue,
    sums: list[list[IRValue]],
    multiply: Multiply,
) -> None:
    """Add the products of a row of B with word ``k`` of each strip of A to the sums."""
    type_, nbytes = vector_type(shape.lanes, shape.word), shape.word_nbytes
    panel = [emitter.load(type_, emitter.element(row, v * shape.lanes), nbytes) for v in range(shape.vectors)]
    for strip, slots in zip(strips, sums, strict=True):
        value = emitter.splat(emitter.load(shape.word, emitter.element(strip, k)), shape.lanes)
        for vector, slot in zip(panel, slots, strict=True):
            emitter.store(multiply(emitter, value, vector, emitter.load(type_, slot)), slot)


def _output(emitter: Emitter, shape: TileShape, row: int, vector: int) -> IRValue:
    start = emitter.mul(emitter.parameter("c_row"), row)
    return emitter.element(emitter.parameter("c"), emitter.add(start, vector * shape.lanes))
