"""Operators that several tests use, and sessions that know them."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

import ort_core as ort
from ort_core.onnx_io.save import model_to_bytes
from ort_core.plugin.loops import Scalar, tanh
from ort_core.testing.models import model_of

T = TypeVar("T", np.float32, np.float64)
OPSETS = '"" : 21, "com.acme" : 1'
CPU, REFERENCE = "CPUExecutionProvider", "ReferenceExecutionProvider"


@ort.custom_op("com.acme", "Softcap")
def softcap(x: NDArray[T], *, cap: float = 30.0) -> NDArray[T]:
    return (cap * np.tanh(x / cap)).astype(x.dtype)


@ort.elementwise_op("com.acme", "FastSoftcap")
def fast_softcap(x: Scalar, *, cap: float = 30.0) -> Scalar:
    return tanh(x / cap) * cap


LIBRARY = ort.OpLibrary("ort-acme", [softcap, fast_softcap])


def session_of(body: str, *libraries: object, opsets: str = OPSETS, provider: str = CPU, **options: object):
    """Return a session of a model in ONNX text that is given libraries (or what a library takes)."""
    chosen = ort.SessionOptions()
    for library in libraries:
        chosen.register_custom_ops_library(library)
    for name, value in options.items():
        setattr(chosen, name, value)
    return ort.InferenceSession(model_to_bytes(model_of(body, opsets=opsets)), chosen, providers=[provider])


def softcap_model(op_type: str = "Softcap") -> str:
    return f"g (float[N] x) => (float[N] y) {{ y = com.acme.{op_type} <cap: float = 2.0> (x) }}"
