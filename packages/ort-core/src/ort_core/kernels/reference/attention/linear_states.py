"""The recurrence of LinearAttention, which ai.onnx and com.microsoft share: a state matrix that each token changes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np


def linear_states(
    state: np.ndarray, keys: np.ndarray, values: np.ndarray, retained: np.ndarray | None, rate: np.ndarray | None
) -> Iterator[np.ndarray]:
    """Yield the state behind each token: S = retained S + k (rate (v - k S)), without what is left out.

    Args:
        state: before the first token, (batch, heads, key size, value size).
        keys: (batch, heads, tokens, key size).
        values: (batch, heads, tokens, value size).
        retained: how much of the state stays, (batch, heads, tokens, key size or 1).
        rate: how much of the difference is learned, (batch, heads, tokens, 1); without it values are added as they are.
    """
    for time in range(keys.shape[2]):
        if retained is not None:
            state = state * retained[:, :, time, :, None]
        write = values[:, :, time]
        if rate is not None:
            write = rate[:, :, time] * (write - np.matmul(keys[:, :, time, None, :], state)[:, :, 0])
        state = state + keys[:, :, time, :, None] * write[:, :, None, :]
        yield state
