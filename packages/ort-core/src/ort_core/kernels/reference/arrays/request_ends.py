"""Where requests that are packed one behind the other begin and end."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from ort_core.errors import InvalidArgument


def request_ends(op_type: str, ends: np.ndarray, tokens: int, *, least: int = 0) -> list[int]:
    """Return the ends as integers, the first one 0.

    Args:
        op_type: for messages.
        ends: cumulative_sequence_length, one number more than there are requests.
        tokens: of all requests.
        least: tokens of a request.

    Raises:
        InvalidArgument: they do not rise from 0 to ``tokens``.
    """
    if ends.ndim != 1 or ends.size < 2:
        raise InvalidArgument(f"{op_type}: cumulative_sequence_length must be a vector of 2 numbers or more")
    found: list[int] = ends.tolist()
    if found[0] != 0 or found[-1] != tokens:
        raise InvalidArgument(
            f"{op_type}: cumulative_sequence_length must start at 0 and end at {tokens}, the number of tokens; found "
            f"{found[0]} and {found[-1]}"
        )
    if any(end - begin < least for begin, end in pairwise(found)):
        raise InvalidArgument(
            f"{op_type}: cumulative_sequence_length must rise by {least} or more from request to request; found {found}"
        )
    return found
