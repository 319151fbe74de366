"""Precision: the error of float32 results against the same computation in float64, beside that of the oracle.

The error of a result is its largest distance from the truth, in units of the spacing of float32 at the truth's largest
magnitude. A provider may use another order of sums; it may not compute in fewer bits than the model says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

import ort_core as ort
from ort_conformance.check import Check
from ort_conformance.outcome import Finding, Outcome
from ort_conformance.subject import ORACLE, Subject
from ort_conformance.suites.model_text import seeded
from ort_conformance.suites.model_writer import ModelWriter
from ort_conformance.suites.networks import NETWORKS

SUITE = "precision"
SPACING = 2.0**-23  # of float32 near 1
SLACK = 8.0  # times the oracle's own error; other orders of summation stay below 4, bfloat16 lies near 10,000
FLOOR = 16.0  # spacings that nobody need explain; the providers of ort-core stay below 8, fewer bits start near 60


@dataclass(frozen=True, slots=True)
class Computation:
    """A model builder by element type, with its feeds."""

    name: str
    build: Callable[[str], tuple[onnx.ModelProto, Mapping[str, np.ndarray]]]


def precision_checks() -> Iterator[Check]:
    """Yield a check for each computation."""
    for computation in (*_single_operators(), *_networks()):
        yield Check(
            f"{SUITE}/{computation.name}",
            "the error is that of the model's element type",
            lambda subject, each=computation: judge_precision(subject, each),  # type: ignore[misc]  # a default binds the loop's variable
        )


def judge_precision(subject: Subject, computation: Computation) -> Finding:
    """Measure a provider's error and the oracle's, and compare them."""
    model, feeds = computation.build("float32")
    wide_model, wide_feeds = computation.build("float64")
    with ort.InferenceSession(wide_model.SerializeToString(), providers=[ORACLE]) as session:
        truth = session.run(None, wide_feeds)
    with ort.InferenceSession(model.SerializeToString(), providers=[ORACLE]) as session:
        reference = error_in_spacings(session.run(None, feeds), truth)
    with subject.session(model) as session:
        if not session.explain().on(subject.name):
            return Finding(Outcome.NOT_JUDGED, "the provider takes no node of it")
        own = error_in_spacings(session.run(None, feeds), truth)
    measures = (("error_in_spacings", own), ("error_of_the_oracle", reference))
    text = f"{own:.1f} spacings of float32, the oracle's {reference:.1f}"
    is_held = own <= max(FLOOR, SLACK * reference)
    return Finding(Outcome.HELD if is_held else Outcome.BROKEN, text, measures=measures)


def error_in_spacings(found: Sequence[object], truth: Sequence[object]) -> float:
    """Return the largest error over all float outputs; infinite where a result is not finite and the truth is."""
    worst = 0.0
    for left, right in zip(found, truth, strict=True):
        expected = np.asarray(right)
        if expected.dtype.kind != "f" or not expected.size:
            continue
        distance = np.abs(np.asarray(left).astype(np.float64) - expected)
        scale = float(np.abs(expected).max()) or 1.0
        error = float(distance.max()) / (scale * SPACING)
        worst = max(worst, error if np.isfinite(error) else np.inf)
    return worst


def _operator(
    op_type: str, *shapes: tuple[int, ...], low: float = -4.0, high: float = 4.0, axis: int | None = None
) -> Computation:
    attributes: dict[str, Any] = {} if axis is None else {"axis": axis}  # Any: passed on as keywords

    def build(dtype: str) -> tuple[onnx.ModelProto, Mapping[str, np.ndarray]]:
        writer = ModelWriter(op_type, dtype=dtype)
        feeds = {
            f"x{index}": seeded(op_type, index).uniform(low, high, shape).astype(np.float32).astype(dtype)
            for index, shape in enumerate(shapes)
        }
        value = writer.op(op_type, *(writer.input(name, array.shape) for name, array in feeds.items()), **attributes)
        return writer.model({value: "y"}), feeds

    return Computation(f"{op_type}_{'_'.join('x'.join(map(str, shape)) for shape in shapes)}", build)


def _single_operators() -> Iterator[Computation]:
    yield _operator("MatMul", (64, 512), (512, 48))
    yield _operator("MatMul", (1, 4096), (4096, 8))
    yield _operator("Conv", (1, 32, 14, 14), (16, 32, 3, 3))
    yield _operator("Softmax", (8, 1000), axis=-1)
    yield _operator("ReduceSum", (4, 20000))
    yield _operator("ReduceMean", (4, 20000), low=100.0, high=101.0)
    yield _operator("LayerNormalization", (16, 768), (768,), axis=-1)
    for op_type in ("Exp", "Tanh", "Sigmoid", "Erf", "Sin", "Cos", "Gelu", "Softplus", "Mish"):
        yield _operator(op_type, (5000,))
    for op_type in ("Log", "Sqrt", "Reciprocal"):
        yield _operator(op_type, (5000,), low=0.01, high=100.0)


def _networks() -> Iterator[Computation]:
    for name in ("perceptron", "residual_network", "mobile_network", "encoder", "segmentation_network"):
        yield Computation(name, NETWORKS[name][0])
