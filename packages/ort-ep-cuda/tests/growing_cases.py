"""Graphs of every family with one axis of an input opened, and inputs whose axis grows from run to run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnx.parser
from emulated_gpu import EmulatedGpu
from emulated_provider import EmulatedCudaProvider
from graph_cases import CASES, GraphCase

import ort_core as ort
from ort_core.testing.environments import installed
from ort_core.testing.fake_providers import plugin_of

STEPS = 4  # the second is lowered for growth, the others take its program where it holds


@dataclass(frozen=True)
class GrowingCase:
    """A case, and the axis of its inputs that grows: of the first, and of those that are as long there."""

    case: GraphCase
    axis: int

    @property
    def name(self) -> str:
        """The case's name and the axis."""
        return f"{self.case.name}-{self.axis}"

    def model(self) -> bytes:
        """Return the model with that axis open, and all results of unknown shape."""
        opsets = f'"" : {self.case.opset}, "com.microsoft" : 1'
        model = onnx.parser.parse_model(f"<ir_version: 10, opset_import: [{opsets}]>\n{self.case.body}")
        for value in model.graph.input:
            if self._grows(self.case.feeds[value.name]):
                dim = value.type.tensor_type.shape.dim[self.axis]
                dim.Clear()
                dim.dim_param = "growing"
        for value in model.graph.output:
            for index, dim in enumerate(value.type.tensor_type.shape.dim):
                dim.Clear()
                dim.dim_param = f"{value.name}_{index}"
        return model.SerializeToString()

    def feeds(self, step: int) -> dict[str, np.ndarray]:
        """Return the case's inputs, longer by ``step`` along the axis: its first places follow again."""
        return {name: self._longer(array, step) for name, array in self.case.feeds.items()}

    def _grows(self, array: np.ndarray) -> bool:
        first = next(iter(self.case.feeds.values()))
        return array.ndim == first.ndim and array.shape[self.axis] == first.shape[self.axis]

    def _longer(self, array: np.ndarray, step: int) -> np.ndarray:
        if not self._grows(array):
            return array
        more = np.take(array, np.arange(step) % max(array.shape[self.axis], 1), axis=self.axis)
        return np.ascontiguousarray(np.concatenate([array, more], self.axis))


def growing_cases() -> Iterator[GrowingCase]:
    """Yield every case with every axis of its first input that is longer than nothing."""
    for case in CASES:
        first = next(iter(case.feeds.values()), None)
        for axis in range(0 if first is None else first.ndim):
            if first is not None and first.shape[axis]:
                yield GrowingCase(case, axis)


def sessions_of(case: GrowingCase, device: EmulatedGpu) -> tuple[ort.InferenceSession, ort.InferenceSession]:
    """Return a session on an emulated device, and one of the numpy kernels."""
    settings = ort.SessionOptions()
    settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    model = case.model()
    EmulatedCudaProvider.device = device
    with installed(plugin_of(EmulatedCudaProvider, name="emulated_cuda")):
        ours = ort.InferenceSession(model, settings, providers=[EmulatedCudaProvider.name, "CPUExecutionProvider"])
    return ours, ort.InferenceSession(model, settings, providers=["CPUExecutionProvider"])
