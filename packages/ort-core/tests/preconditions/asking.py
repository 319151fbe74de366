"""Asks an engine for an outcome on each case, in a process of its own: a crash or a hang costs that case only.

A worker's outcome is ``["ok", digest of results]``, ``["refused", error]``, ``["crash", ""]`` or ``["hang", ""]``.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import warnings
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

from node_cases import NodeCase

Outcome = tuple[str, str, list[Any]]
LIMIT_S = 20.0


def ask(engine: str, shapes: str, case: NodeCase) -> Outcome:
    """Load and run one case in this process."""
    try:
        content, feeds = case.model(shapes)
    except Exception as error:  # noqa: BLE001  # what onnx cannot write down is no case
        return "skipped", f"{type(error).__name__}: {error}", []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return "ok", "", session(engine, content).run(None, feeds)
    except Exception as error:  # noqa: BLE001  # an engine raises what it likes
        return "refused", f"{type(error).__name__}: {error}", []


def session(engine: str, content: bytes) -> Any:
    """Return a session of ``onnxruntime``, or of ours with ``cpu`` or ``reference`` as its provider.

    ``compiled`` is ``cpu`` that compiles small nodes, too, from then on in this process.
    """
    if engine == "onnxruntime":
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    import ort_core

    if engine == "compiled":
        from ort_core.cpu.partition import admission

        admission._SMALL = 0
    own = ort_core.SessionOptions()
    own.log_severity_level = 4
    compiles = dict.fromkeys(("cpu", "compiled"), "CPUExecutionProvider")
    name = {**compiles, "reference": "ReferenceExecutionProvider"}[engine]
    return ort_core.InferenceSession(content, own, providers=[name])


def _serve(engine: str, shapes: str, cases: Sequence[NodeCase], pipe: Connection) -> None:
    if engine == "onnxruntime":
        os.close(2)  # it writes of refusals there
    for case in cases:
        pipe.send(ask(engine, shapes, case))


def outcomes(engine: str, shapes: str, cases: Sequence[NodeCase]) -> list[Outcome]:
    """Return an outcome for each case."""
    found: list[Outcome] = []
    context = multiprocessing.get_context("fork")
    while len(found) < len(cases):
        mine, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(engine, shapes, cases[len(found) :], theirs), daemon=True)
        process.start()
        theirs.close()
        while len(found) < len(cases):
            if not mine.poll(LIMIT_S):
                process.kill()
                found.append(("hang", "", []))
                break
            try:
                found.append(mine.recv())
            except (EOFError, pickle.UnpicklingError):
                found.append(("crash", "", []))
                break
        process.join(1)
        if process.is_alive():
            process.kill()
    return found
