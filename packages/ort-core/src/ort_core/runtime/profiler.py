"""Profiler: what ran when, written as a Chrome trace (chrome://tracing, Perfetto) with onnxruntime's names.

A trace is a JSON array of complete events. Times are microseconds since the profiler was made.
"""

from __future__ import annotations

import datetime
import json
import os
import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ort_core.errors import Fail
from ort_core.forks import new_lock
from ort_core.tensors.ort_value import RuntimeValue, type_of
from ort_core.tensors.sparse import SparseArray

if TYPE_CHECKING:
    from ort_core.ir.nodes import Node
    from ort_core.kernels.region_work import RegionWork

SESSION, NODE = "Session", "Node"
MAX_EVENTS = 1_000_000  # as onnxruntime: a trace that is never ended must not fill the memory


class Profiler:
    """Collects events from any number of threads until ``finish`` writes them; later ones are dropped.

    Args:
        prefix: start of the file's path; the local time is appended.
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._events: list[dict[str, object]] = []
        self._lock = new_lock()
        self._index: dict[int, tuple[object, int]] = {}  # node ids with the node itself, so that no id is used twice
        self._path = ""
        self.start_ns = time.perf_counter_ns()
        self.start_wall_ns = time.time_ns()
        self.providers: Mapping[str, str] = {}
        self.default_provider = ""

    def record(
        self,
        category: str,
        name: str,
        start_ns: int,
        end_ns: int | None = None,
        arguments: Mapping[str, object] | None = None,
    ) -> None:
        """Add one event; times are those of ``time.perf_counter_ns``, the end is now when it is not given."""
        finished = time.perf_counter_ns() if end_ns is None else end_ns
        event = {
            "cat": category,
            "pid": os.getpid(),
            "tid": threading.get_native_id(),
            "dur": max(0, (finished - start_ns) // 1000),
            "ts": max(0, (start_ns - self.start_ns) // 1000),
            "ph": "X",
            "name": name,
            "args": dict(arguments or {}),
        }
        with self._lock:
            if not self._path and len(self._events) < MAX_EVENTS:
                self._events.append(event)

    def observe(
        self,
        node: Node,
        start_ns: int,
        inputs: Sequence[RuntimeValue],
        outputs: Sequence[RuntimeValue],
        work: RegionWork | None = None,
        /,
    ) -> None:
        """Add the event of one node that has just run; an ``Observer`` of the evaluator."""
        end_ns = time.perf_counter_ns()
        index = self._index_of(node)
        constant = [v is not None and v.constant is not None for v in node.inputs]
        sizes = [_nbytes(value) for value in inputs]
        self.record(
            NODE,
            f"{node.name or f'{node.op_type}_{index}'}_kernel_time",
            start_ns,
            end_ns,
            {
                "op_name": node.op_type,
                "provider": self.providers.get(node.name, self.default_provider),
                "node_index": str(index),
                "input_type_shape": _types_and_shapes(inputs),
                "output_type_shape": _types_and_shapes(outputs),
                "parameter_size": str(sum(size for size, fixed in zip(sizes, constant) if fixed)),
                "activation_size": str(sum(size for size, fixed in zip(sizes, constant) if not fixed)),
                "output_size": str(sum(map(_nbytes, outputs))),
                "thread_scheduling_stats": {
                    "main_thread": {
                        "thread_pool_name": "",
                        "thread_id": str(threading.get_ident()),
                        "block_size": [],
                        "core": -1,
                    },
                    "sub_threads": {},
                },
                "duration_ns": end_ns - start_ns,
                **_lengths_field(outputs),
                **({} if work is None else _work_fields(work)),
            },
        )

    def finish(self) -> str:
        """Write the file at the first call and return its path, at every further call as well.

        Raises:
            Fail: the file cannot be written.
        """
        from pathlib import Path  # here and below: only programs that profile write a trace

        from ort_core.whole_files import replace_text

        with self._lock:
            if not self._path:
                now = datetime.datetime.now()
                path = f"{self._prefix}_{now:%Y-%m-%d_%H-%M-%S}_{now.microsecond // 1000:03d}.json"
                try:
                    replace_text(Path(path), self._text())
                except OSError as error:
                    raise Fail(
                        f"cannot write the profile to {path!r} (SessionOptions.profile_file_prefix): {error}"
                    ) from error
                self._path = path
                self._events.clear()
            return self._path

    def _text(self) -> str:
        return "[\n" + ",\n".join(json.dumps(event) for event in self._events) + "\n]\n"

    def _index_of(self, node: Node) -> int:
        with self._lock:
            return self._index.setdefault(id(node), (node, len(self._index)))[1]


def _nbytes(value: RuntimeValue) -> int:
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, SparseArray):
        return value.values.nbytes + value.indices.nbytes
    return sum(map(_nbytes, value)) if isinstance(value, list) else 0


def _types_and_shapes(values: Sequence[RuntimeValue]) -> list[dict[str, list[int]]]:
    shown = []
    for value in values:
        if isinstance(value, np.ndarray):
            shown.append({type_of(value).dtype.text: list(value.shape)})  # type: ignore[union-attr]  # an array's type is a tensor's
    return shown


def _lengths_field(outputs: Sequence[RuntimeValue]) -> dict[str, object]:
    """Return how many values each sequence among the outputs holds; the field is ours, and left out without any."""
    lengths = [len(value) for value in outputs if isinstance(value, list)]
    return {"output_sequences": lengths} if lengths else {}


def _work_fields(work: RegionWork) -> dict[str, object]:
    return {"flops": work.flops, "bytes": work.nbytes, "arithmetic": work.arithmetic, "step": work.step}
