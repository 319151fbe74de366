"""Registers of tiles (AMX of x86): eight squares of 16 rows of 64 bytes, and products of two of them.

``multiply`` adds to a tile of 16 x 16 sums of 32 bits the product of a tile of A, 16 rows of 16 words, and a tile of B,
16 rows of 16 columns of words; a word is two bfloat16 or four bytes, neighbors along K. So B lies in memory as panels
for dot products do. Intel's Architectures Software Developer's Manual describes them (LDTILECFG, TILELOADD, TDPBF16PS).

A thread says how many rows its tiles have before it uses them, and gives them back behind that: other code may use them
with rows of its own. LLVM knows nothing of what lies in tiles whose numbers are given, so a function that uses them
calls nothing in between that could.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, integer

ROWS = 16  # of a tile, at most
LINE_NBYTES = 64  # of a row of a tile, at most
TILES = 8
FLOAT_PAIRS = "tdpbf16ps"
_PALETTE, _FIRST_NBYTES, _FIRST_ROWS = 1, 16, 48  # of the table that LDTILECFG reads, in 64 bytes
_BYTES = {(False, False): "tdpbuud", (False, True): "tdpbusd", (True, False): "tdpbsud", (True, True): "tdpbssd"}


def byte_products(a_is_signed: bool, b_is_signed: bool) -> str:
    """Return the instruction that multiplies bytes."""
    return _BYTES[a_is_signed, b_is_signed]


@contextmanager
def configured(emitter: Emitter, shapes: Sequence[tuple[IRValue | int, IRValue | int]]) -> Iterator[None]:
    """Emit the body between the instructions that give a thread tiles of these rows and bytes a row, and take them."""
    table = emitter.variable("[64 x i8]", IRValue("[64 x i8]", "zeroinitializer"), "tiles", align=64)
    emitter.store(integer(_PALETTE, "i8"), table)
    for number, (rows, nbytes) in enumerate(shapes):
        width = _narrowed(emitter, nbytes, "i16")
        emitter.store(width, emitter.element(table, _FIRST_NBYTES + 2 * number, "i8"), 2)
        emitter.store(_narrowed(emitter, rows, "i8"), emitter.element(table, _FIRST_ROWS + number, "i8"), 1)
    _call(emitter, "ldtilecfg", table)
    yield
    _call(emitter, "tilerelease")


def clear(emitter: Emitter, tile: int) -> None:
    """Set a tile to zeros."""
    _call(emitter, "tilezero", _number(tile))


def load(emitter: Emitter, tile: int, address: IRValue, step: IRValue | int) -> None:
    """Load a tile whose rows begin ``step`` bytes apart."""
    _call(emitter, "tileloadd64", _number(tile), address, _operand(step))


def store(emitter: Emitter, tile: int, address: IRValue, step: IRValue | int) -> None:
    """Store a tile, its rows ``step`` bytes apart."""
    _call(emitter, "tilestored64", _number(tile), address, _operand(step))


def multiply(emitter: Emitter, instruction: str, sums: int, a: int, b: int) -> None:
    """Add the product of tiles ``a`` and ``b`` to the tile of sums."""
    _call(emitter, instruction, _number(sums), _number(a), _number(b))


def _call(emitter: Emitter, name: str, *arguments: IRValue) -> None:
    function = f"llvm.x86.{name}"
    immediate = [f"{each.type} immarg" if each.type == "i8" else each.type for each in arguments]
    emitter.declarations[f"declare void @{function}({', '.join(immediate)})"] = None
    emitter.call_void(function, *arguments)


def _number(tile: int) -> IRValue:
    return integer(tile, "i8")


def _operand(value: IRValue | int) -> IRValue:
    return integer(value) if isinstance(value, int) else value


def _narrowed(emitter: Emitter, value: IRValue | int, type_: str) -> IRValue:
    if isinstance(value, int):
        return integer(value, type_)
    return emitter.assign(type_, f"trunc {value.typed} to {type_}")
