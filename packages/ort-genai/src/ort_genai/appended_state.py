"""Caches that come back longer than they went in, for graphs that do not write to the caches they are given."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, cast

import numpy as np

import ort_core
from ort_genai.decoder_states import DecoderState, RowCaches, going_on
from ort_genai.errors import GenerationFailed, raised_as
from ort_genai.paging.paged_inputs import WANTED
from ort_genai.row_inputs import RowInputs

if TYPE_CHECKING:
    from ort_genai.decoder import Decoder

Array = np.ndarray


class AppendedState(DecoderState):
    """Caches that come back longer than they went in: one run a row."""

    def __init__(self, decoder: Decoder, longest: int | None = None) -> None:
        super().__init__(decoder, longest)
        self._rows: list[list[Array]] = []

    def add_row(self) -> int:
        """Add a row that has read nothing, and return its place."""
        self.lengths.append(0)
        self.inputs.append(RowInputs())
        self._rows.append([np.zeros((1, each.heads, 0, each.size), each.dtype) for each in self._decoder.caches])
        return len(self.lengths) - 1

    def drop_row(self, row: int) -> None:
        """Take a row out; the last one stands in its place."""
        self.lengths[row], self._rows[row], self.inputs[row] = self.lengths[-1], self._rows[-1], self.inputs[-1]
        self.lengths.pop()
        self.inputs.pop()
        self._rows.pop()

    def export_row(self, row: int) -> RowCaches:
        """Return a copy of what a row has read."""
        return RowCaches(self.lengths[row], tuple(each[0].copy() for each in self._rows[row]))

    def import_row(self, caches: RowCaches) -> int:
        """Add a row that has read what another one had, and return its place."""
        row = self.add_row()
        self._rows[row] = [np.ascontiguousarray(each[None]) for each in caches.arrays]
        self.lengths[row] = caches.length
        return row

    def step(self, tokens: Array) -> Array:
        """Read one token into each row, one row after another."""
        with self.as_one():
            found = [self._read_part(row, tokens[row : row + 1], 1) for row in range(len(self.lengths))]
        self.last_logits = np.concatenate(found)
        return self.last_logits[:, -1].astype(np.float32)

    def rewind(self, row: int, length: int) -> None:
        """Forget what a row has read behind a length."""
        self.lengths[row] = min(length, self.lengths[row])
        self.inputs[row].rewind(length)
        self._rows[row] = [np.ascontiguousarray(each[:, :, :length]) for each in self._rows[row]]

    def reorder(self, rows: Array) -> None:
        """Let each row go on from what another one has read."""
        inputs = [self.inputs[row].copy() for row in rows]
        self.lengths, self._rows = [self.lengths[row] for row in rows], [self._rows[row] for row in rows]
        self.inputs = inputs

    def cache(self, name: str) -> Array | None:
        """Return the cache of the first row."""
        for place, names in enumerate(self._decoder.caches):
            if name in (names.past, names.present) and self._rows:
                return self._rows[0][place]
        return None

    def nbytes_for(self, rows: int, positions: int) -> int:
        """Return the bytes of caches of so many rows; a step holds one row's twice."""
        return (rows + 1) * self._decoder.cache_bytes(positions)

    def reserve(self, row: int, positions: int) -> None:
        """Do nothing: each run makes the room of what it gives back."""

    def _read_part(self, row: int, tokens: Array, wanted: int) -> Array:
        decoder, before, count = self._decoder, self.lengths[row], len(tokens)
        self._again = None  # it has caches
        feeds = {decoder.tokens: decoder.token_feed(1, count)}
        feeds[decoder.tokens][:] = self._fed(row, tokens[None])
        if decoder.mask is not None:
            feeds[decoder.mask] = np.ones((1, before + count), np.int64)
        if decoder.positions is not None:
            feeds[decoder.positions] = np.arange(before, before + count)[None]
        feeds.update(self.inputs[row].further)
        pasts = dict(zip([each.past for each in decoder.caches], self._rows[row], strict=True))
        if decoder.gathers:
            pasts[WANTED] = np.arange(count - wanted, count)
        fed = {**feeds, **pasts}
        names = [decoder.logits, *(each.present for each in decoder.caches), *decoder.told]
        with raised_as(GenerationFailed):
            logits, *found = cast(list[Array], decoder.session.run(names, fed, self.run_options))
        presents, others = found[: len(decoder.caches)], found[len(decoder.caches) :]
        self.last_outputs = dict(zip(decoder.told, others, strict=True))
        self._rows[row], self.lengths[row] = presents, before + count
        self.last_feeds, self.last_logits, self._has_all = feeds, logits, wanted == count
        self._again = None if self._has_all else partial(_all_logits, decoder, fed, count, self.run_options)
        return logits


def _all_logits(decoder: Decoder, fed: dict[str, Array], count: int, options: ort_core.RunOptions | None) -> Array:
    """Return logits of all tokens of the last run."""
    with raised_as(GenerationFailed):
        found = decoder.session.run([decoder.logits], {**fed, WANTED: np.arange(count)}, going_on(options))
    return np.asarray(found[0])
