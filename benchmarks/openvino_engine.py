"""OpenVINO as an engine of ``ort bench --against benchmarks/openvino_engine.py``: float32, for latency, static shapes.

float32 means float32: OpenVINO's default on processors with AVX512-BF16 is bfloat16, and it quantizes some float32
products by groups unless the execution mode is ACCURACY.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import numpy as np
import openvino as ov

from ort_core.cli.measuring.bench_worker import OpenAnswer, OpenRequest

CONFIG = {"PERFORMANCE_HINT": "LATENCY", "EXECUTION_MODE_HINT": "ACCURACY", "INFERENCE_PRECISION_HINT": "f32"}


def open_engine(request: OpenRequest) -> tuple[Callable[[], object], OpenAnswer]:
    """Compile a model for the shapes of its feeds and return a function that runs it once."""
    return open_with(request, CONFIG)


def open_with(request: OpenRequest, properties: Mapping[str, str]) -> tuple[Callable[[], object], OpenAnswer]:
    """Do the same with properties of OpenVINO's CPU device."""
    core = ov.Core()
    config = dict(properties)
    if request.threads:
        config["INFERENCE_NUM_THREADS"] = str(request.threads)
    start = time.perf_counter_ns()
    model = core.read_model(request.model)
    feeds = [np.ascontiguousarray(request.feeds[port.get_any_name()]) for port in model.inputs]
    model.reshape({index: feed.shape for index, feed in enumerate(feeds)})
    compiled = core.compile_model(model, "CPU", config)
    infer = compiled.create_infer_request()
    for index, feed in enumerate(feeds):
        infer.set_input_tensor(index, ov.Tensor(feed, shared_memory=feed.flags.writeable))
    loaded = time.perf_counter_ns()
    infer.infer(share_outputs=True)
    outputs = tuple(infer.get_output_tensor(index).data.copy() for index in range(len(compiled.outputs)))
    ran = time.perf_counter_ns()
    answer = OpenAnswer(ov.__version__.split("-")[0], ("CPU",), loaded - start, ran - loaded, outputs)

    def run(_alive: object = (model, compiled, feeds)) -> None:  # the request reads the feeds where they lie
        infer.infer(share_outputs=True)

    return run, answer
