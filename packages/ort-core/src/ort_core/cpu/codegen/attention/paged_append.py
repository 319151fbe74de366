"""New rows of keys or values into caches of blocks; where the result is the past's own memory, these alone are written.

A cache is (rows of all blocks, heads, size) without gaps. Else each thread copies its share of the past, and then those
of the new rows that belong there.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from ort_core.cpu.codegen.attention.stored_rows import copy_stored
from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, module_text
from ort_core.cpu.codegen.llvm_ir.scalar_printer import STORED
from ort_core.cpu.codegen.llvm_ir.vectors import copy_row
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.codegen.nests.elementwise_nests import KERNEL_PARAMETERS, share
from ort_core.plugin.ir import DataType


@dataclass(frozen=True, slots=True)
class PagedAppendArguments:
    """The argument table: each field is the position of an i64.

    ``rows`` (tokens) is i64, as ``paged_places`` writes it. Of ``new`` (tokens, heads, size) the strides of the first
    two axes are given, in elements.
    """

    out: int = 0
    past: int = 1
    new: int = 2
    rows: int = 3
    tokens: int = 4
    all_rows: int = 5
    heads: int = 6
    size: int = 7
    new_token: int = 8
    new_head: int = 9
    count: int = 10


ARGUMENTS = PagedAppendArguments()
_POINTERS = frozenset({"out", "past", "new", "rows"})


def paged_append_text(name: str, target: Target, stored: DataType = DataType.FLOAT) -> str:
    """Return the module of the step kernel."""
    e = Emitter(name, KERNEL_PARAMETERS)
    args = e.parameter("args")
    given = {
        f.name: e.argument(args, getattr(ARGUMENTS, f.name), "ptr" if f.name in _POINTERS else "i64")
        for f in fields(PagedAppendArguments)
        if f.name != "count"
    }
    _PagedAppend(e, target.lanes, stored, given).emit()
    return module_text([e])


class _PagedAppend:
    """Emits the kernel, of elements of a type."""

    def __init__(self, e: Emitter, lanes: int, stored: DataType, given: dict[str, IRValue]) -> None:
        self._emitter, self._lanes, self._stored, self._given = e, lanes, stored, given
        self._width = e.mul(given["heads"], given["size"])

    def emit(self) -> None:
        """Emit shares of the new rows, or of all rows."""
        e, given = self._emitter, self._given
        is_shared = e.assign("i1", f"icmp eq {given['past'].typed}, {given['out'].text}")
        with e.either(is_shared) as branch:
            first, last = share(e, given["tokens"])
            with e.loop(first, last, unroll=False, hint="token") as token:
                row = self._row(token)
                with e.when(e.compare("sge", row, 0)):
                    self._write(token, row)
            with branch.otherwise():
                self._copied()

    def _row(self, token: IRValue) -> IRValue:
        e = self._emitter
        return e.load("i64", e.element(self._given["rows"], token, "i64"), 8)

    def _copied(self) -> None:
        e, given = self._emitter, self._given
        first, last = share(e, given["all_rows"])
        with e.loop(first, last, unroll=False, hint="row") as row:
            at = e.mul(row, self._width)
            self._copy(self._place(given["past"], at), self._place(given["out"], at), self._width)
        with e.loop(0, given["tokens"], unroll=False, hint="token") as token:
            row = self._row(token)
            mine = e.binary("and", e.compare("sge", row, first), e.compare("slt", row, last))
            with e.when(mine):
                self._write(token, row)

    def _write(self, token: IRValue, row: IRValue) -> None:
        e, given = self._emitter, self._given
        with e.loop(0, given["heads"], unroll=False, hint="head") as head:
            source = e.add(e.mul(token, given["new_token"]), e.mul(head, given["new_head"]))
            to = e.add(e.mul(row, self._width), e.mul(head, given["size"]))
            self._copy(self._place(given["new"], source), self._place(given["out"], to), given["size"])

    def _place(self, base: IRValue, at: IRValue) -> IRValue:
        return self._emitter.element(base, at, STORED[self._stored])

    def _copy(self, source: IRValue, target: IRValue, count: IRValue) -> None:
        if self._stored is DataType.FLOAT:
            copy_row(self._emitter, self._lanes, source, target, count)
        else:
            copy_stored(self._emitter, self._lanes, self._stored, source, target, count)
