"""CUDA graphs: the work of a run as a CUDA graph, recorded in the second run of a signature and replayed from then on.

The first run of a signature lets TensorRT do what it does once; nothing of that may be within a capture.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Hashable

from ort_core.plugin import OrtError
from ort_core.plugin.devices import CapturingStream, Stream

log = logging.getLogger(__name__)
MAX_GRAPHS = 8  # of one slot; each holds the launches of an engine, some kilobytes to megabytes


class CudaGraphsState:
    """The graphs of one stream.

    Args:
        stream: where the work runs; one that cannot capture is said once, and runs go on without graphs.
    """

    def __init__(self, stream: Stream) -> None:
        self._stream = stream if isinstance(stream, CapturingStream) else None
        self._graphs: OrderedDict[Hashable, object] = OrderedDict()
        self._seen: Hashable = None
        if self._stream is None:
            log.warning("option trt_cuda_graph_enable: streams of %s cannot capture; runs go without", stream.device)

    def run(self, signature: Hashable, enqueue: Callable[[], bool]) -> bool:
        """Do some work; return whether TensorRT began it.

        Args:
            signature: shapes and addresses; equal ones mean equal work.
            enqueue: does it without a graph.
        """
        if self._stream is None:
            return enqueue()
        if signature in self._graphs:
            self._graphs.move_to_end(signature)
            self._stream.replay(self._graphs[signature])
            return True
        if signature != self._seen:
            self._seen = signature
            return enqueue()
        return self._capture(self._stream, signature, enqueue)

    def _capture(self, stream: CapturingStream, signature: Hashable, enqueue: Callable[[], bool]) -> bool:
        stream.synchronize()
        try:
            stream.begin_capture()
            try:
                is_begun = enqueue()
            finally:
                graph = stream.end_capture()
        except OrtError as error:
            log.warning("option trt_cuda_graph_enable: an engine runs without a CUDA graph: %s", error)
            self._stream = None
            return enqueue()
        if not is_begun:
            return False
        self._graphs[signature] = graph
        if len(self._graphs) > MAX_GRAPHS:
            self._graphs.popitem(last=False)
        stream.replay(graph)
        return True
