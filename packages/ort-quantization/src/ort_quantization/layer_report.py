"""Where a quantized model loses: each value beside the float model's, and what weights and activations have in it.

Three models run on the same samples: the float one, the float one with the weights of the quantized one, and the
quantized one. From the first to the second only weights differ, from the second to the third only what is done to
activations: the powers of both differences are the shares of a loss. Samples run one at a time, and nothing of one is
kept but sums and counts.
"""

from __future__ import annotations

import math
from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from onnx import ModelProto, numpy_helper

from ort_quantization.calibration.activation_capture import Providers, captured
from ort_quantization.calibration.calibration_data import Sample
from ort_quantization.calibration.histograms import Histogram
from ort_quantization.comparison.dequantized_weights import dequantized_weights
from ort_quantization.comparison.layer_ranges import BINS, RangePlot, range_plot, ranges_in
from ort_quantization.comparison.layer_values import MatchedValue, matched_values
from ort_quantization.models.model_files import read_model, read_with_shapes

_TINY = float(np.finfo(np.float64).tiny)
NUMPY = ("ReferenceExecutionProvider",)
"""What runs a model with all its values as outputs soonest where few samples are asked for: nothing is compiled."""


@dataclass(frozen=True, slots=True)
class ValueLoss:
    """What a value lost.

    Attributes:
        name: in the float model.
        node: that gives it.
        op_type: of that node.
        is_result: whether it is an output of the model.
        decibels: signal to noise beside the float model.
        weight_share: 0 to 1: how much of the noise comes from weights, here and before; the rest from activations.
    """

    name: str
    node: str
    op_type: str
    is_result: bool
    decibels: float
    weight_share: float


@dataclass(frozen=True, slots=True)
class WeightLoss:
    """What a weight lost.

    Attributes:
        name: of the weight.
        node: that reads it.
        op_type: of that node.
        decibels: signal to noise of its numbers.
    """

    name: str
    node: str
    op_type: str
    decibels: float


@dataclass(frozen=True, slots=True)
class LayerReport:
    """All values and weights of a quantized model beside the float ones, in the order of the graph.

    Attributes:
        model: the float model's file.
        target: the quantized one's.
        runs: samples by which values were compared.
        values: what each value lost.
        weights: what each weight lost.
        ranges: numbers and ranges, of values and weights.
    """

    model: Path
    target: Path
    runs: int
    values: list[ValueLoss]
    weights: list[WeightLoss]
    ranges: list[RangePlot]

    def to_dict(self) -> dict[str, object]:
        """Return the report as JSON has it."""
        values = [
            {
                "name": each.name, "node": each.node, "type": each.op_type, "is_result": each.is_result,
                "signal_to_noise_db": each.decibels, "weights_share": each.weight_share,
                "activations_share": 1 - each.weight_share,
            }
            for each in self.values
        ]  # fmt: skip
        weights = [
            {"name": each.name, "node": each.node, "type": each.op_type, "signal_to_noise_db": each.decibels}
            for each in self.weights
        ]
        return {
            "model": str(self.model), "target": str(self.target), "runs": self.runs, "values": values,
            "weights": weights, "ranges": [each.to_dict() for each in self.ranges],
        }  # fmt: skip


@dataclass(slots=True)
class LossState:
    """Powers over the runs so far of a value, and of what weights and activations add to it."""

    signal: float = 0.0
    noise: float = 0.0
    by_weights: float = 0.0
    by_activations: float = 0.0
    numbers: Histogram = field(default_factory=lambda: Histogram(BINS))

    def add(self, exact: np.ndarray, middle: np.ndarray, found: np.ndarray) -> None:
        """Add a run's value: of the float model, with the quantized weights alone, and of the quantized model."""
        self.numbers.add(exact)
        wide, half, last = (each.astype(np.float64).reshape(-1) for each in (exact, middle, found))
        is_finite = np.isfinite(wide) & np.isfinite(half) & np.isfinite(last)  # masks of attention are infinite
        wide, half, last = (each[is_finite] for each in (wide, half, last))
        self.signal += float(wide @ wide)
        for name, lost in (("noise", wide - last), ("by_weights", wide - half), ("by_activations", half - last)):
            setattr(self, name, getattr(self, name) + float(lost @ lost))

    @property
    def decibels(self) -> float:
        """Signal to noise."""
        return decibels(self.signal, self.noise)

    @property
    def weight_share(self) -> float:
        """0 to 1: the share of weights."""
        whole = self.by_weights + self.by_activations
        return self.by_weights / whole if whole else 0.0


