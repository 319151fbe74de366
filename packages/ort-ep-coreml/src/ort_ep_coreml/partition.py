"""CoreMlPartition: a claim as a Core ML model: what goes in and comes out, and when a run is computed elsewhere."""

from __future__ import annotations

import shutil
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from ort_core.plugin import (
    CompiledPartition,
    CompileRequest,
    EPFail,
    KernelFallbackState,
    OutputPlan,
    PartitionPlan,
    Rejection,
    RunState,
    filled,
)
from ort_core.plugin.claims import InnerSizes
from ort_core.plugin.kernels import RuntimeValue
from ort_ep_coreml import _sdk
from ort_ep_coreml.mil import MilPort, MilProgram
from ort_ep_coreml.open_sizes import OpenSizes

_BORDER = {"fp32": np.float32, "fp16": np.float16, "int32": np.int32}


class Predictor(Protocol):
    """What runs a program: Core ML, or the evaluation of its operations."""

    def predict(self, features: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """Return the outputs by name for inputs by name."""


class CoreMlPartition(CompiledPartition):
    """A partition over a predictor.

    Args:
        request: the partition.
        program: its program.
        predictor: runs it.
        sizes: the values of open sizes.
        stored: returns the package as bytes, or why there are none.
        folder: what is removed with the partition; ``None``: the package stays.
    """

    runs_at_once = 1  # coremltools says nothing of a model that is run by two threads
    plans_by_shape = False

    def __init__(
        self,
        request: CompileRequest,
        program: MilProgram,
        predictor: Predictor,
        sizes: OpenSizes,
        stored: Callable[[], bytes | Rejection],
        folder: Path | None,
    ) -> None:
        self._program, self._predictor, self._sizes = program, predictor, sizes
        self._stored = stored
        self._release = None if folder is None else weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self._fallback, self._inner = KernelFallbackState(request), InnerSizes(request.graph)
        types = {port.index: port.dtype for port in program.outputs}
        types.update({state.output: state.dtype for state in program.states})
        self._plan = PartitionPlan(tuple(OutputPlan(types[index], None) for index in sorted(types)))

    def plan(self, shapes: Sequence[tuple[int, ...] | None], known_values: Mapping[int, np.ndarray]) -> PartitionPlan:
        """Return one plan for all runs: shapes of outputs are known when they are computed."""
        return self._plan

    def run(
        self,
        plan: PartitionPlan,
        inputs: Sequence[RuntimeValue],
        outputs: list[RuntimeValue],
        run_state: RunState,
    ) -> None:
        """Run once; by numpy kernels where an input goes beyond what the program was written for.

        Raises:
            EPFail: the run failed, or an output lacks.
        """
        looked_at = (*self._program.inputs, *self._program.watched)
        reason = next((why for port in looked_at if (why := self._beyond(port, inputs[port.index]))), None)
        if reason is None and not self._inner.are_all_positive(tuple([array.shape for array in inputs])):
            reason = "a value within has no elements, and Core ML has no empty tensors"
        if reason is not None:
            self._fallback.run(reason, inputs, outputs, run_state)
            return
        features = {port.feature: entering(port, inputs[port.index]) for port in self._program.inputs}
        for state in self._program.states:
            features[state.feature] = np.ascontiguousarray(inputs[state.input], np.float16)
        try:
            found = self._predictor.predict(features)
        except _sdk.SdkError as error:
            raise EPFail(str(error)) from error
        for port in self._program.outputs:
            if port.feature not in found:
                raise EPFail(f"the model gave {sorted(found)}, expected an output {port.feature!r} among them")
            outputs[port.index] = filled(leaving(port, found[port.feature]), outputs[port.index], run_state)
        for state in self._program.states:
            left = np.asarray(found[state.feature]).astype(state.dtype.numpy)
            outputs[state.output] = filled(left, outputs[state.output], run_state)

    def _beyond(self, port: MilPort, array: np.ndarray) -> str | None:
        """Return why an input cannot be given to the program, or ``None``."""
        for size, known in zip(array.shape, port.shape, strict=True):
            choice = self._sizes.of(known) if isinstance(known, str) else None
            if choice is not None and not choice.holds(size):
                return f"size {known!r} of input {port.feature!r} is {size}, and the program is for {choice}"
        if port.limits is None or array.size == 0:
            return None
        if port.limits[0] <= array.min() and array.max() <= port.limits[1]:
            return None
        return f"input {port.feature!r} holds values outside of {list(port.limits)}"

    def serialize(self) -> bytes | Rejection:
        """Return the package as bytes, its weights included."""
        return self._stored()

    def close(self) -> None:
        """Give back the package's folder."""
        if self._release is not None:
            self._release()


def entering(port: MilPort, array: np.ndarray) -> np.ndarray:
    """Return an input as the Core ML model takes it."""
    return np.ascontiguousarray(array, _BORDER[port.mil_type]).reshape(array.shape or (1,))


def leaving(port: MilPort, array: np.ndarray) -> np.ndarray:
    """Return what the Core ML model gave as the output that ONNX means."""
    found = np.asarray(array)
    return found.reshape(()).astype(port.dtype.numpy) if port.shape == () else found.astype(port.dtype.numpy)
