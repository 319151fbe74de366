"""One engine in a process of its own, measured in turns: ``python -m ort_core.cli.measuring.bench_worker``.

Requests and answers are pickles on stdin and stdout, between a parent and the child that it started. Only the engine
that is asked for is imported. What an engine prints goes to stderr.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import pickle
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO, Any

ENGINES = {"ort-core": "ort_core", "onnxruntime": "onnxruntime"}
OPENER = "open_engine"  # of a file that brings an engine of its own: from an OpenRequest to a runner and an OpenAnswer


@dataclass(frozen=True, slots=True)
class OpenRequest:
    """Load a model; answered by an ``OpenAnswer``. ``engine`` is a name of ``ENGINES``, or the path of a file."""

    engine: str
    model: str
    providers: list[tuple[str, dict[str, str]]] | None
    level: int
    disabled: tuple[str, ...]
    threads: int
    feeds: Mapping[str, Any]  # Any: run-time values
    operators: tuple[str, ...] = ()  # Python files and modules with operators of the user's
    config: tuple[tuple[str, str], ...] = ()  # entries of the session's configuration


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """Run for a number of iterations, or for a time, behind a warm-up; answered by a ``TurnAnswer``."""

    warmup: int
    iterations: int | None
    duration_s: float


@dataclass(frozen=True, slots=True)
class OpenAnswer:
    """What loading and the first run gave; ``error`` is set when one of them failed."""

    version: str = ""
    providers: tuple[str, ...] = ()
    load_ns: int = 0
    first_run_ns: int = 0
    outputs: tuple[Any, ...] = ()  # Any: run-time values
    error: str = ""


@dataclass(frozen=True, slots=True)
class TurnAnswer:
    """The latencies of one turn, and the most memory that the process ever held."""

    latencies_ns: tuple[int, ...] = ()
    peak_nbytes: int = 0
    error: str = ""


def measure(run: Any, request: TurnRequest) -> tuple[int, ...]:  # Any: a function without arguments
    """Return the latencies of calls to ``run``: as many as asked for, or for the time asked for."""
    for _ in range(request.warmup):
        run()
    latencies: list[int] = []
    clock = time.perf_counter_ns
    end = clock() + int(request.duration_s * 1e9)
    while len(latencies) < request.iterations if request.iterations is not None else (not latencies or clock() < end):
        start = clock()
        run()
        latencies.append(clock() - start)
    return tuple(latencies)


def peak_memory() -> int:
    """Return the most memory that this process has held, in bytes (0 where the system does not tell)."""
    if sys.platform == "linux":
        from ort_core.cli.machine.processor_linux import peak_resident

        return peak_resident()
    if sys.platform == "win32":
        import psutil

        return int(getattr(psutil.Process().memory_info(), "peak_wset", 0))
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _open(request: OpenRequest) -> tuple[Any, OpenAnswer]:  # Any: a function that runs the session once
    if request.engine not in ENGINES:
        spec = importlib.util.spec_from_file_location("ort_bench_engine", request.engine)
        assert spec is not None  # a file that ends in .py, as the caller checked
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        opened: tuple[Any, OpenAnswer] = getattr(module, OPENER)(request)
        return opened
    engine = importlib.import_module(ENGINES[request.engine])
    options = engine.SessionOptions()
    options.intra_op_num_threads = request.threads
    options.graph_optimization_level = engine.GraphOptimizationLevel(request.level)
    for key, value in request.config:
        options.add_session_config_entry(key, value)
    for source in request.operators:
        options.register_custom_ops_library(source)
    start = time.perf_counter_ns()
    session = engine.InferenceSession(
        request.model, options, request.providers or None,
        disabled_optimizers=list(request.disabled) or None,
    )  # fmt: skip
    loaded = time.perf_counter_ns()
    outputs = session.run(None, request.feeds)
    ran = time.perf_counter_ns()
    answer = OpenAnswer(
        engine.__version__, tuple(session.get_providers()), loaded - start, ran - loaded, tuple(outputs)
    )
    feeds = dict(request.feeds)
    return lambda: session.run(None, feeds), answer


def serve(requests: IO[bytes], answers: IO[bytes]) -> None:
    """Answer requests until there are no more."""
    run: Any = None  # Any: a function without arguments
    while True:
        try:
            request = pickle.load(requests)  # from the parent process
        except EOFError:
            return
        answer: OpenAnswer | TurnAnswer
        try:
            if isinstance(request, OpenRequest):
                run, answer = _open(request)
            else:
                answer = TurnAnswer(measure(run, request), peak_memory())
        except Exception as error:  # noqa: BLE001 - the border to the engine: the parent shows it
            kind = OpenAnswer if isinstance(request, OpenRequest) else TurnAnswer
            answer = kind(error=f"{type(error).__name__}: {error}")
        pickle.dump(answer, answers)
        answers.flush()


def main() -> None:
    """Serve on stdin and stdout, whose number 1 is then stderr."""
    with os.fdopen(os.dup(1), "wb") as answers, contextlib.suppress(KeyboardInterrupt):
        os.dup2(2, 1)
        serve(sys.stdin.buffer, answers)


if __name__ == "__main__":
    # Imported, so that the pickled classes have their importable names.
    from ort_core.cli.measuring.bench_worker import main as run_main

    run_main()
