"""Whether a token gets the same numbers however many others are read in its run: the model is asked.

Which products multiply many rows as they multiply few depends on the processor and on what the model allows. Both
are in the numbers: a token is read alone, and beside others, and what comes back is compared bit for bit.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ort_genai.paging.block_pool import BLOCK_ROWS
from ort_genai.paging.paged_states import PagedState
from ort_genai.prompt_parts import FEW_ROWS

if TYPE_CHECKING:
    from ort_genai.decoder import Decoder
    from ort_genai.paging.paged_decoder import PagedDecoder

_COUNT = FEW_ROWS + 1


class EqualRows:
    """Where runs of more than few tokens give the numbers that runs of few give; asked when it is needed.

    Args:
        decoder: of the model.
        paged: the decoder over blocks.
    """

    def __init__(self, decoder: Decoder, paged: PagedDecoder) -> None:
        self._decoder, self._paged = decoder, paged

    def may_mix(self, wanted: int) -> bool:
        """Return whether a run of many tokens that gives logits of so many of them may take those of few."""
        return self.of_parts and (wanted <= FEW_ROWS or self.of_steps)

    @cached_property
    def of_parts(self) -> bool:
        """Whether a token, and a part of a prompt, get the same beside each other: logits of few tokens."""
        (alone, beside, part, apart), tokens = self._states(4), self._tokens()
        row, last = beside.step_beside(tokens[:1], part, tokens)
        is_same = row.tobytes() == alone.step(tokens[:1]).tobytes()
        return is_same and last.tobytes() == apart.read(0, tokens).tobytes()

    @cached_property
    def of_steps(self) -> bool:
        """Whether tokens of many rows get the same in one run: logits of many tokens."""
        (alone, many), tokens, found = self._states(2), self._tokens(), list[np.ndarray]()
        for token in tokens:
            found.append(alone.step(token[None])[0].copy())
            alone.rewind(0, 0)
        for _ in tokens[1:]:
            many.add_row()
        return many.step_at_once(tokens).tobytes() == np.stack(found).tobytes()

    def _states(self, count: int) -> list[PagedState]:
        """Return states of a row each, over a pool that goes with them."""
        runs = self._paged.new_runs(self._decoder, (_COUNT + 1) * self._decoder.cache_bytes(BLOCK_ROWS))
        found = [PagedState(runs) for _ in range(count)]
        for state in found:
            state.add_row()
        return found

    def _tokens(self) -> np.ndarray:
        """Return some tokens, none of which stands for a part of an image."""
        image = -1 if self._decoder.table is None else self._decoder.table.image_token
        known = [token for token in range(min(self._decoder.vocab_size, 2 * _COUNT)) if token != image]
        return np.array([known[place % len(known)] for place in range(_COUNT)], np.int64)
