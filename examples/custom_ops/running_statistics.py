"""An operator with state: it normalizes a stream by the mean and deviation of everything that it has seen.

    python examples/custom_ops/running_statistics.py

The state belongs to one node of one session. The kernel says that it is not reentrant, so threads that share the
session take turns at the node, and lose none of each other's counts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import ort_core as ort
from ort_core.onnx_io.save import model_to_bytes
from ort_core.testing.models import model_of


@dataclass
class StatisticsState:
    """Count, mean and sum of squared distances from the mean, of all elements so far."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0

    def add(self, batch: np.ndarray) -> None:
        """Take in a batch, by the rule of Chan, Golub and LeVeque (1983) for joining two samples."""
        if not batch.size:
            return
        mean, squares = float(batch.mean(dtype=np.float64)), float(batch.var(dtype=np.float64)) * batch.size
        total = self.count + batch.size
        distance = mean - self.mean
        self.squares += squares + distance**2 * self.count * batch.size / total
        self.mean += distance * batch.size / total
        self.count = total

    @property
    def deviation(self) -> float:
        """The standard deviation, 1 before anything was seen."""
        return (self.squares / self.count) ** 0.5 if self.count else 1.0


@ort.custom_op("com.acme", "StreamNormalization", state=StatisticsState, is_reentrant=False)
def stream_normalization(
    x: NDArray[np.float32], *, epsilon: float = 1e-5, state: StatisticsState
) -> NDArray[np.float32]:
    """Return x, shifted and scaled by the statistics that include it."""
    state.add(x)
    return ((x - state.mean) / (state.deviation + epsilon)).astype(np.float32)


stream_normalization.shape(lambda x: x)


def open_session() -> ort.InferenceSession:
    """Return a session with a state of its own."""
    text = "g (float[N] x) => (float[N] y) { y = com.acme.StreamNormalization (x) }"
    options = ort.SessionOptions()
    options.register_custom_ops_library(stream_normalization)
    return ort.InferenceSession(model_to_bytes(model_of(text, opsets='"" : 21, "com.acme" : 1')), options)


def main() -> None:
    """Normalize a stream of batches in two sessions, which know nothing of each other."""
    rng = np.random.default_rng(0)
    first, second = open_session(), open_session()
    for _ in range(5):
        (y,) = first.run(None, {"x": rng.normal(10, 2, 1000).astype(np.float32)})
        print(f"first session:  mean {y.mean():6.3f}, deviation {y.std():.3f}")
    (y,) = second.run(None, {"x": rng.normal(-4, 1, 1000).astype(np.float32)})
    print(f"second session: mean {y.mean():6.3f}, deviation {y.std():.3f}")


if __name__ == "__main__":
    main()
