"""OpenVINO as it comes, as an engine of ``ort bench --against``: bfloat16 on processors with AVX512-BF16 or AMX."""

from __future__ import annotations

from collections.abc import Callable

from openvino_engine import open_with

from ort_core.cli.measuring.bench_worker import OpenAnswer, OpenRequest


def open_engine(request: OpenRequest) -> tuple[Callable[[], object], OpenAnswer]:
    """Compile a model for the shapes of its feeds and return a function that runs it once."""
    return open_with(request, {"PERFORMANCE_HINT": "LATENCY"})
