"""Key/value caches of grouped-query attention: which rows are past, which are new, what stays resident."""

from __future__ import annotations

import numpy as np

from ort_core.frozen import frozen
from ort_core.kernels.kernel import RunGuard


@frozen
class CacheLayout:
    """Row counts per batch entry, each an int array (batch,).

    ``resident`` rows of the past buffer are valid and hold the positions just before ``total - fresh``; after the
    step ``kept`` rows are valid and hold the positions just before ``total``.
    """

    total: np.ndarray
    fresh: int
    resident: np.ndarray
    kept: np.ndarray

    @property
    def staged(self) -> int:
        """Rows of the staging array: the longest run of resident and new rows."""
        return int((self.resident + self.fresh).max(initial=0))

    @property
    def first_position(self) -> np.ndarray:
        """The absolute position of staged row 0, per batch entry."""
        return self.total - self.fresh - self.resident


def lay_out(total: np.ndarray, fresh: int, capacity: int, window: int = 0, *, holds_new: bool = False) -> CacheLayout:
    """Return the layout for caches that hold everything (``window`` 0) or only a window of positions.

    ``holds_new``: another layer has written the new rows into the past already.
    """
    # A prompt that is padded on the right has fewer valid rows than new rows; its past is empty.
    past = np.maximum(total - fresh, 0)
    if not window:
        return CacheLayout(past + fresh, fresh, past, past + fresh)
    kept = _resident(past + fresh, capacity, window)
    return CacheLayout(past + fresh, fresh, kept - fresh if holds_new else _resident(past, capacity, window), kept)


def _resident(total: np.ndarray, capacity: int, window: int) -> np.ndarray:
    """Rows that stay: all that fit, and after an overflow as many fewer as one compaction frees at once."""
    freed = capacity - window + 1
    over = np.maximum(total - capacity, 0)
    return total - freed * -(-over // freed)


def stage(past: np.ndarray | None, new: np.ndarray, layout: CacheLayout) -> np.ndarray:
    """Return (B, N, staged, H): each entry's resident rows, then its new rows; what follows is unspecified.

    A past that holds the new rows already, of which none are given then, is what is staged.
    """
    if past is None or past.shape[2] == 0:
        return new
    if new.shape[2] == 0:
        return past[:, :, : layout.staged]
    rows = np.arange(layout.staged)[None, :]
    from_past = rows < layout.resident[:, None]
    source = np.where(from_past, rows, past.shape[2] + rows - layout.resident[:, None])
    joined = np.concatenate([past, new], axis=2)
    return np.take_along_axis(joined, np.minimum(source, joined.shape[2] - 1)[:, None, :, None], axis=2)


def keep(
    staged: np.ndarray, layout: CacheLayout, capacity: int, past: np.ndarray | None, guard: RunGuard
) -> np.ndarray:
    """Return the present buffer (B, N, capacity, H): the kept rows from row 0 on, then zeros.

    Where the caller bound the past's memory as the present, too, what follows the kept rows is what lay there.
    """
    rows = np.arange(capacity)[None, :]
    source = (layout.resident + layout.fresh - layout.kept)[:, None] + rows
    taken = np.take_along_axis(staged, np.minimum(source, staged.shape[2] - 1)[:, None, :, None], axis=2)
    rest = np.zeros((), staged.dtype)
    if past is not None and past.shape == taken.shape and past.ctypes.data in guard.in_place:
        rest = past
    return np.where((rows < layout.kept[:, None])[:, None, :, None], taken, rest)
