"""Recurrent layers: the input's share of every step is one matrix product; then the steps follow one by one.

    RNN   H = f(X W' + H R' + b)
    GRU   z, r = f(.)   h = g(X Wh' + (r * H) Rh' + b)   H = (1 - z) * h + z * H
    LSTM  i, o, f = f(.)   c = g(.)   C = f * C + i * c   H = o * h(C)

A sequence that has ended keeps its state and outputs zeros; the reverse direction walks time backwards, so its state
stays initial until the sequence's last element.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from ort_core.errors import InvalidArgument
from ort_core.frozen import frozen
from ort_core.kernels.kernel import KernelContext, kernel
from ort_core.kernels.reference.arrays.named_activations import Activation
from ort_core.kernels.reference.arrays.widening import narrow, widen
from ort_core.kernels.reference.recurrent.recurrent_activations import build_activations

_State = tuple[np.ndarray, ...]


@frozen
class _Layer:
    """The inputs of one node, widened, time first, with directions as the leading axis where there are any."""

    x: np.ndarray  # [time, batch, input]
    w: np.ndarray  # [directions, gates * hidden, input]
    r: np.ndarray  # [directions, gates * hidden, hidden]
    b: np.ndarray | None  # [directions, 2 * gates * hidden]
    lengths: np.ndarray | None
    states: _State  # each [directions, batch, hidden]
    direction: str
    layout: int
    dtype: np.dtype

    @property
    def hidden(self) -> int:
        return int(self.r.shape[2])


# A step takes the input's share, the recurrent weights' direction and the states; it returns the new states.
_Step = Callable[[np.ndarray, _State], _State]


def _prepare(
    x: np.ndarray,
    w: np.ndarray,
    r: np.ndarray,
    b: np.ndarray | None,
    sequence_lens: np.ndarray | None,
    initial: tuple[np.ndarray | None, ...],
    direction: str,
    layout: int,
    gates: int,
) -> _Layer:
    """Check shapes and bring everything to one layout.

    Raises:
        InvalidArgument: a shape, a length or the direction does not fit.
    """
    directions = 2 if direction == "bidirectional" else 1
    if direction not in ("forward", "foward", "reverse", "bidirectional"):  # the second is a default of GRU version 1
        raise InvalidArgument(f"direction is {direction!r}, expected forward, reverse or bidirectional")
    if x.ndim != 3:
        raise InvalidArgument(f"Input X must have 3 dimensions only. Actual:{x.ndim}")
    x = x.swapaxes(0, 1) if layout else x
    steps, batch, inputs = x.shape
    hidden = r.shape[-1]
    expected = (directions, gates * hidden)
    if w.shape != (*expected, inputs) or r.shape != (*expected, hidden):
        raise InvalidArgument(
            f"Input W has shape {w.shape} and R {r.shape}, expected {(*expected, inputs)} and {(*expected, hidden)}"
        )
    if b is not None and b.shape != (directions, 2 * gates * hidden):
        raise InvalidArgument(f"Input B must have shape {(directions, 2 * gates * hidden)}. Actual:{b.shape}")
    _check_lengths(sequence_lens, batch, steps)
    wide = widen(x)
    states = []
    for state in initial:
        if state is None:
            states.append(np.zeros((directions, batch, hidden), wide.dtype))
            continue
        state = state.swapaxes(0, 1) if layout else state
        if state.shape != (directions, batch, hidden):
            raise InvalidArgument(
                f"Input initial_h must have shape {(directions, batch, hidden)}. Actual:{state.shape}"
            )
        states.append(widen(state))
    bias = None if b is None else widen(b)
    return _Layer(wide, widen(w), widen(r), bias, sequence_lens, tuple(states), direction, layout, x.dtype)


def _check_lengths(sequence_lens: np.ndarray | None, batch: int, steps: int) -> None:
    if sequence_lens is None:
        return
    if sequence_lens.shape != (batch,):
        actual = ",".join(str(d) for d in sequence_lens.shape)
        raise InvalidArgument(f"Input sequence_lens must have shape {{{batch}}}. Actual:{{{actual}}}")
    if sequence_lens.size and (sequence_lens.min() < 0 or sequence_lens.max() > steps):
        raise InvalidArgument(
            f"Invalid value/s in sequence_lens. All values must be >= 0 and <= seq_length. seq_length={steps}"
        )


def _directions(layer: _Layer) -> Iterator[tuple[int, bool]]:
    """Yield (index, whether it walks backwards) for each direction."""
    if layer.direction == "bidirectional":
        yield from ((0, False), (1, True))
    else:
        yield 0, layer.direction == "reverse"


def _walk(
    layer: _Layer, build_step: Callable[[int], tuple[np.ndarray | None, _Step]], ctx: KernelContext | None
) -> tuple[np.ndarray, ...]:
    """Run every direction through time and return Y and the final states, narrowed and in the node's layout.

    ``build_step`` gives for a direction the bias of the input's share and the step.
    """
    steps, batch, _ = layer.x.shape
    y = np.zeros((steps, len(layer.w), batch, layer.hidden), layer.x.dtype)
    finals = [np.array(state) for state in layer.states]
    for index, backwards in _directions(layer):
        bias, step = build_step(index)
        shares = np.matmul(layer.x, layer.w[index].T)
        if bias is not None:
            shares += bias
        states = tuple(state[index] for state in layer.states)
        for time in range(steps - 1, -1, -1) if backwards else range(steps):
            if ctx is not None:
                ctx.guard.check()
            new = step(shares[time], states)
            if layer.lengths is None:
                states, y[time, index] = new, new[0]
                continue
            active = (time < layer.lengths)[:, None]
            states = tuple(np.where(active, after, before) for after, before in zip(new, states, strict=True))
            y[time, index] = np.where(active, new[0], 0)
        for final, state in zip(finals, states, strict=True):
            final[index] = state
    if layer.lengths is not None:
        for final in finals:
            final[:, layer.lengths == 0] = 0  # an empty sequence has no last state: zeros, as onnxruntime gives
    return _finish(layer, y, finals)


def _finish(layer: _Layer, y: np.ndarray, finals: list[np.ndarray]) -> tuple[np.ndarray, ...]:
    if layer.layout:
        y = y.transpose(2, 0, 1, 3)
        finals = [final.swapaxes(0, 1) for final in finals]
    return tuple(narrow(value, layer.dtype) for value in (y, *finals))


def _clipped(values: np.ndarray, clip: float | None) -> np.ndarray:
    return values if clip is None or not clip >= 0 else np.clip(values, -clip, clip)


@kernel("RNN")
def rnn(
    x: np.ndarray,
    w: np.ndarray,
    r: np.ndarray,
    b: np.ndarray | None = None,
    sequence_lens: np.ndarray | None = None,
    initial_h: np.ndarray | None = None,
    *,
    activation_alpha: tuple[float, ...] = (),
    activation_beta: tuple[float, ...] = (),
    activations: tuple[str, ...] = ("Tanh", "Tanh"),
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
    output_sequence: int = 0,
    ctx: KernelContext | None = None,
) -> tuple[np.ndarray, ...]:
    """Run a simple recurrent layer. ``output_sequence`` (before 7) only says what the next node will read."""
    layer = _prepare(x, w, r, b, sequence_lens, (initial_h,), direction, layout, 1)
    functions = build_activations(activations, activation_alpha, activation_beta, 1, len(layer.w), ("Tanh",))

    def build(index: int) -> tuple[np.ndarray | None, _Step]:
        (f,) = functions[index]
        weights = layer.r[index].T
        bias = None if layer.b is None else layer.b[index].reshape(2, -1).sum(axis=0)

        def step(share: np.ndarray, states: _State) -> _State:
            return (f(_clipped(share + states[0] @ weights, clip)),)

        return bias, step

    return _walk(layer, build, ctx)


@kernel("GRU")
def gru(
    x: np.ndarray,
    w: np.ndarray,
    r: np.ndarray,
    b: np.ndarray | None = None,
    sequence_lens: np.ndarray | None = None,
    initial_h: np.ndarray | None = None,
    *,
    activation_alpha: tuple[float, ...] = (),
    activation_beta: tuple[float, ...] = (),
    activations: tuple[str, ...] = (),
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
    linear_before_reset: int = 0,
    output_sequence: int = 0,
    ctx: KernelContext | None = None,
) -> tuple[np.ndarray, ...]:
    """Run a gated recurrent layer; gates are stored in the order z, r, h."""
    layer = _prepare(x, w, r, b, sequence_lens, (initial_h,), direction, layout, 3)
    functions = build_activations(activations, activation_alpha, activation_beta, 2, len(layer.w), ("Sigmoid", "Tanh"))
    size = layer.hidden

    def build(index: int) -> tuple[np.ndarray | None, _Step]:
        gate, candidate = functions[index]
        gates_r, hidden_r = layer.r[index, : 2 * size].T, layer.r[index, 2 * size :].T
        bias, inner = None, layer.x.dtype.type(0)
        if layer.b is not None:
            input_bias, recurrent_bias = layer.b[index].reshape(2, -1)
            bias = input_bias + recurrent_bias
            if linear_before_reset:  # the candidate's recurrent bias is reset too, so it cannot join the input's
                bias[2 * size :] = input_bias[2 * size :]
                inner = recurrent_bias[2 * size :]

        def step(share: np.ndarray, states: _State) -> _State:
            (h,) = states
            both = gate(_clipped(share[:, : 2 * size] + h @ gates_r, clip))
            update, reset = both[:, :size], both[:, size:]
            recurrent = reset * (h @ hidden_r + inner) if linear_before_reset else (reset * h) @ hidden_r
            new = candidate(_clipped(share[:, 2 * size :] + recurrent, clip))
            return ((1 - update) * new + update * h,)

        return bias, step

    return _walk(layer, build, ctx)


@kernel("LSTM")
def lstm(
    x: np.ndarray,
    w: np.ndarray,
    r: np.ndarray,
    b: np.ndarray | None = None,
    sequence_lens: np.ndarray | None = None,
    initial_h: np.ndarray | None = None,
    initial_c: np.ndarray | None = None,
    p: np.ndarray | None = None,
    *,
    activation_alpha: tuple[float, ...] = (),
    activation_beta: tuple[float, ...] = (),
    activations: tuple[str, ...] = (),
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
    layout: int = 0,
    output_sequence: int = 0,
    ctx: KernelContext | None = None,
) -> tuple[np.ndarray, ...]:
    """Run a long short-term memory layer; gates are stored in the order i, o, f, c and peepholes i, o, f."""
    layer = _prepare(x, w, r, b, sequence_lens, (initial_h, initial_c), direction, layout, 4)
    functions = build_activations(
        activations, activation_alpha, activation_beta, 3, len(layer.w), ("Sigmoid", "Tanh", "Tanh")
    )
    if p is not None and p.shape != (len(layer.w), 3 * layer.hidden):
        raise InvalidArgument(f"Input P must have shape {(len(layer.w), 3 * layer.hidden)}. Actual:{p.shape}")
    peepholes = None if p is None else widen(p).reshape(len(layer.w), 3, layer.hidden)

    def build(index: int) -> tuple[np.ndarray | None, _Step]:
        bias = None if layer.b is None else layer.b[index].reshape(2, -1).sum(axis=0)
        peep = None if peepholes is None else peepholes[index]
        return bias, _lstm_step(layer.r[index].T, peep, functions[index], clip, bool(input_forget))

    return _walk(layer, build, ctx)


def _lstm_step(
    weights: np.ndarray,
    peephole: np.ndarray | None,
    functions: tuple[Activation, ...],
    clip: float | None,
    input_forget: bool,
) -> _Step:
    """Return one step of an LSTM; with ``input_forget`` the forget gate is what the input gate leaves."""
    gate, candidate, output = functions

    def step(share: np.ndarray, states: _State) -> _State:
        h, c = states
        into, out, forget, new = np.split(share + h @ weights, 4, axis=1)
        if peephole is not None:
            into, forget = into + peephole[0] * c, forget + peephole[2] * c
        into = gate(_clipped(into, clip))
        kept = 1 - into if input_forget else gate(_clipped(forget, clip))
        c = kept * c + into * candidate(_clipped(new, clip))
        if peephole is not None:
            out = out + peephole[1] * c
        return gate(_clipped(out, clip)) * output(c), c

    return step
