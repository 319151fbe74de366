"""OpenVinoPartition: a compiled claim that reads and writes numpy's memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ort_core.plugin import (
    CompiledPartition,
    DirectCalls,
    EPFail,
    KernelFallbackState,
    PartitionPlan,
    Rejection,
    RunState,
    filled,
)
from ort_core.plugin.claims import InnerSizes
from ort_core.plugin.ir import Graph
from ort_core.plugin.kernels import RuntimeValue
from ort_ep_openvino import _sdk
from ort_ep_openvino.blob import sealed
from ort_ep_openvino.direct import OpenVinoDirectCallsState
from ort_ep_openvino.lowering.ports import Ports
from ort_ep_openvino.narrowing import has_odd_size, narrowings_of
from ort_ep_openvino.output_shapes import OutputShapes, dtype_of
from ort_ep_openvino.requests import RequestPoolState
from ort_ep_openvino.size_conditions import SizeConditions


class OpenVinoPartition(CompiledPartition):
    """A partition over an ``openvino.CompiledModel``; any number of threads may run it at once.

    Args:
        graph: the partition's graph, for its border.
        ports: how the compiled model's inputs and outputs stand to those of the graph.
        compiled: the compiled model.
        weights: arrays whose memory the compiled model may use.
        key: returns what a stored form depends on; digests of all weights are in it, so it is asked late.
        compile_anew: returns another compiled model of the same.
        conditions: what must hold of the sizes of a run.
        fallback: computes the runs for which OpenVINO would be wrong.
    """

    def __init__(
        self,
        graph: Graph,
        ports: Ports,
        compiled: Any,
        weights: Mapping[str, np.ndarray],
        key: Callable[[], str],
        compile_anew: Callable[[], Any],
        conditions: SizeConditions,
        fallback: KernelFallbackState,
    ) -> None:
        self._compiled, self._weights, self._key = compiled, weights, key
        self._graph, self._conditions, self._fallback = graph, conditions, fallback
        self._tensor = _sdk.tensor_type()
        self._shapes, self._inner = OutputShapes(graph), InnerSizes(graph)
        self._input_dtypes = tuple(dtype_of(v).numpy for v in graph.inputs)
        self._ports = ports
        self._narrow = narrowings_of(graph, ports.inputs)
        self._requests = RequestPoolState(compiled, compile_anew)
        # With open sizes a request may keep what it was bound to beyond the run, and write there in the next one
        self._shares_memory = _sdk.is_static(compiled)

    def plan(self, shapes: Sequence[tuple[int, ...] | None], known_values: Mapping[int, np.ndarray]) -> PartitionPlan:
        """Return the shapes of the outputs where they follow from those of the inputs."""
        return self._shapes.plan(shapes)

    def run(
        self,
        plan: PartitionPlan,
        inputs: Sequence[RuntimeValue],
        outputs: list[RuntimeValue],
        run_state: RunState,
    ) -> None:
        """Run once, into the buffers that were handed in or new ones.

        Raises:
            EPFail: OpenVINO failed, or an output has not the planned shape.
        """
        arrays = list(inputs)
        for narrow in self._narrow:
            if narrow.saturates:
                arrays[narrow.index] = narrow.saturated(arrays[narrow.index])
            elif not narrow.holds(arrays[narrow.index]):
                self._fallback.run(_beyond(narrow.name), inputs, outputs, run_state)
                return
        odd = next((v.name for v, a in zip(self._graph.inputs, arrays, strict=True) if has_odd_size([a.shape])), None)
        if odd is not None:
            self._fallback.run(_beyond(odd), inputs, outputs, run_state)
            return
        shapes = tuple([array.shape for array in arrays])
        if not self._inner.are_all_positive(shapes):
            self._fallback.run("a value within has no elements", inputs, outputs, run_state)
            return
        unfit = self._conditions.refusal(shapes)
        if unfit is not None:
            self._fallback.run(unfit, inputs, outputs, run_state)
            return
        for index, planned in enumerate(plan.outputs):
            if outputs[index] is None and planned.shape is not None and planned.dtype is not None:
                outputs[index] = run_state.allocate(planned.shape, planned.dtype.numpy)
        for index, source in self._ports.passed:
            outputs[index] = filled(inputs[source], outputs[index], run_state)
        fed = [arrays[index] for index in self._ports.inputs]
        requests = self._requests
        while True:
            generation = requests.generation
            request = requests.take()
            try:
                self._infer(request, fed, plan, outputs, run_state)
            except RuntimeError as error:
                requests.replace(generation)
                raise EPFail(f"OpenVINO failed in a run: {_sdk.stripped(str(error))}") from error
            if requests.generation == generation:
                requests.give_back(request)
                return

    def _infer(
        self,
        request: Any,
        arrays: Sequence[np.ndarray],
        plan: PartitionPlan,
        outputs: list[RuntimeValue],
        run_state: RunState,
    ) -> None:
        if not self._shares_memory:
            self._infer_apart(request, arrays, plan, outputs, run_state)
            return
        tensor = self._tensor
        shared = [shareable(array) for array in arrays]  # a request does not keep its arrays alive: this list does
        for index, array in enumerate(shared):
            request.set_input_tensor(index, tensor(array, shared_memory=True))
        for port, index in enumerate(self._ports.outputs):
            if self._shapes.is_known[index]:
                request.set_output_tensor(port, tensor(outputs[index], shared_memory=True))
        request.infer(share_outputs=True)
        for port, index in enumerate(self._ports.outputs):
            found, planned = request.get_output_tensor(port), plan.outputs[index]
            if planned.shape is None:
                outputs[index] = filled(found.data, outputs[index], run_state)
            elif tuple(found.shape) != planned.shape:
                raise EPFail(f"output {index} has the shape {list(found.shape)}, expected {list(planned.shape)}")

    def _infer_apart(
        self,
        request: Any,
        arrays: Sequence[np.ndarray],
        plan: PartitionPlan,
        outputs: list[RuntimeValue],
        run_state: RunState,
    ) -> None:
        """Run on memory of the request's own, copied in and out."""
        for index, array in enumerate(arrays):
            request.set_input_tensor(index, self._tensor(array.copy(order="C"), shared_memory=False))
        request.infer(share_outputs=True)
        for port, index in enumerate(self._ports.outputs):
            found, planned = request.get_output_tensor(port).data, plan.outputs[index]
            if planned.shape is not None and found.shape != planned.shape:
                raise EPFail(f"output {index} has the shape {list(found.shape)}, expected {list(planned.shape)}")
            outputs[index] = filled(found, outputs[index], run_state)

    def direct_calls(self, sources: Sequence[str | np.ndarray], order: Sequence[int]) -> DirectCalls | Rejection:
        """Offer runs without the session's steps, for models whose output shapes follow from their inputs."""
        if not self._shares_memory:
            return Rejection("a size is open: runs copy their inputs and outputs")
        if not all(self._shapes.is_known):
            return Rejection("the shape of an output is only known when it is computed")
        if self._ports.passed or self._ports.inputs != tuple(range(len(sources))):
            return Rejection("an input is handed on, or not read")
        names = [source for source in sources if isinstance(source, str)]
        if len(names) != len(sources):
            return Rejection("an input of the partition is a constant")
        return OpenVinoDirectCallsState(
            names,
            self._input_dtypes,
            tuple(dtype.numpy for dtype in self._shapes.dtypes),
            tuple(order),
            self._shapes,
            self._narrow,
            self._requests,
        )

    def serialize(self) -> bytes | Rejection:
        """Return the compiled model as OpenVINO exports it, its weights included."""
        try:
            return sealed(self._ports.sealed_with(_sdk.export_model(self._compiled)), self._key())
        except _sdk.SdkError as error:
            return Rejection(f"OpenVINO does not export this model: {error}")

    def close(self) -> None:
        """Give back requests, compiled model and weights."""
        self._requests.close()
        self._compiled, self._weights = None, {}


def _beyond(name: str) -> str:
    return f"input {name!r} holds values or sizes that OpenVINO does not compute rightly"


def shareable(array: np.ndarray) -> np.ndarray:
    """Return an array that OpenVINO can read in place: contiguous, and writable although nothing is written."""
    flags = array.flags
    return array if flags.c_contiguous and flags.writeable else array.copy(order="C")
