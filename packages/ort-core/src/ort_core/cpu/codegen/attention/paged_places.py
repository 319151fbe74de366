"""Where packed tokens of sequences lie in caches of blocks: what is told of them is checked once for a whole model.

What leads outside sets ``error``, and is left out of what is written here: the steps behind it touch nothing that they
may not. A sequence with a fault has no tokens, and a token with one has no row.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, integer, module_text
from ort_core.cpu.codegen.nests.elementwise_nests import KERNEL_PARAMETERS, share

SEQUENCE = 3  # numbers that are written of a sequence: its first token, its tokens, its keys before them


@dataclass(frozen=True, slots=True)
class PlacesArguments:
    """The argument table: each field is the position of an i64.

    ``ends`` (sequences + 1), ``past`` (sequences) and ``table`` (sequences, width) are i32, as are ``slots`` (tokens),
    read where ``has_slots`` is not 0. ``sequences``, ``positions`` and ``rows`` are written, i64: ``SEQUENCE`` numbers
    of each sequence, the position of each token, and its row in the caches (-1: none). So is ``finished``, as many
    zeros as ``tiles`` says: how many parts of a tile are done, while threads attend.
    """

    ends: int = 0
    past: int = 1
    table: int = 2
    slots: int = 3
    error: int = 4
    sequences: int = 5
    positions: int = 6
    rows: int = 7
    count: int = 8
    tokens: int = 9
    width: int = 10
    block_rows: int = 11
    blocks: int = 12
    has_slots: int = 13
    finished: int = 14
    tiles: int = 15
    words: int = 16


ARGUMENTS = PlacesArguments()
_POINTERS = frozenset({"ends", "past", "table", "slots", "error", "sequences", "positions", "rows", "finished"})


def paged_places_text(name: str) -> str:
    """Return the module of the step kernel, of which one thread does the work."""
    e = Emitter(name, KERNEL_PARAMETERS)
    args = e.parameter("args")
    given = {
        f.name: e.argument(args, getattr(ARGUMENTS, f.name), "ptr" if f.name in _POINTERS else "i64")
        for f in fields(PlacesArguments)
        if f.name != "words"
    }
    first, last = share(e, integer(1))
    with e.when(e.compare("slt", first, last)):
        _Places(e, given).emit()
    return module_text([e])


class _Places:
    """Emits the checks, sequence by sequence."""

    def __init__(self, e: Emitter, given: dict[str, IRValue]) -> None:
        self._emitter, self._given = e, given

    def emit(self) -> None:
        """Emit what is written of all tokens, then of those whose sequence is sound."""
        e, given = self._emitter, self._given
        with e.loop(0, given["tokens"], unroll=False, hint="token") as token:
            e.store(integer(0), e.element(given["positions"], token, "i64"), 8)
            e.store(integer(-1), e.element(given["rows"], token, "i64"), 8)
        with e.loop(0, given["tiles"], unroll=False, hint="tile") as tile:
            e.store(integer(0), e.element(given["finished"], tile, "i64"), 8)
        starts = e.compare("eq", self._number("ends", integer(0)), 0)
        closes = e.compare("eq", self._number("ends", given["count"]), given["tokens"])
        is_whole = self._all(starts, closes, e.compare("sgt", given["count"], 0))
        with e.loop(0, given["count"], unroll=False, hint="sequence") as number:
            self._sequence(number, is_whole)
        with e.when(e.compare("sle", given["count"], 0)):
            self._fail()

    def _number(self, name: str, index: IRValue) -> IRValue:
        e = self._emitter
        found = e.load("i32", e.element(self._given[name], index, "i32"), 4)
        return e.assign("i64", f"sext {found.typed} to i64")

    def _all(self, first: IRValue, *others: IRValue) -> IRValue:
        for other in others:
            first = self._emitter.binary("and", first, other)
        return first

    def _fail(self) -> None:
        self._emitter.store(integer(1), self._given["error"], 8)

    def _sequence(self, number: IRValue, is_whole: IRValue) -> None:
        e, given = self._emitter, self._given
        begin, end = self._number("ends", number), self._number("ends", e.add(number, 1))
        past = self._number("past", number)
        length = e.add(past, e.sub(end, begin))
        fits = self._all(
            is_whole, e.compare("sge", begin, 0), e.compare("sle", begin, end), e.compare("sle", end, given["tokens"]),
            e.compare("sge", past, 0), e.compare("sle", length, e.mul(given["width"], given["block_rows"])),
        )  # fmt: skip
        is_sound = e.variable("i1", fits, "sound")
        row = e.element(given["table"], e.mul(number, given["width"]), "i32")
        used = e.udiv(e.add(e.select(fits, length, integer(0)), e.sub(given["block_rows"], 1)), given["block_rows"])
        with e.loop(0, used, unroll=False, hint="place") as place:
            is_block = e.compare("ult", self._block(row, place), given["blocks"])  # unsigned: -1 is huge
            e.store(e.binary("and", e.load("i1", is_sound), is_block), is_sound)
        told = e.element(given["sequences"], e.mul(number, SEQUENCE), "i64")
        sound = e.load("i1", is_sound)
        for number_of, value in enumerate((begin, e.sub(end, begin), past)):
            e.store(e.select(sound, value, integer(0)), e.element(told, number_of, "i64"), 8)
        with e.either(sound) as branch:
            with e.loop(begin, end, unroll=False, hint="token") as token:
                self._token(token, e.add(past, e.sub(token, begin)), row)
            with branch.otherwise():
                self._fail()

    def _block(self, row: IRValue, place: IRValue) -> IRValue:
        e = self._emitter
        return e.assign("i64", f"sext {e.load('i32', e.element(row, place, 'i32'), 4).typed} to i64")

    def _token(self, token: IRValue, position: IRValue, row: IRValue) -> None:
        e, given = self._emitter, self._given
        e.store(position, e.element(given["positions"], token, "i64"), 8)
        to = e.element(given["rows"], token, "i64")
        with e.either(e.compare("eq", given["has_slots"], 0)) as branch:
            block = self._block(row, e.udiv(position, given["block_rows"]))
            e.store(e.add(e.mul(block, given["block_rows"]), e.urem(position, given["block_rows"])), to, 8)
            with branch.otherwise():
                slot = self._number("slots", token)
                limit = e.mul(given["blocks"], given["block_rows"])
                fits = self._all(e.compare("sge", slot, -1), e.compare("slt", slot, limit))
                e.store(e.select(fits, slot, integer(-1)), to, 8)
                with e.when(e.binary("xor", fits, IRValue("i1", "true"))):
                    self._fail()
