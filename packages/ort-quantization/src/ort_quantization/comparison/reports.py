"""What became of a model that was quantized: sizes, operators, and how far its results lie from the float model's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import ort_core
from ort_quantization.calibration.calibration_data import Sample
from ort_quantization.comparison.float_results import float_results
from ort_quantization.layer_report import decibels
from ort_quantization.models.model_files import is_external, read_model

_RUNS = 16  # samples by which results are compared: each runs twice


@dataclass(frozen=True, slots=True)
class QuantizationReport:
    """A float model and its quantized form, side by side.

    Attributes:
        model: the float model's file.
        target: the quantized one's.
        bytes_before: of the float model, with tensors in files of their own.
        bytes_after: of the quantized one.
        operators: types with their counts before and after, those whose counts differ.
        signals: signal to noise of each float result over the samples, in decibels; empty without samples.
    """

    model: Path
    target: Path
    bytes_before: int
    bytes_after: int
    operators: list[tuple[str, int, int]]
    signals: dict[str, float]

    def facts(self) -> list[tuple[str, str]]:
        """Return names and values for people."""
        share = self.bytes_after / max(self.bytes_before, 1)
        return [
            ("written", str(self.target)),
            ("size", f"{self.bytes_after:,} bytes, {share:.0%} of the float model's {self.bytes_before:,}"),
        ]

    def to_dict(self) -> dict[str, object]:
        """Return the report as JSON has it."""
        operators = [{"type": name, "float": before, "quantized": after} for name, before, after in self.operators]
        return {
            "model": str(self.model), "target": str(self.target), "bytes_before": self.bytes_before,
            "bytes_after": self.bytes_after, "operators": operators, "signal_to_noise_db": self.signals,
        }  # fmt: skip


def report_of(
    model: Path, target: Path, samples: Sequence[Sample], providers: Sequence[str] | None
) -> QuantizationReport:
    """Return the report of a model and its quantized form."""
    before, after = (Counter(node.op_type for node in read_model(path)[0].graph.node) for path in (model, target))
    names = [*before, *(name for name in after if name not in before)]
    operators = [(name, before[name], after[name]) for name in names if before[name] != after[name]]
    signals = _signals(model, target, samples[:_RUNS], providers)
    return QuantizationReport(model, target, _bytes_of(model), _bytes_of(target), operators, signals)


def _bytes_of(path: Path) -> int:
    model, folder = read_model(path)
    places = {
        entry.value
        for tensor in model.graph.initializer
        if is_external(tensor)
        for entry in tensor.external_data
        if entry.key == "location"
    }
    return path.stat().st_size + sum((Path(folder) / place).stat().st_size for place in places)


def _signals(model: Path, target: Path, samples: Sequence[Sample], providers: Sequence[str] | None) -> dict[str, float]:
    """Return ten times the logarithm of the signal's power by the noise's, for each result of floats."""
    if not samples:
        return {}
    chosen = list(providers) if providers else None
    sessions = [ort_core.InferenceSession(str(path), providers=chosen) for path in (model, target)]
    names = float_results(sessions[0])
    if not names:  # a run without names gives all results
        return {}
    power = dict.fromkeys(names, (0.0, 0.0))
    for sample in samples:
        real, found = (session.run(names, dict(sample)) for session in sessions)
        for name, expected, given in zip(names, real, found, strict=True):
            wide = np.asarray(expected, np.float64)
            noise = np.square(wide - np.asarray(given, np.float64)).sum()
            power[name] = power[name][0] + float(np.square(wide).sum()), power[name][1] + float(noise)
    return {name: decibels(signal, noise) for name, (signal, noise) in power.items()}
