"""ort-core placed by measuring, as an engine of ``ort bench`` and ``EngineProcess``: its samples are the feeds."""

from __future__ import annotations

import time
from collections.abc import Callable

import ort_core as ort
from ort_core.cli.measuring.bench_worker import OpenAnswer, OpenRequest


def open_engine(request: OpenRequest) -> tuple[Callable[[], object], OpenAnswer]:
    """Load a model, placed by measuring its providers on the feeds, and return a function that runs it once."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = request.threads
    options.add_session_config_entry("session.placement_policy", "measured")
    options.sample_inputs = dict(request.feeds)
    start = time.perf_counter_ns()
    session = ort.InferenceSession(request.model, options, request.providers)
    loaded = time.perf_counter_ns()
    feeds = dict(request.feeds)
    outputs = tuple(session.run(None, feeds))
    ran = time.perf_counter_ns()
    report = session.explain()
    counts: dict[str, int] = {}
    for node in report.nodes:
        counts[node.provider] = counts.get(node.provider, 0) + 1
    placed = tuple(f"{name}:{count}" for name, count in counts.items())
    answer = OpenAnswer(ort.__version__, placed, loaded - start, ran - loaded, outputs)
    return lambda: session.run(None, feeds), answer
