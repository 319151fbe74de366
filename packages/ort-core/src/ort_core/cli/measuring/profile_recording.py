"""Runs under the profiler, and what the devices of their providers can do: what ``profile`` and ``bench`` report on."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ort_core.cli.console import working
from ort_core.frozen import frozen

if TYPE_CHECKING:
    from ort_core.cli.inputs.feeds import InputRequest
    from ort_core.cli.sessions import SessionRequest
    from ort_core.providers.roofline import Roofline


@frozen
class RecordedRuns:
    """Runs of a model under the profiler.

    Attributes:
        trace: the Chrome trace.
        run_ns: how long each run took, with the profiler's own cost.
        providers: of the session.
    """

    trace: Path
    run_ns: Sequence[int]
    providers: Sequence[str]


def record_profile(
    model: Path, inputs: InputRequest, request: SessionRequest, folder: Path, warmup: int, iterations: int
) -> RecordedRuns:
    """Run a model under the profiler; the trace is written into a folder."""
    from ort_core.cli.inputs.feeds import run_with_feeds
    from ort_core.onnx_io.load import load_model

    with working(f"Loading {model.name}"):
        loaded, plain = load_model(model), request.open(model)
        feeds, _ = run_with_feeds(loaded, inputs, lambda f: plain.run(None, f.values))
        for _ in range(warmup):
            plain.run(None, feeds.values)
        plain.close()
        options = request.options()
        options.enable_profiling, options.profile_file_prefix = True, str(folder / "trace")
        session = request.open(model, options)
    run_ns = []
    with working(f"Profiling {model.name}"):
        for _ in range(iterations):
            start = time.perf_counter_ns()
            session.run(None, feeds.values)
            run_ns.append(time.perf_counter_ns() - start)
    return RecordedRuns(Path(session.end_profiling()), run_ns, session.get_providers())


def measure_ceilings(names: Sequence[str], threads: int) -> dict[str, Roofline]:
    """Return what the devices of providers can do, of those that can measure it."""
    from ort_core.environment import default_environment
    from ort_core.providers.thread_options import ThreadOptions

    with working("Measuring the machine's ceilings"):
        found = {
            name: default_environment().get_provider(name)().measure_roofline(ThreadOptions(threads)) for name in names
        }
    return {name: ceilings for name, ceilings in found.items() if ceilings is not None}
