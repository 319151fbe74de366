"""What rows are fed beside tokens: vectors of images in the place of tokens, and further inputs of the graph."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ort_genai.errors import InvalidGeneration

Array = np.ndarray


@dataclass(slots=True)
class RowInputs:
    """Of one row; it changes as the row reads.

    Attributes:
        features: (n, hidden) vectors of images or sounds, in the order of their tokens.
        places: of the tokens that took one, in the row.
        further: inputs of the graph by name, (1, …), the same in each run.
    """

    features: Array | None = None
    places: list[int] = field(default_factory=list)
    further: dict[str, Array] = field(default_factory=dict)

    def taken(self, is_feature: Array, before: int) -> Array:
        """Return the vectors of the tokens that stand for one, and go on behind them.

        Args:
            is_feature: (n,) of tokens that are read now.
            before: tokens that the row has read.

        Raises:
            InvalidGeneration: there are fewer vectors.
        """
        places = np.flatnonzero(is_feature)
        start = len(self.places)
        count = 0 if self.features is None else len(self.features)
        if start + len(places) > count:
            raise InvalidGeneration(
                f"the prompt has {start + len(places)} tokens that stand for images or sounds, and {count} vectors of "
                "them: let the processor write the prompt (model.create_multimodal_processor())"
            )
        self.places += (places + before).tolist()
        if self.features is None:
            return np.zeros((0, 0), np.float32)
        return self.features[start : start + len(places)]

    def rewind(self, length: int) -> None:
        """Go back to so many tokens."""
        self.places = [place for place in self.places if place < length]

    def copy(self) -> RowInputs:
        """Return what another row goes on from."""
        return RowInputs(self.features, list(self.places), dict(self.further))


def stacked(rows: list[RowInputs]) -> dict[str, Array]:
    """Return the further inputs of rows together; a number without axes is the same for all."""
    first = rows[0].further if rows else {}
    return {
        name: np.concatenate([row.further[name] for row in rows]) if value.ndim else value
        for name, value in first.items()
    }
