"""Sources: where a program's inputs come from when a call runs it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from ort_core.plugin import frozen


@frozen
class NumberSource:
    """An input of a program without elements, whose rows are a number (``partition.counted_rows``).

    ``number`` is the input of the call that holds it.
    """

    number: int


Source: TypeAlias = int | np.ndarray | NumberSource
"""The number of an input of the call; a constant; the rows that an input of the call says."""


def input_of(source: int | NumberSource) -> int:
    """Return the number of the call's input that a source reads."""
    return source if isinstance(source, int) else source.number


def numbers_of(sources: Sequence[Source]) -> list[int]:
    """Return the inputs of the call whose numbers belong to its signature, in order."""
    return sorted({source.number for source in sources if isinstance(source, NumberSource)})
