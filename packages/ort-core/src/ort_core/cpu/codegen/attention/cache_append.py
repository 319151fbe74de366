"""Caches with a length of their own in each batch entry: past rows, then the new ones, then zeros or what was there.

Where the result is the past's own memory only the new rows are written.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from ort_core.cpu.codegen.attention.stored_rows import clear_stored, copy_stored
from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, integer, module_text
from ort_core.cpu.codegen.llvm_ir.scalar_printer import STORED
from ort_core.cpu.codegen.llvm_ir.vectors import copy_row, each_vector, store_vector, zero
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.codegen.nests.elementwise_nests import KERNEL_PARAMETERS, share
from ort_core.cpu.codegen.nests.places import unravel
from ort_core.plugin.ir import DataType


@dataclass(frozen=True, slots=True)
class AppendArguments:
    """The argument table: each field is the position of an i64. Strides count elements; the last axes are dense.

    ``lengths`` holds, for each batch entry, one less than the number of rows with the new ones (i32). ``room`` is the
    number of rows of the past, ``rows`` that of the result; a length that fits neither sets ``error``, as does a
    greatest length (``longest``, i32) that is not positive, or neither within the past nor the past with the new rows.
    """

    out: int = 0
    past: int = 1
    new: int = 2
    lengths: int = 3
    longest: int = 4
    error: int = 5
    batch: int = 6
    heads: int = 7
    rows: int = 8
    fresh: int = 9
    room: int = 10
    size: int = 11
    out_batch: int = 12
    out_head: int = 13
    out_row: int = 14
    past_batch: int = 15
    past_head: int = 16
    past_row: int = 17
    new_batch: int = 18
    new_head: int = 19
    new_row: int = 20
    count: int = 21


ARGUMENTS = AppendArguments()
_POINTERS = frozenset({"out", "past", "new", "lengths", "longest", "error"})


def cache_append_text(name: str, target: Target, stored: DataType = DataType.FLOAT, *, keeps_rest: bool = False) -> str:
    """Return the module of the step kernel; each row that is written is a task.

    With ``keeps_rest`` rows behind the new ones are those of the past, which has as many as the result.
    Of a result in the past's own memory that is the new rows alone: a step costs the same however long the past is.
    """
    e = Emitter(name, KERNEL_PARAMETERS)
    args = e.parameter("args")
    given = {
        f.name: e.argument(args, getattr(ARGUMENTS, f.name), "ptr" if f.name in _POINTERS else "i64")
        for f in fields(AppendArguments)
        if f.name != "count"
    }
    is_shared = _is_shared(e, given)
    sizes = [given["batch"], given["heads"], e.select(is_shared, given["fresh"], given["rows"])]
    first, last = share(e, e.mul(e.mul(sizes[0], sizes[1]), sizes[2]))
    with e.loop(first, last, unroll=False, hint="task") as task:
        batch, head, row = unravel(e, task, sizes)
        _Rows(e, target.lanes, stored, given, keeps_rest).emit((batch, head, row), is_shared)
    return module_text([e])


def _is_shared(e: Emitter, given: dict[str, IRValue]) -> IRValue:
    """Return whether the caller gave one buffer for the past and the result, row for row."""
    shared = e.assign("i1", f"icmp eq {given['past'].typed}, {given['out'].text}")
    for axis in ("batch", "head", "row"):
        shared = e.binary("and", shared, e.compare("eq", given[f"past_{axis}"], given[f"out_{axis}"]))
    return shared


class _Rows:
    """Emits one row of the result, of elements of a type."""

    def __init__(self, e: Emitter, lanes: int, stored: DataType, given: dict[str, IRValue], keeps_rest: bool) -> None:
        self._emitter, self._lanes, self._stored, self._given = e, lanes, stored, given
        self._keeps_rest = keeps_rest

    def emit(self, index: tuple[IRValue, IRValue, IRValue], is_shared: IRValue) -> None:
        """Emit the row at (batch, head, row); of a shared buffer the rows count from the first new one."""
        e, given = self._emitter, self._given
        batch, _, row = index
        found = e.load("i32", e.element(given["lengths"], batch, "i32"))
        length = e.add(e.assign("i64", f"sext {found.typed} to i64"), 1)
        past = e.maximum(e.sub(length, given["fresh"]), 0)
        fits = e.compare("sle", e.add(past, given["fresh"]), given["rows"])
        fits = e.binary("and", fits, e.compare("sle", past, given["room"]))
        fits = e.binary("and", fits, e.compare("sgt", length, 0))
        longest = e.assign("i64", f"sext {e.load('i32', given['longest']).typed} to i64")
        held = e.compare("sle", longest, given["room"])
        held = e.binary("or", held, e.compare("eq", longest, e.add(given["room"], given["fresh"])))
        fits = e.binary("and", fits, e.binary("and", held, e.compare("sgt", longest, 0)))
        row = e.select(is_shared, e.add(past, row), row)
        out, old = self._place("out", index, row), self._place("past", index, row)
        with e.either(fits) as branch:
            fresh = e.sub(row, past)
            is_new = e.binary("and", e.compare("sge", fresh, 0), e.compare("slt", fresh, given["fresh"]))
            with e.either(is_new) as source:
                self._copy(self._place("new", index, fresh), out)
                with source.otherwise():
                    if self._keeps_rest:
                        self._copy(old, out)
                    else:
                        self._old_row(old, out, e.compare("slt", fresh, 0))
            with branch.otherwise():
                e.store(integer(1), given["error"], 8)

    def _place(self, name: str, index: tuple[IRValue, IRValue, IRValue], at: IRValue) -> IRValue:
        e, given = self._emitter, self._given
        offset = e.add(e.mul(index[0], given[f"{name}_batch"]), e.mul(index[1], given[f"{name}_head"]))
        return e.element(given[name], e.add(offset, e.mul(at, given[f"{name}_row"])), STORED[self._stored])

    def _copy(self, source: IRValue, target: IRValue) -> None:
        size = self._given["size"]
        if self._stored is DataType.FLOAT:
            copy_row(self._emitter, self._lanes, source, target, size)
        else:
            copy_stored(self._emitter, self._lanes, self._stored, source, target, size)

    def _old_row(self, old: IRValue, out: IRValue, is_past: IRValue) -> None:
        """Emit a row of the past, or zeros behind all rows."""
        e = self._emitter
        with e.either(is_past) as branch:
            self._copy(old, out)
            with branch.otherwise():
                self._clear(out)

    def _clear(self, out: IRValue) -> None:
        e, lanes, size = self._emitter, self._lanes, self._given["size"]
        if self._stored is DataType.FLOAT:
            nothing = zero(f"<{lanes} x float>")
            each_vector(e, size, lanes, lambda j, mask: store_vector(e, nothing, e.element(out, j), mask))
        else:
            clear_stored(e, self._stored, out, size)
