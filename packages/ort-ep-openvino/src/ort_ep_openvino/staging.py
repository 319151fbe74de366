"""Staged requests: small inputs and outputs stay bound to arrays of the request's own, and are copied there and back.

To bind an array costs 4 microseconds, and after it the next run of the request looks up its memory anew (10 more);
to copy a small one costs one or two. Large arrays are shared in every run instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ort_ep_openvino import _sdk
from ort_ep_openvino.requests import RequestPoolState

STAGED_NBYTES = 16 * 1024  # 1.5 us to copy; 160 KiB take as long as binding does
Port = tuple[tuple[int, ...], np.dtype]


@dataclass(frozen=True, slots=True)
class StagedRequest:
    """A request, and for each of its ports the array that it stays bound to; ``None``: each run binds one.

    Attributes:
        request: the ``openvino.InferRequest``.
        infer: runs it.
        inputs: by input.
        outputs: by output.
        shared_outputs: those that have none.
        generation: of the compiled model that it belongs to.
    """

    request: Any  # Any: an openvino.InferRequest
    infer: Callable[[], object]
    inputs: tuple[np.ndarray | None, ...]
    outputs: tuple[np.ndarray | None, ...]
    shared_outputs: tuple[int, ...]
    generation: int


class StagedPoolState:
    """Staged requests for one signature of sizes. Safe from threads.

    Args:
        requests: where requests come from.
        inputs: shape and element type of each input.
        outputs: and of each output.
        tensor: ``openvino.Tensor``.
    """

    def __init__(
        self, requests: RequestPoolState, inputs: Sequence[Port], outputs: Sequence[Port], tensor: Callable[..., Any]
    ) -> None:
        self._requests, self._tensor = requests, tensor
        self._inputs, self.outputs = tuple(inputs), tuple(outputs)
        self._idle = requests.place_for_bound()

    def run(self, arrays: Sequence[np.ndarray], given: Sequence[np.ndarray | None] | None) -> list[np.ndarray] | None:
        """Run once, and return the outputs; ``None`` where it failed, or where a failure elsewhere makes them doubtful.

        Args:
            arrays: the inputs, contiguous and writable, of the pool's shapes and element types.
            given: arrays to write outputs to, with ``None`` for new ones; ``None``: all new.
        """
        staged = self._take()
        results: list[np.ndarray | None] = [None] * len(self.outputs) if given is None else list(given)
        try:
            self._bind(staged, arrays, results)
            staged.infer()
        except RuntimeError:  # the ordinary run meets it again, and says what it was
            return None
        if staged.generation != self._requests.generation:
            return None
        for index, own in enumerate(staged.outputs):
            if own is not None:
                target = results[index]
                if target is None:
                    results[index] = own.copy()
                else:
                    target[...] = own
        self._idle.append(staged)
        return results  # type: ignore[return-value]  # every place is filled now

    def _bind(self, staged: StagedRequest, arrays: Sequence[np.ndarray], results: list[np.ndarray | None]) -> None:
        """Copy small inputs, share large ones, and give large outputs an array to be written to."""
        for index, own in enumerate(staged.inputs):
            if own is None:
                staged.request.set_input_tensor(index, self._tensor(arrays[index], shared_memory=True))
            else:
                own[...] = arrays[index]
        for index in staged.shared_outputs:
            target = results[index]
            if target is None:
                target = results[index] = np.empty(*self.outputs[index])
            staged.request.set_output_tensor(index, self._tensor(target, shared_memory=True))

    def _take(self) -> StagedRequest:
        while True:
            try:
                found: StagedRequest = self._idle.pop()
            except IndexError:
                return self._staged()
            if found.generation == self._requests.generation:
                return found

    def _staged(self) -> StagedRequest:
        generation = self._requests.generation
        request = self._requests.take()
        inputs, outputs = (tuple(map(_own_array, ports)) for ports in (self._inputs, self.outputs))
        for index, array in enumerate(inputs):
            if array is not None:
                request.set_input_tensor(index, self._tensor(array, shared_memory=True))
        for index, array in enumerate(outputs):
            if array is not None:
                request.set_output_tensor(index, self._tensor(array, shared_memory=True))
        shared = tuple(index for index, array in enumerate(outputs) if array is None)
        return StagedRequest(request, _sdk.infer_function(request), inputs, outputs, shared, generation)


def _own_array(port: Port) -> np.ndarray | None:
    array = np.empty(*port) if np.prod(port[0], dtype=np.int64) * port[1].itemsize <= STAGED_NBYTES else None
    return array if array is None or array.size else None  # OpenVINO binds no memory of nothing
