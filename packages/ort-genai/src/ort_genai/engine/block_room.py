"""Room for requests whose caches lie in blocks: who may join, and when somebody has to wait again."""

from __future__ import annotations

from collections.abc import Callable

from ort_genai.decoder_states import DecoderState, RowCaches
from ort_genai.paging.paged_states import PagedCaches, PagedRuns, PagedState, blocks_of


class BlockRoom:
    """The blocks of an engine; one thread at a time uses them.

    Args:
        runs: of the decoder, over the engine's pool.
        give_up: lets go of something that is kept, where no block is free; returns whether there was anything.
    """

    def __init__(self, runs: PagedRuns, give_up: Callable[[], bool]) -> None:
        self._runs, self.pool = runs, runs.pool
        self.pool.give_up = give_up

    def new_state(self, *, is_own: bool = False) -> PagedState:
        """Return a state without rows; one of its own has blocks that it shares with nobody."""
        return PagedState(self._runs.paged.new_runs(self._runs.decoder) if is_own else self._runs)

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
