"""Rotary embedding: pairs of each head's elements turned by the angle of the token's position; the rest is copied."""

from __future__ import annotations

import enum
from dataclasses import dataclass, fields

from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, integer, module_text
from ort_core.cpu.codegen.llvm_ir.vectors import copy_row, each_vector, load_vector, store_vector
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.codegen.nests.elementwise_nests import KERNEL_PARAMETERS, share
from ort_core.cpu.codegen.nests.places import unravel


class Positions(enum.Enum):
    """Where a token's row in the tables of cosines and sines comes from."""

    TOKENS = "tokens"  # tables with a row for each token of each batch entry
    IDS = "ids"  # a number for each token
    START = "start"  # the number of the first token; the others follow
    LENGTHS = "lengths"  # of each batch entry, one less than the number of tokens so far, new ones included


@dataclass(frozen=True, slots=True)
class RotaryArguments:
    """The argument table: each field is the position of an i64. Strides count elements; the last axes are dense.

    ``limit`` is the number of rows of the tables: a position outside sets ``error``. Of TOKENS, ``table_batch`` and
    ``table_row`` step through batch entries and tokens; else ``table_row`` through positions.
    """

    x: int = 0
    out: int = 1
    cos: int = 2
    sin: int = 3
    positions: int = 4
    error: int = 5
    batch: int = 6
    heads: int = 7
    length: int = 8
    pairs: int = 9
    size: int = 10
    limit: int = 11
    x_batch: int = 12
    x_head: int = 13
    x_row: int = 14
    out_batch: int = 15
    out_head: int = 16
    out_row: int = 17
    table_batch: int = 18
    table_row: int = 19
    position_batch: int = 20
    position_row: int = 21
    count: int = 22


ARGUMENTS = RotaryArguments()
_POINTERS = frozenset({"x", "out", "cos", "sin", "positions", "error"})


def rotary_text(name: str, target: Target, positions: Positions, bits: int, *, interleaved: bool) -> str:
    """Return the module of a rotation, a step kernel; ``bits`` is the size of the integers of positions."""
    return module_text([_Rotation(name, target.lanes, positions, bits, interleaved=interleaved).emit()])


class _Rotation:
    """Emits the kernel: a head of a token is a task."""

    def __init__(self, name: str, lanes: int, positions: Positions, bits: int, *, interleaved: bool) -> None:
        self.lanes, self.kind, self.bits, self.interleaved = lanes, positions, bits, interleaved
        self.emitter = Emitter(name, KERNEL_PARAMETERS)
        args = self.emitter.parameter("args")
        self.given = {
            f.name: self.emitter.argument(args, getattr(ARGUMENTS, f.name), "ptr" if f.name in _POINTERS else "i64")
            for f in fields(RotaryArguments)
            if f.name != "count"
        }

    def emit(self) -> Emitter:
        """Return the kernel."""
        e, given = self.emitter, self.given
        sizes = [given["batch"], given["length"], given["heads"]]
        first, last = share(e, e.mul(e.mul(sizes[0], sizes[1]), sizes[2]))
        with e.loop(first, last, unroll=False, hint="task") as task:
            batch, row, head = unravel(e, task, sizes)
            if self.kind is Positions.TOKENS:
                offset = e.mul(row, given["table_row"])
                self._turn(batch, head, row, e.add(e.mul(batch, given["table_batch"]), offset))
            else:
                self._turn_checked(batch, head, row)
        return e

    def _turn_checked(self, batch: IRValue, head: IRValue, row: IRValue) -> None:
        """Emit the rotation by the row of the tables that the token's position names, if there is one."""
        e, given = self.emitter, self.given
        position = self._position(batch, row)
        inside = e.compare("ult", position, given["limit"])  # unsigned: a negative one is huge
        with e.either(inside) as branch:
            self._turn(batch, head, row, e.mul(position, given["table_row"]))
            with branch.otherwise():
                e.store(integer(1), given["error"], 8)

    def _position(self, batch: IRValue, row: IRValue) -> IRValue:
        e, given = self.emitter, self.given
        at = e.add(e.mul(batch, given["position_batch"]), e.mul(row, given["position_row"]))
        found = e.load(f"i{self.bits}", e.element(given["positions"], at, f"i{self.bits}"))
        value = found if self.bits == 64 else e.assign("i64", f"sext {found.typed} to i64")
        if self.kind is Positions.IDS:
            return value
        if self.kind is Positions.LENGTHS:
            value = e.maximum(e.sub(e.add(value, 1), given["length"]), 0)
        return e.assign("i64", f"add i64 {value.text}, {row.text}")  # may wrap: the value is data

    def _turn(self, batch: IRValue, head: IRValue, row: IRValue, table: IRValue) -> None:
        """Emit the rotation of one head by the row of the tables at ``table``."""
        e, given = self.emitter, self.given
        x, out = (self._row(name, batch, head, row) for name in ("x", "out"))
        cos, sin = (e.element(given[name], table) for name in ("cos", "sin"))
        pairs = given["pairs"]
        if self.interleaved:
            with e.loop(0, pairs, unroll=False, hint="pair") as pair:
                first = e.mul(pair, 2)
                self._pair(x, out, (cos, sin), (pair, first, e.add(first, 1)), 1, None)
        else:
            each_vector(
                e, pairs, self.lanes,
                lambda j, mask: self._pair(x, out, (cos, sin), (j, j, e.add(j, pairs)), self.lanes, mask),
            )  # fmt: skip
        turned = e.mul(pairs, 2)
        copy_row(e, self.lanes, e.element(x, turned), e.element(out, turned), e.sub(given["size"], turned))

    def _row(self, name: str, batch: IRValue, head: IRValue, row: IRValue) -> IRValue:
        e, given = self.emitter, self.given
        offset = e.add(e.mul(batch, given[f"{name}_batch"]), e.mul(head, given[f"{name}_head"]))
        return e.element(given[name], e.add(offset, e.mul(row, given[f"{name}_row"])))

    def _pair(
        self, x: IRValue, out: IRValue, tables: tuple[IRValue, IRValue], places: tuple[IRValue, IRValue, IRValue],
        width: int, mask: IRValue | None,
    ) -> None:  # fmt: skip
        """Emit ``a cos - b sin`` and ``a sin + b cos`` of neighboring pairs."""
        e = self.emitter
        angle, first, second = places
        cos, sin = (load_vector(e, e.element(table, angle), width, mask) for table in tables)
        a, b = (load_vector(e, e.element(x, place), width, mask) for place in (first, second))
        turned_a = e.binary("fsub", e.binary("fmul", a, cos), e.binary("fmul", b, sin))
        turned_b = e.binary("fadd", e.binary("fmul", a, sin), e.binary("fmul", b, cos))
        store_vector(e, turned_a, e.element(out, first), mask)
        store_vector(e, turned_b, e.element(out, second), mask)
