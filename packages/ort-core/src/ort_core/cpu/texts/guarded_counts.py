"""A run of a text pipeline on guarded memory: tables, characters, scratch memory and counts each by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ort_core.cpu.codegen.texts.token_counts import ARGUMENTS
from ort_core.cpu.guarded.arrays import GuardedArrays
from ort_core.cpu.threads.pool_code import STEP_WORDS

if TYPE_CHECKING:
    from ort_core.cpu.guarded.mode import GuardedMode
    from ort_core.cpu.threads.pool import ThreadPool


def guarded_counts(
    words: np.ndarray, tables: Mapping[int, np.ndarray], characters: bytes, lengths: Sequence[int],
    shape: tuple[int, int], pool: ThreadPool, mode: GuardedMode,
) -> np.ndarray | None:  # fmt: skip
    """Return the counts, float32 of ``shape``, ``None`` where a character is beyond the fold table.

    Args:
        words: the step and its argument table, without addresses of this run.
        tables: what the argument table points to, by position.
        characters: of all strings, 1 or 4 bytes each.
        lengths: characters of each string.
        shape: rows and columns of the counts.
        pool: the threads.
        mode: which side of each array lies against a page.
    """
    rows_at = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    reads: dict[int, np.ndarray] = {
        ARGUMENTS.text: np.frombuffer(characters, np.uint8),
        ARGUMENTS.rows_at: rows_at,
        **tables,
    }
    writes: dict[int, np.ndarray] = {
        ARGUMENTS.scratch: np.empty(sum(lengths), np.int32), ARGUMENTS.counts: np.empty(shape, np.float32),
        ARGUMENTS.flag: np.empty(1, np.int64),
    }  # fmt: skip
    guarded = GuardedArrays(list(reads.values()), list(writes.values()), mode)
    counts, flag = guarded.arrays[-2:]
    flag[0] = 0
    own = words.copy()
    own[1] = own.ctypes.data + 8 * STEP_WORDS
    for number, position in enumerate((*reads, *writes)):
        own[STEP_WORDS + position] = guarded.address(number)
    own[STEP_WORDS + ARGUMENTS.rows] = len(lengths)
    pool.run(int(own.ctypes.data), 1)
    guarded.check("a text pipeline")
    return None if flag[0] else counts.copy()