def decibels(signal: float, noise: float) -> float:
    """Return ten times the logarithm of one power by another, infinite where there is no noise."""
    return 10 * math.log10(max(signal, _TINY) / noise) if noise else math.inf


def layer_report(
    model_path: str | Path, target_path: str | Path, samples: Sequence[Sample], providers: Providers | None = None
) -> LayerReport:
    """Return what a quantized model loses, value by value and weight by weight.

    Args:
        model_path: of the float model from which the other was made; values that only one of both has are left out.
        target_path: of the quantized one: QDQ, QOperator, dynamic, weights in blocks, half floats.
        samples: inputs of runs; without them only weights are compared.
        providers: that run the models; the numpy kernels by default, which compile nothing.

    Raises:
        NoSuchFile: there is no such model.
        InvalidQuantization: a file is no model.
    """
    (model, folder), (small, small_folder) = read_with_shapes(model_path), read_model(target_path)
    middle = ModelProto()
    middle.CopyFrom(model)
    weights, ranges = _weights(model, folder, small, small_folder, middle)
    states = {}
    values = matched_values(model, small) if samples else []
    if values:
        models = ((model, folder), (middle, folder), (small, small_folder))
        states = _states(models, values, samples, providers or NUMPY)
    given = ranges_in(small, small_folder)
    numbers = {**_inputs(model, samples, given), **{name: state.numbers for name, state in states.items()}}
    plots = (range_plot(name, False, each, given[name]) for name, each in numbers.items() if name in given)
    losses = [
        ValueLoss(
            each.name, each.node, each.op_type, each.is_result, states[each.name].decibels,
            states[each.name].weight_share,
        )
        for each in values
    ]  # fmt: skip
    ranges = [*(each for each in plots if each is not None), *ranges]
    return LayerReport(Path(model_path), Path(target_path), len(samples), losses, weights, ranges)


def _weights(
    model: ModelProto, folder: str, small: ModelProto, small_folder: str, middle: ModelProto
) -> tuple[list[WeightLoss], list[RangePlot]]:
    """Compare all weights, and put the quantized ones into a copy of the float model."""
    readers = {name: node for node in model.graph.node for name in node.input}
    places = {each.name: each for each in middle.graph.initializer}
    given = ranges_in(small, small_folder)
    losses, plots = [], []
    for name, exact, found in dequantized_weights(model, folder, small, small_folder):
        wide = exact.astype(np.float64)
        signal, noise = float(np.square(wide).sum()), float(np.square(wide - found).sum())
        node = readers.get(name)
        losses.append(
            WeightLoss(name, node.name if node else "", node.op_type if node else "", decibels(signal, noise))
        )
        places[name].CopyFrom(numpy_helper.from_array(found.astype(exact.dtype), name))
        if name in given:
            numbers = Histogram(BINS)
            numbers.add(exact)
            plot = range_plot(name, True, numbers, given[name])
            plots += [plot] if plot is not None else []
    return losses, plots


def _inputs(model: ModelProto, samples: Sequence[Sample], given: Container[str]) -> dict[str, Histogram]:
    """Count the numbers of the model's inputs that have a range."""
    found = {each.name: Histogram(BINS) for each in model.graph.input if each.name in given}
    for sample in samples:
        for name in found.keys() & sample.keys():
            found[name].add(np.asarray(sample[name]))
    return found


def _states(
    models: tuple[tuple[ModelProto, str], ...], values: list[MatchedValue], samples: Sequence[Sample],
    providers: Providers,
) -> dict[str, LossState]:  # fmt: skip
    own = list(dict.fromkeys(each.name for each in values))
    other = {each.name: each.small_name for each in values}
    runs = [
        captured(model, folder, names, iter(samples), providers)
        for (model, folder), names in zip(models, (own, own, list(dict.fromkeys(other.values()))), strict=True)
    ]
    states = {name: LossState() for name in own}
    for exact, middle, found in zip(*runs, strict=True):
        for name, state in states.items():
            state.add(exact[name], middle[name], found[other[name]])
    return states
