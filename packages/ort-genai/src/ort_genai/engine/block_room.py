"""Room for requests whose caches lie in blocks: who may join, and when somebody has to wait again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ort_genai.decoder_states import DecoderState, RowCaches
from ort_genai.engine.options import EngineOptions
from ort_genai.engine.prefix_cache import PrefixCache
from ort_genai.paging.paged_decoder import PagedDecoder
from ort_genai.paging.paged_states import PagedCaches, PagedState, blocks_of

if TYPE_CHECKING:
    from ort_genai.decoder import Decoder


class BlockRoom:
    """The blocks of an engine; its thread alone uses them.

    Args:
        decoder: of the model.
        paged: the decoder over blocks.
        limits: of bytes.
        prefixes: that are kept, and give blocks back where there are no others.
    """

    def __init__(
        self,
        decoder: Decoder,
        paged: PagedDecoder,
        limits: EngineOptions,
        prefixes: PrefixCache[RowCaches | PagedCaches],
    ) -> None:
        self._decoder, self._paged = decoder, paged
        self._runs = paged.new_runs(decoder, limits.cache_bytes, limits.prefix_bytes)
        self.pool = self._runs.pool
        self.pool.give_up = prefixes.drop_oldest

    def new_state(self, *, is_own: bool) -> PagedState:
        """Return a state without rows; one of its own has blocks that it shares with nobody."""
        return PagedState(self._paged.new_runs(self._decoder) if is_own else self._runs)

    def has_room(self, positions: int, known: RowCaches | PagedCaches | None, running: int) -> bool:
        """Return whether there are blocks for a row of so many positions, and for a further one of each that runs.

        Args:
            positions: that the row needs at once.
            known: a beginning that it shares.
            running: how many rows run.
        """
        shared = 0 if not isinstance(known, PagedCaches) else self.pool.shared(known.whole_blocks)
        return blocks_of(positions) - shared + running <= self.pool.left_for_rows

    def is_short(self, state: DecoderState, fresh: int = 1) -> bool:
        """Return whether blocks are missing for the next token of each row of a state, or the next few."""
        return isinstance(state, PagedState) and state.missing(fresh) > self.pool.left_for_rows
