"""OpenSignatures: what takes every signature of a program that has no entry of its own, as words for native code.

A program gets it when signatures keep being new: lengths that grow in each run, prompts of any length. From then on
only such runs go the ordinary way as Python has to decide something of: how threads share work of other orders of
magnitude, and whether much more memory may be taken than before.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ort_core.cpu.direct.call_layout import Entry, Open
from ort_core.cpu.direct.records import KeptWords, filled, new_words, shared_input
from ort_core.cpu.program.open_program import ArenaState, OpenProgram, open_program
from ort_core.cpu.program.program import KEPT_NBYTES
from ort_core.cpu.program.sources import input_of, numbers_of
from ort_core.plugin import Rejection, frozen
from ort_core.plugin.machine import usable_memory

if TYPE_CHECKING:
    import numpy.typing as npt

    from ort_core.cpu.program.output_memory import OutputMemory
    from ort_core.cpu.program.program import NativeProgram, ProgramPlan
    from ort_core.cpu.program.sources import Source

    Words = npt.NDArray[np.int64]

MAX_TABLES = 8  # signatures that are planned at once; each has an argument table, all share one arena
MAX_ORDERS = 64  # ways in which threads share the steps; native code tries them one after the other


@frozen
class OpenEntry:
    """A table as an entry of direct calls, and the rows of its signature."""

    words: KeptWords
    signature: Words


class OpenSignatures:
    """The tables of one program, and the words over them. Whoever changes it has the lock of the signatures.

    Args:
        opened: what is planned.
        types: of the inputs of the call.
        ranks: of these inputs.
        sources: where each input of the program comes from: an input of the call by number, or a constant.
        order: which output of the program each output of the call is.
    """

    def __init__(
        self, opened: OpenProgram, types: Sequence[np.dtype], ranks: Sequence[int],
        sources: Sequence[Source], order: Sequence[int],
    ) -> None:  # fmt: skip
        self._program, self._limit = opened.program, _memory_limit()
        self._words: Words = np.zeros(Open.COUNT, np.int64)
        self._orders: Words = np.zeros((MAX_ORDERS, 3), np.int64)
        self._kept_orders: list[tuple[Words, Words, Words]] = []
        patched = _patched(opened, sources, order)
        count = max(2, min(MAX_TABLES, KEPT_NBYTES // max(1, opened.table_nbytes)))
        entries = [_entry(opened, ranks, sources, order, patched, self._words) for _ in range(count)]
        resize = functools.partial(_resize, self._words, ArenaState(), [each.signature for each in entries])
        items = [*(each.itemsize for each in types), *(opened.dtypes[index].itemsize for index in order)]
        rows = {
            Open.ROWS: (opened.sizes.rows, Open.ROW_COUNT), Open.BASED: (opened.based, Open.BASED_COUNT),
            Open.ARENA: (opened.arena, Open.ARENA_COUNT),
            Open.SLOTS: (opened.slots, Open.SLOT_COUNT), Open.WORK: (opened.work, Open.WORK_COUNT),
            Open.TABLES: (filled([each.words.ctypes.data for each in entries]), Open.TABLE_COUNT),
        }  # fmt: skip
        lists = {
            Open.REGISTERS: opened.sizes.registers, Open.RANKS: filled(ranks), Open.ITEM_SIZES: filled(items),
            Open.SHAPES: filled([register for index in order for register in opened.shapes[index].tolist()]),
            Open.OFFSETS: np.zeros(len(opened.slots), np.int64), Open.ORDERS: self._orders,
            Open.PATCHED: filled([register for _, register, _ in patched]),
        }  # fmt: skip
        for word, (array, counted) in rows.items():
            self._words[word], self._words[counted] = array.ctypes.data, len(array)
        for word, array in lists.items():
            self._words[word] = array.ctypes.data
        self._words[Open.IS_SHARED] = opened.program.pool.num_threads > 1
        self._words[Open.RESIZE] = id(resize)
        self.words = self._words.view(KeptWords)
        self.words.kept = (opened, resize, self._kept_orders, *(array for array, _ in rows.values()), *lists.values())
        self.words.kept += (*(each.words for each in entries), *sources)

    @classmethod
    def of(
        cls, program: NativeProgram, types: Sequence[np.dtype], sources: Sequence[Source],
        order: Sequence[int],
    ) -> OpenSignatures | Rejection:  # fmt: skip
        """Return what takes any signature, or why there is none; the arguments are those of the class."""
        if not types:
            return Rejection("without inputs there is one signature")
        opened = open_program(program, sources)
        if isinstance(opened, Rejection):
            return opened
        known = zip(sources, program.record.input_types, strict=True)
        found = {source: len(shape) for source, (_, shape) in known if isinstance(source, int)}
        if len(found) != len(types):
            return Rejection("of an input no more is read than that it is a number")
        return cls(opened, types, [found[number] for number in range(len(types))], sources, order)

    @property
    def most_nbytes(self) -> int:
        """The most bytes that a run takes, as limits count them."""
        return int(self._words[Open.MOST_NBYTES])

    def allow(self, plan: ProgramPlan) -> None:
        """Let runs be planned that take no more than twice as much memory as one that went the ordinary way.

        How threads share its steps is how they share steps of about as much work each.
        """
        if 2 * plan.nbytes > self.most_nbytes:
            self._words[Open.MOST_NBYTES] = max(plan.nbytes, min(max(2 * plan.nbytes, KEPT_NBYTES), self._limit))
        count = len(self._kept_orders)
        if plan.is_alone or count == MAX_ORDERS:
            return
        work = np.array(plan.work, np.int64)
        if any(((least <= work) & (work <= most)).all() for least, most, _ in self._kept_orders):
            return
        least, most = self._program.record.order.alike(work, self._program.pool.num_threads)
        self._kept_orders.append((least, most, plan.flags))
        self._orders[count] = [each.ctypes.data for each in self._kept_orders[-1]]
        self._words[Open.ORDER_COUNT] = count + 1


def _memory_limit() -> int:
    """Return half of the memory that this process may use: runs without a limit of their own may take as much."""
    try:
        return usable_memory() // 2
    except OSError:  # the system does not tell
        return sys.maxsize


def _patched(opened: OpenProgram, sources: Sequence[Source], order: Sequence[int]) -> list[tuple[int, int, int]]:
    """Return the words of a table that point into the arrays of a call: position, register, which array."""
    inputs = [None if isinstance(source, np.ndarray) else input_of(source) for source in sources]
    arrays = [*inputs, *(None for _ in opened.dtypes)]
    first_output = len({each for each in inputs if each is not None})
    for number, index in enumerate(order):
        arrays[len(sources) + index] = first_output + number
    return [
        (position, register, array)
        for words, array in zip(opened.given, arrays, strict=True)
        if array is not None
        for position, register in words.tolist()
    ]


def _entry(
    opened: OpenProgram, ranks: Sequence[int], sources: Sequence[Source], order: Sequence[int],
    patched: Sequence[tuple[int, int, int]], run: Words,
) -> OpenEntry:  # fmt: skip
    table = opened.table(sources)
    patches = filled([word for position, _, array in patched for word in (table.start + 8 * position, 0, array)])
    signature = np.zeros(sum(ranks) + 2 * len(ranks) + len(numbers_of(sources)), np.int64)
    signature[np.cumsum([0, *(rank + 2 for rank in ranks[:-1])])] = ranks
    signature[0] = -1  # none yet
    outputs, makers, kept = _output_rows(opened, sources, order, run)
    words = new_words(Entry.COUNT)
    words[Entry.STEPS], words[Entry.STEP_COUNT] = table.steps_address, table.steps
    words[Entry.ERROR], words[Entry.TABLE] = table.error_address, table.start
    words[Entry.PATCHES], words[Entry.PATCH_COUNT] = patches.ctypes.data, len(patched)
    words[Entry.SIGNATURE], words[Entry.OUTPUTS] = signature.ctypes.data, outputs.ctypes.data
    words[Entry.MAKERS] = makers.ctypes.data
    words.kept = (table, patches, signature, outputs, makers, *kept)
    return OpenEntry(words, signature)


def _output_rows(
    opened: OpenProgram, sources: Sequence[Source], order: Sequence[int], run: Words
) -> tuple[Words, Words, list[object]]:
    """Return ``OUTPUT_WORDS`` for each output, what makes large ones, and what must live as long."""
    rows: list[int] = []
    makers: list[int] = []
    kept: list[object] = []
    in_place = opened.program.record.in_place
    for index in order:
        dtype, rank = opened.dtypes[index], len(opened.shapes[index])
        sizes = np.zeros(max(1, rank), np.int64)
        maker = functools.partial(_leased, opened.memory, sizes[:rank], dtype, run)
        rows.extend((dtype.num, id(dtype), rank, sizes.ctypes.data, 0, shared_input(in_place, sources, index), 0))
        makers.append(id(maker))
        kept.extend((dtype, sizes, maker))
    return filled(rows), filled(makers), kept


def _leased(memory: OutputMemory, sizes: Words, dtype: np.dtype, run: Words) -> np.ndarray | None:
    """Return the memory of a large output, ``None`` where there is no room."""
    shape = tuple(sizes.tolist())
    leased = int(run[Open.LEASED]) + math.prod(shape) * dtype.itemsize
    run[Open.LEASED] = leased
    return memory.lease_next(shape, dtype, leased)


def _resize(words: Words, arena: ArenaState, signatures: Sequence[Words]) -> bool | None:
    """Make the arena as large as a run needs and a quarter more; ``None`` where there is no room.

    Tables that were planned point into what there was: no signature fits them any more.
    """
    for signature in signatures:
        signature[0] = -1
    words[Open.CAPACITY] = 0
    needed = int(words[Open.NEEDED])
    start = arena.take(needed + needed // 4)
    if start is None:
        return None
    words[Open.START], words[Open.CAPACITY] = start, needed + needed // 4
    return True
