"""The memory of one run of a text pipeline: one block, so that one address is asked for; small ones are used again."""

from __future__ import annotations

import numpy as np

from ort_core.cpu.codegen.texts.token_counts import ARGUMENTS
from ort_core.cpu.threads.pool_code import STEP_WORDS

KEPT_NBYTES = 1 << 16  # what is kept for the next run; beyond it a copy of the counts costs more than new memory
_LINE = 64  # bytes: parts that threads write begin on cache lines of their own


class TextMemory:
    """A step, its argument table, and what it points to. Belongs to one run at a time.

    Args:
        words: the step and its argument table, without what is of this memory.
        rows: strings.
        nbytes: of their characters, 1 or 4 each.
        cells: of the result.
    """

    def __init__(self, words: np.ndarray, rows: int, nbytes: int, cells: int) -> None:
        self._rows, self._nbytes, self._cells = self._grown(rows), self._grown(nbytes), self._grown(cells)
        parts = (8 * len(words), 8, 8 * (self._rows + 1), self._nbytes, 4 * self._nbytes, 4 * self._cells)
        starts = [0]
        for part in parts:
            starts.append(-(-(starts[-1] + part) // _LINE) * _LINE)
        table, flag, rows_at, characters, scratch, counts, self.nbytes = starts
        block = np.empty(self.nbytes, np.uint8)
        self.address = int(block.ctypes.data)
        own = block[table:flag].view(np.int64)
        own[: len(words)] = words
        own[1] = self.address + 8 * STEP_WORDS
        arguments = own[STEP_WORDS:]
        arguments[ARGUMENTS.text] = self.address + characters
        arguments[ARGUMENTS.rows_at] = self.address + rows_at
        arguments[ARGUMENTS.scratch] = self.address + scratch
        arguments[ARGUMENTS.counts] = self.address + counts
        arguments[ARGUMENTS.flag] = self.address + flag
        self.rows = arguments[ARGUMENTS.rows : ARGUMENTS.rows + 1]
        self.flag = block[flag : flag + 8].view(np.int64)
        self.rows_at = block[rows_at : rows_at + 8 * (self._rows + 1)].view(np.int64)
        self.rows_at[0] = 0
        self.characters = memoryview(block)[characters : characters + self._nbytes]  # type: ignore[arg-type, unused-ignore]  # a buffer
        self.counts = block[counts : counts + 4 * self._cells].view(np.float32)

    def holds(self, rows: int, nbytes: int, cells: int) -> bool:
        """Return whether this is enough for a run."""
        return rows <= self._rows and nbytes <= self._nbytes and cells <= self._cells

    @staticmethod
    def _grown(count: int) -> int:
        """Return a size that the next runs, of a little more, fit as well."""
        return count if count > KEPT_NBYTES else 1 << count.bit_length()
