"""Values of MIL's recurrent layers, step by step. Gates lie one behind the other: input, forget, output, cell."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from ort_ep_coreml.evaluation.values import Inputs, Value


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return np.asarray(1 / (1 + np.exp(-x)))


_ACTIVATIONS: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "sigmoid": _sigmoid,
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0),
    "linear": lambda x: x,
}


def _wide(inputs: Inputs, name: str, default: float = 0.0) -> np.ndarray:
    found = inputs.get(name)
    return np.asarray(default if found is None else found, np.float64)


def _steps(x: np.ndarray, is_reverse: bool) -> np.ndarray:
    return x[::-1] if is_reverse else x


def _lstm_way(inputs: Inputs, suffix: str, is_reverse: bool, h: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, ...]:
    x = _steps(_wide(inputs, "x"), is_reverse)
    w, r, b = (_wide(inputs, f"{name}{suffix}") for name in ("weight_ih", "weight_hh", "bias"))
    peepholes = np.split(_wide(inputs, f"peephole{suffix}"), 3) if inputs.get(f"peephole{suffix}") is not None else None
    recurrent, cell, activation = (
        _ACTIVATIONS[str(inputs.get(name, default))]
        for name, default in (("recurrent_activation", "sigmoid"), ("cell_activation", "tanh"), ("activation", "tanh"))
    )
    found = []
    for step in x:
        i, f, o, z = np.split(step @ w.T + h @ r.T + b, 4, axis=-1)
        if peepholes is not None:
            i, f = i + peepholes[0] * c, f + peepholes[1] * c
        c = recurrent(f) * c + recurrent(i) * cell(z)
        if peepholes is not None:
            o = o + peepholes[2] * c
        h = recurrent(o) * activation(c)
        found.append(h)
    return _steps(np.stack(found), is_reverse), h, c


def _lstm(inputs: Inputs) -> tuple[np.ndarray, ...]:
    direction, dtype = str(inputs.get("direction", "forward")), np.asarray(inputs["x"]).dtype
    h, c = _wide(inputs, "initial_h"), _wide(inputs, "initial_c")
    if direction != "bidirectional":
        ways = [_lstm_way(inputs, "", direction == "reverse", h, c)]
    else:
        forward, back = (np.split(each, 2, axis=-1) for each in (h, c))
        ways = [
            _lstm_way(inputs, "", False, forward[0], back[0]),
            _lstm_way(inputs, "_back", True, forward[1], back[1]),
        ]
    sequence, last, cell = (np.concatenate(each, axis=-1).astype(dtype) for each in zip(*ways, strict=True))
    return sequence if inputs.get("output_sequence", False) else last[np.newaxis], last, cell


def _rnn(inputs: Inputs) -> tuple[np.ndarray, ...]:
    is_reverse, dtype = str(inputs.get("direction", "forward")) == "reverse", np.asarray(inputs["x"]).dtype
    activation = _ACTIVATIONS[str(inputs.get("activation", "tanh"))]
    w, r, b = (_wide(inputs, name) for name in ("weight_ih", "weight_hh", "bias"))
    h, found = _wide(inputs, "initial_h"), []
    for step in _steps(_wide(inputs, "x"), is_reverse):
        h = activation(step @ w.T + h @ r.T + b)
        found.append(h)
    sequence = _steps(np.stack(found), is_reverse).astype(dtype)
    last = h.astype(dtype)
    return sequence if inputs.get("output_sequence", False) else last[np.newaxis], last


RECURRENT_VALUES: Mapping[str, Value] = {"lstm": _lstm, "rnn": _rnn}
"""Functions of the inputs by name, by operation."""
