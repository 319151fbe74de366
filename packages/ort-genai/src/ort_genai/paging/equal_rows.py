"""Whether a token gets the same numbers however many others are read in its run: the model is asked.

Which products multiply many rows as they multiply few depends on the processor and on what the model allows. Both
are in the numbers: a token is read alone, and beside others, and what comes back is compared bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ort_genai.paging.paged_states import PagedRuns, PagedState
from ort_genai.prompt_parts import FEW_ROWS

if TYPE_CHECKING:
    from ort_genai.decoder import Decoder

_COUNT = FEW_ROWS + 1


@dataclass(frozen=True, slots=True)
class EqualRows:
    """Where runs of more than few tokens give the numbers that runs of few give.

    Attributes:
        of_parts: where logits are wanted of few tokens.
        of_steps: where logits are wanted of more, too.
    """

    of_parts: bool
    of_steps: bool

    def may_mix(self, wanted: int) -> bool:
        """Return whether a part of a prompt may be read in the run of a step that gives logits of so many tokens."""
        return self.of_parts and (wanted <= FEW_ROWS or self.of_steps)


def equal_rows(decoder: Decoder, runs: PagedRuns) -> EqualRows:
    """Return what is found out with a few tokens.

    Args:
        decoder: of the model.
        runs: over a pool that nobody else uses now.
    """
    image = -1 if decoder.table is None else decoder.table.image_token
    known = [token for token in range(min(decoder.vocab_size, 2 * _COUNT)) if token != image]
    tokens = np.array([known[place % len(known)] for place in range(_COUNT)], np.int64)
    alone = [_state(runs) for _ in range(_COUNT)]
    single = [state.step(tokens[place : place + 1])[0] for place, state in enumerate(alone)]
    beside, part, apart = _state(runs), _state(runs), _state(runs)
    row, last = beside.step_beside(tokens[:1], part, tokens)
    of_parts = row[0].tobytes() == single[0].tobytes() and last.tobytes() == apart.read(0, tokens).tobytes()
    many = PagedState(runs)
    for _ in range(_COUNT):
        many.add_row()
    of_steps = of_parts and many.step_at_once(tokens).tobytes() == np.stack(single).tobytes()
    for state in (*alone, beside, part, apart, many):
        while state.lengths:
            state.drop_row(len(state.lengths) - 1)
    return EqualRows(of_parts, of_steps)


def _state(runs: PagedRuns) -> PagedState:
    state = PagedState(runs)
    state.add_row()
    return state
