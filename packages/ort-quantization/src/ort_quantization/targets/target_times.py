"""Times of models on the provider that will run them, in turns, and remembered by what they depend on.

Models that are compared take turns, so that what else the machine does meets all of them; of each turn the best run
counts, of the turns the median.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from onnx import ModelProto

import ort_core
from ort_core.errors import OrtError
from ort_quantization.calibration.activation_capture import Providers
from ort_quantization.calibration.calibration_data import Sample
from ort_quantization.models.model_files import write_model

_TURNS = 7
_TURN_S = 0.03  # of one model: many runs of a small one, at least one of a large one

Measure = Callable[[Mapping[str, Path], Sample], Mapping[str, float | str]]
"""Takes files by name and the inputs of a run, gives seconds of a run by name, or why there are none."""


def in_turns(providers: Providers | None) -> Measure:
    """Return what measures models on providers."""

    def measure(paths: Mapping[str, Path], sample: Sample) -> dict[str, float | str]:
        found: dict[str, float | str] = {}
        sessions = {}
        for name, path in paths.items():
            try:
                sessions[name] = ort_core.InferenceSession(str(path), providers=providers)
                sessions[name].run(None, dict(sample))
            except OrtError as error:  # no such type on this provider, say
                sessions.pop(name, None)
                found[name] = f"does not run here: {str(error).splitlines()[0]}"
        turns: dict[str, list[float]] = {name: [] for name in sessions}
        for _ in range(_TURNS):
            for name, session in sessions.items():
                turns[name].append(_best(session, sample))
        return found | {name: statistics.median(times) for name, times in turns.items()}

    return measure


def _best(session: ort_core.InferenceSession, sample: Sample) -> float:
    """Return the seconds of the fastest run of one turn."""
    best, end = float("inf"), time.perf_counter() + _TURN_S
    feeds = dict(sample)
    while best == float("inf") or time.perf_counter() < end:
        start = time.perf_counter()
        session.run(None, feeds)
        best = min(best, time.perf_counter() - start)
    return best


class Stopwatch:
    """Measures models that are not known yet, and remembers all.

    Args:
        measure: of files.
        folder: where models are written for it.
        known: earlier measurements by key; these are not made again.

    Attributes:
        measurements: seconds by key, or why there are none.
    """

    def __init__(self, measure: Measure, folder: Path, known: Mapping[str, float | str] | None = None) -> None:
        self._measure, self._folder = measure, folder
        self.measurements: dict[str, float | str] = dict(known or {})

    def times(self, models: Mapping[str, ModelProto], sample: Sample, key: str) -> dict[str, float | str]:
        """Return seconds of a run of each model, or why there are none.

        Args:
            models: by name; they take turns.
            sample: inputs of a run.
            key: what the times depend on beside the name.
        """
        keys = {name: f"{key}/{name}" for name in models}
        if any(each not in self.measurements for each in keys.values()):
            paths = {}
            for place, (name, model) in enumerate(models.items()):
                paths[name] = self._folder / f"{place}.onnx"
                copied = ModelProto()
                copied.CopyFrom(model)
                write_model(copied, "", paths[name], False)
            found = self._measure(paths, sample)
            self.measurements.update({keys[name]: each for name, each in found.items()})
            for path in paths.values():
                path.unlink()
        return {name: self.measurements[each] for name, each in keys.items()}


def shapes_of(sample: Sample) -> dict[str, tuple[int, ...]]:
    """Return the shapes of inputs."""
    return {name: np.asarray(array).shape for name, array in sample.items()}
