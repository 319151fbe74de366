"""Optimizer steps of ai.onnx.preview.training: Adagrad, Adam and Momentum on any number of tensors at once.

The variadic inputs come in groups, all tensors' values first, then all gradients, then each kind of state; outputs
are grouped alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NoReturn

import numpy as np

from ort_core.errors import InvalidArgument, NotImplemented
from ort_core.kernels.kernel import kernel
from ort_core.kernels.reference.arrays.widening import narrow, widen

_DOMAIN = "ai.onnx.preview.training"
_EPSILON = float(np.float32(1e-6))
_ADAM_ALPHA, _ADAM_BETA = float(np.float32(0.9)), float(np.float32(0.999))


def _groups(op_type: str, inputs: tuple[np.ndarray, ...], kinds: int) -> Iterator[tuple[np.ndarray, ...]]:
    """Yield (value, gradient, state...) for each optimized tensor."""
    if len(inputs) % kinds:
        raise InvalidArgument(f"{op_type}: {len(inputs)} inputs after R and T; expected a multiple of {kinds}")
    count = len(inputs) // kinds
    for index in range(count):
        group = inputs[index::count]
        if len({x.shape for x in group}) > 1:
            raise InvalidArgument(
                f"{op_type}: tensor {index} and its states differ in shape: {[x.shape for x in group]}"
            )
        yield tuple(map(widen, group))


def _scalar(op_type: str, name: str, x: np.ndarray) -> np.ndarray:
    if x.size != 1:
        raise InvalidArgument(f"{op_type}: input {name} has shape {x.shape}; expected one number")
    return widen(x).reshape(())


def _by_kind(inputs: tuple[np.ndarray, ...], results: Sequence[tuple[np.ndarray, ...]]) -> tuple[np.ndarray, ...]:
    """Return results grouped by kind rather than by tensor, in the dtypes of the tensors."""
    return tuple(
        narrow(part, value.dtype)
        for kind in zip(*results, strict=True)
        for part, value in zip(kind, inputs, strict=False)
    )


@kernel("Adagrad", domain=_DOMAIN)
@np.errstate(all="ignore")
def adagrad(
    rate: np.ndarray,
    step: np.ndarray,
    *inputs: np.ndarray,
    decay_factor: float = 0.0,
    epsilon: float = _EPSILON,
    norm_coefficient: float = 0.0,
) -> tuple[np.ndarray, ...]:
    """Return new values and accumulated squared gradients."""
    results = []
    for value, gradient, squares in _groups("Adagrad", inputs, 3):
        current = _scalar("Adagrad", "R", rate) / (1 + _scalar("Adagrad", "T", step) * decay_factor)
        regularized = norm_coefficient * value + gradient
        accumulated = squares + regularized * regularized
        results.append((value - current * regularized / (np.sqrt(accumulated) + epsilon), accumulated))
    return _by_kind(inputs, results)


@kernel("Adam", domain=_DOMAIN)
@np.errstate(all="ignore")
def adam(
    rate: np.ndarray,
    step: np.ndarray,
    *inputs: np.ndarray,
    alpha: float = _ADAM_ALPHA,
    beta: float = _ADAM_BETA,
    epsilon: float = _EPSILON,
    norm_coefficient: float = 0.0,
    norm_coefficient_post: float = 0.0,
) -> tuple[np.ndarray, ...]:
    """Return new values and the running averages of gradients and of their squares."""
    rate, step = _scalar("Adam", "R", rate), _scalar("Adam", "T", step)
    # the averages start at zero: from the first step on they are corrected for it
    adjusted = rate * np.sqrt(1 - beta**step) / (1 - alpha**step) if step > 0 else rate
    results = []
    for value, gradient, average, squares in _groups("Adam", inputs, 4):
        regularized = norm_coefficient * value + gradient
        average = alpha * average + (1 - alpha) * regularized
        squares = beta * squares + (1 - beta) * regularized * regularized
        moved = value - adjusted * average / (np.sqrt(squares) + epsilon)
        results.append(((1 - norm_coefficient_post) * moved, average, squares))
    return _by_kind(inputs, results)


@kernel("Momentum", domain=_DOMAIN)
@np.errstate(all="ignore")
def momentum(
    rate: np.ndarray,
    step: np.ndarray,
    *inputs: np.ndarray,
    alpha: float,
    beta: float,
    mode: str,
    norm_coefficient: float,
) -> tuple[np.ndarray, ...]:
    """Return new values and momenta, by the standard rule or by Nesterov's."""
    if mode not in ("standard", "nesterov"):
        raise InvalidArgument(f"Momentum: attribute mode is {mode!r}; expected 'standard' or 'nesterov'")
    rate, step = _scalar("Momentum", "R", rate), _scalar("Momentum", "T", step)
    results = []
    for value, gradient, velocity in _groups("Momentum", inputs, 3):
        regularized = norm_coefficient * value + gradient
        velocity = alpha * velocity + (beta if step > 0 else 1.0) * regularized
        direction = velocity if mode == "standard" else regularized + alpha * velocity
        results.append((value - rate * direction, velocity))
    return _by_kind(inputs, results)


@kernel("Gradient", domain=_DOMAIN)
@np.errstate(all="ignore")
def gradient_of_graph(*inputs: np.ndarray, xs: tuple[str, ...], y: str, zs: tuple[str, ...] = ()) -> NoReturn:
    """Refuse: the derivative is of the surrounding graph, which a kernel does not see."""
    raise NotImplemented(
        f"Gradient of {y!r} with respect to {list(xs)}: the operator differentiates the graph around it, and graphs "
        "are not differentiated here; export the model with its backward pass written out"
    )
