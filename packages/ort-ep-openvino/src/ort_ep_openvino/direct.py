"""Direct calls: a whole model run from feeds to outputs without the session's steps. Hot path: flat on purpose.

The plain version, which it must agree with, is ``OpenVinoPartition.run``.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ort_core.plugin import DirectFunction
from ort_ep_openvino import _sdk
from ort_ep_openvino.narrowing import has_odd_size
from ort_ep_openvino.staging import Port, StagedPoolState

if TYPE_CHECKING:
    from ort_ep_openvino.narrowing import Narrowing
    from ort_ep_openvino.output_shapes import OutputShapes, Shape
    from ort_ep_openvino.requests import RequestPoolState

MAX_SIGNATURES = 64  # shapes kept; a decode loop that grows by one each step must not grow this without end


class OpenVinoDirectCallsState:
    """Runs for signatures that an ordinary run has shown. Safe from threads: a signature is one dict entry.

    Args:
        names: the feed of each input.
        input_dtypes: numpy's element type of each.
        output_dtypes: and of each output of the partition.
        order: which output of the partition each output of the model is.
        shapes: shapes of the outputs, all known.
        narrowed: what must hold of the values of integer inputs.
        requests: where requests come from.
    """

    def __init__(
        self,
        names: Sequence[str],
        input_dtypes: tuple[np.dtype, ...],
        output_dtypes: tuple[np.dtype, ...],
        order: tuple[int, ...],
        shapes: OutputShapes,
        narrowed: tuple[Narrowing, ...],
        requests: RequestPoolState,
    ) -> None:
        self._names, self._input_dtypes, self._shapes = tuple(names), input_dtypes, shapes
        self._output_dtypes, self._requests = output_dtypes, requests
        self._known: OrderedDict[tuple[Shape, ...], StagedPoolState] = OrderedDict()
        self._call = _direct_function(self._names, input_dtypes, order, narrowed, self._known)

    @property
    def call(self) -> DirectFunction:
        """The function; it knows more with every signature that is learned."""
        return self._call

    def learn(self, feeds: Mapping[str, object], *, is_limited: bool = False) -> None:
        """Take note of the shapes of feeds that an ordinary run took."""
        arrays = [feeds.get(name) for name in self._names]
        shapes = tuple(array.shape for array in arrays if isinstance(array, np.ndarray))
        if len(shapes) != len(arrays) or shapes in self._known or has_odd_size(shapes):
            return
        outputs = tuple(shape for shape in self._shapes.evaluate(shapes) if shape is not None)
        inputs = zip(shapes, self._input_dtypes, strict=True)
        made = zip(outputs, self._output_dtypes, strict=True)
        self._known[shapes] = StagedPoolState(self._requests, tuple(inputs), tuple(made), _sdk.tensor_type())
        if len(self._known) > MAX_SIGNATURES:
            self._known.popitem(last=False)


def _direct_function(
    names: tuple[str, ...],
    input_dtypes: tuple[np.dtype, ...],
    order: tuple[int, ...],
    narrowed: tuple[Narrowing, ...],
    known: Mapping[tuple[Shape, ...], StagedPoolState],
) -> DirectFunction:
    count, ndarray = len(names), np.ndarray

    def call(feeds: object, outputs: object) -> list[np.ndarray] | None:
        if type(feeds) is not dict or len(feeds) != count:
            return None
        arrays: list[np.ndarray] = []
        for name, dtype in zip(names, input_dtypes):
            array = feeds.get(name)
            if type(array) is not ndarray or (array.dtype is not dtype and array.dtype != dtype):
                return None
            flags = array.flags
            if not (flags.c_contiguous and flags.writeable):
                return None
            arrays.append(array)
        pool = known.get(tuple([array.shape for array in arrays]))
        if pool is None:
            return None
        for narrow in narrowed:
            if not narrow.holds(arrays[narrow.index]):
                return None
        given = None if outputs is None else _fitting(outputs, order, pool.outputs, arrays)
        if given is None and outputs is not None:
            return None
        results = pool.run(arrays, given)
        return results if is_ordered or results is None else [results[index] for index in order]

    is_ordered = order == tuple(range(len(order)))
    return call


def _fitting(
    outputs: object, order: Sequence[int], ports: Sequence[Port], feeds: Sequence[np.ndarray]
) -> list[np.ndarray | None] | None:
    """Return the caller's arrays by output of the partition; ``None`` when one does not fit, or overlaps a feed."""
    assert isinstance(outputs, tuple)
    found: list[np.ndarray | None] = [outputs[order.index(index)] for index in range(len(ports))]
    for array, (shape, dtype) in zip(found, ports, strict=True):
        if array is None:
            continue
        flags = array.flags
        if array.shape != shape or array.dtype != dtype or not (flags.c_contiguous and flags.writeable):
            return None
        if any(np.may_share_memory(array, feed) for feed in feeds):
            return None
    return found
