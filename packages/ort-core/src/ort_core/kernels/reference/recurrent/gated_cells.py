"""The LSTM cell and its walk over time, with the input and recurrent products left to the caller."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ort_core import errors
from ort_core.frozen import frozen
from ort_core.kernels.reference.arrays.named_activations import Activation
from ort_core.kernels.reference.recurrent.recurrent_activations import build_activations


@frozen
class Cell:
    """The cell of one direction: activations f, g, h; biases (4H,) for gates i, o, f, c; peepholes (3H,) i, o, f."""

    activations: tuple[Activation, Activation, Activation]
    bias: np.ndarray
    peepholes: np.ndarray | None
    clip: float | None
    input_forget: bool

    def step(self, gates: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (h, c) after one step, from the gates' products (B, 4H) and the last c (B, H)."""
        f, g, h = self.activations
        i, o, forget, cell = np.split(gates + self.bias, 4, axis=1)
        if self.peepholes is not None:
            peep_i, peep_o, peep_f = np.split(self.peepholes, 3)
            i, forget = i + peep_i * c, forget + peep_f * c
        i = f(self._clipped(i))
        forget = 1 - i if self.input_forget else f(self._clipped(forget))
        new = forget * c + i * g(self._clipped(cell))
        if self.peepholes is not None:
            o = o + peep_o * new
        return f(self._clipped(o)) * h(new), new

    def _clipped(self, x: np.ndarray) -> np.ndarray:
        return x if self.clip is None else np.clip(x, x.dtype.type(-self.clip), x.dtype.type(self.clip))


def build_cells(
    directions: int,
    hidden: int,
    bias: np.ndarray | None,
    peepholes: np.ndarray | None,
    *,
    activations: tuple[str, ...],
    alpha: tuple[float, ...],
    beta: tuple[float, ...],
    clip: float | None,
    input_forget: int,
    dtype: np.dtype,
) -> list[Cell]:
    """Return one cell per direction."""
    functions = build_activations(activations, alpha, beta, 3, directions, ("Sigmoid", "Tanh", "Tanh"))
    cells = []
    for index in range(directions):
        total = np.zeros(4 * hidden, dtype)
        if bias is not None:
            total = bias[index, : 4 * hidden] + bias[index, 4 * hidden :]
        f, g, h = functions[index]
        peep = None if peepholes is None else peepholes[index]
        cells.append(Cell((f, g, h), total, peep, clip, bool(input_forget)))
    return cells


def reverse_within(x: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Reverse (T, B, ...) along time within each sequence's length; the padding after it stays."""
    time = np.arange(x.shape[0])[:, None]
    source = np.where(time < lengths, lengths - 1 - time, time)
    return x[source, np.arange(x.shape[1])]


def walk(
    cell: Cell,
    gates_at: Callable[[int, np.ndarray], np.ndarray],
    steps: int,
    h: np.ndarray,
    c: np.ndarray,
    lengths: np.ndarray,
    after: Callable[[np.ndarray], None] | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Run a cell over time; return Y (T, B, H), zero after each sequence's end, and the last valid h and c.

    ``gates_at(t, h)`` gives the gates' products (B, 4H); ``after`` is told each new h.
    """
    outputs = np.zeros((steps, *h.shape), h.dtype)
    for t in range(steps):
        new_h, new_c = cell.step(gates_at(t, h), c)
        if after is not None:
            after(new_h)
        running = (t < lengths)[:, None]
        outputs[t] = np.where(running, new_h, 0)
        h, c = np.where(running, new_h, h), np.where(running, new_c, c)
    return outputs, h, c


def direction_count(direction: str) -> int:
    """Return how many directions the attribute means.

    Raises:
        InvalidArgument: the attribute is not forward, reverse or bidirectional.
    """
    if direction not in ("forward", "reverse", "bidirectional"):
        raise errors.InvalidArgument(f"direction {direction!r}: expected forward, reverse or bidirectional")
    return 2 if direction == "bidirectional" else 1
