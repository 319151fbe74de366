"""An elementwise activation: one formula, compiled like a built-in operator, and faster than numpy by far.

    python examples/custom_ops/activation.py

The formula is Mish, ``x * tanh(log(1 + e**x))``. With ``n = e**x (e**x + 2)`` that is ``x * n / (n + 2)``: one
exponential in place of three functions. It is timed beside the built-in Gelu in the same place (a session on one large
tensor, on the CPU provider), beside Gelu from its definition as a custom operator, and beside numpy.
"""

from __future__ import annotations

import functools
import math
import statistics
import time
from collections.abc import Callable, Mapping

import numpy as np

import ort_core as ort
from ort_core.onnx_io.save import model_to_bytes
from ort_core.plugin.loops import Scalar, erf, exp, minimum
from ort_core.testing.models import model_of


@ort.elementwise_op("com.acme", "Mish")
def mish(x: Scalar) -> Scalar:
    """Return ``x * n / (n + 2)``; from 20 on the quotient is 1 in float32, and its square stays finite."""
    e = exp(minimum(x, 20.0))
    n = e * (e + 2.0)
    return x * (n / (n + 2.0))


@ort.elementwise_op("com.acme", "OwnGelu")
def own_gelu(x: Scalar) -> Scalar:
    """Return Gelu as its definition has it; the built-in one has a polynomial of its own in place of erf's."""
    return (x * 0.5) * (erf(x * math.sqrt(0.5)) + 1.0)


def numpy_mish(x: np.ndarray) -> np.ndarray:
    """Return the same by the same formula in numpy."""
    e = np.exp(np.minimum(x, 20))
    n = e * (e + 2)
    return x * (n / (n + 2))


def open_session(operator: str) -> ort.InferenceSession:
    """Return a session of a model with one node."""
    text = f"g (float[N] x) => (float[N] y) {{ y = {operator} (x) }}"
    options = ort.SessionOptions()
    options.register_custom_ops_library(ort.OpLibrary("activations", [mish, own_gelu]))
    return ort.InferenceSession(model_to_bytes(model_of(text, opsets='"" : 21, "com.acme" : 1')), options)


def medians_ms(calls: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Return the median time of each call in milliseconds; they take turns, so that all see the same machine."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            times[name].append((time.perf_counter() - start) * 1e3)
    return {name: statistics.median(each) for name, each in times.items()}


def measure(elements: int = 4_000_000, rounds: int = 15) -> dict[str, float]:
    """Return medians in milliseconds of both operators, the built-in Gelu, and Mish by numpy."""
    x = np.random.default_rng(0).normal(0, 3, elements).astype(np.float32)
    names = {"Mish, custom": "com.acme.Mish", "Gelu, custom": "com.acme.OwnGelu", "Gelu, built in": "Gelu"}
    sessions = {name: open_session(operator) for name, operator in names.items()}
    calls: dict[str, Callable[[], object]] = {
        **{name: functools.partial(session.run, None, {"x": x}) for name, session in sessions.items()},
        "Mish, numpy": lambda: numpy_mish(x),
    }
    medians_ms(calls, 2)  # warm
    return medians_ms(calls, rounds)


def main() -> None:
    """Show the operator's error beside numpy in float64, and the times."""
    x = np.linspace(-20, 20, 10_001, dtype=np.float32)
    (found,) = open_session("com.acme.Mish").run(None, {"x": x})
    print(f"largest error: {np.abs(found - numpy_mish(x.astype(np.float64))).max():.2e}")
    for name, median in measure().items():
        print(f"{name:<16}{median:9.2f} ms for 4 million elements")


if __name__ == "__main__":
    main()
