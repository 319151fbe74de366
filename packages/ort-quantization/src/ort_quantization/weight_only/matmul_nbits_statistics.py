"""What products with a constant weight tell of their other operand: the sum of products of its channels, and sizes.

For operands ``x`` (rows, K) the Hessian of the squared error of ``x @ W`` is ``2 * x.T @ x``, whatever W is. Memory is
K x K for each operand of a pass, in as many passes as a limit asks for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from ort_quantization.calibration.body_capture import Operand, OperandRuns
from ort_quantization.errors import InvalidCalibration

_PIECE = 1 << 14  # rows of an operand that are multiplied at once


@dataclass(slots=True)
class OperandState:
    """Sums over the rows of one operand.

    Attributes:
        products: float64 (K, K), the sum of outer products of rows.
        sizes: float64 (K,), the sum of absolute values.
        count: rows so far.
    """

    products: np.ndarray
    sizes: np.ndarray
    count: int = field(default=0)

    @classmethod
    def of_channels(cls, channels: int) -> OperandState:
        """Return sums over no rows."""
        return cls(np.zeros((channels, channels)), np.zeros(channels))

    def add(self, name: str, operand: np.ndarray) -> None:
        """Add the rows of an operand (…, K).

        Raises:
            InvalidCalibration: it has another number of channels, or a value that is no finite number.
        """
        channels = len(self.sizes)
        if operand.ndim < 1 or operand.shape[-1] != channels:
            raise InvalidCalibration(f"value {name!r} has shape {operand.shape}; its product needs {channels} channels")
        rows = operand.reshape(-1, channels)
        for first in range(0, len(rows), _PIECE):
            piece = rows[first : first + _PIECE].astype(np.float32)
            if not np.isfinite(piece).all():
                raise InvalidCalibration(f"value {name!r} is NaN or infinite for a sample: nothing follows from that")
            self.products += piece.T @ piece
            self.sizes += np.abs(piece).sum(axis=0, dtype=np.float64)
        self.count += len(rows)

    @property
    def hessian(self) -> np.ndarray:
        """Mean of outer products (K, K)."""
        return self.products / max(self.count, 1)

    @property
    def mean_sizes(self) -> np.ndarray:
        """Mean of absolute values (K,)."""
        return self.sizes / max(self.count, 1)


def passes(channels: Mapping[Operand, int], limit_nbytes: int) -> Iterator[dict[Operand, int]]:
    """Yield groups of operands (channels of each) whose sums fit a limit; one always fits."""
    group: dict[Operand, int] = {}
    nbytes = 0
    for operand, count in channels.items():
        needed = 8 * count * count
        if group and nbytes + needed > limit_nbytes:
            yield group
            group, nbytes = {}, 0
        group[operand] = count
        nbytes += needed
    if group:
        yield group


def operand_states(runs: OperandRuns, channels: Mapping[Operand, int]) -> dict[Operand, OperandState]:
    """Return the sums of operands over all samples; those in bodies that no sample reaches have none.

    Raises:
        InvalidCalibration: there are no samples, or values that nothing follows from.
    """
    states = {operand: OperandState.of_channels(count) for operand, count in channels.items()}
    for values in runs.values(channels):
        for operand, value in values.items():
            states[operand].add(operand[1], value)
    empty = [name for (graph, name), state in states.items() if not state.count and graph == runs.main]
    if empty:
        raise InvalidCalibration(f"no sample shows a row of {', '.join(map(repr, empty))}")
    return {operand: state for operand, state in states.items() if state.count}
