"""Profiling: a trace that a viewer can read, and results that profiling does not change."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ort_core as ort
from ort_conformance.check import promise, require
from ort_conformance.comparison import find_difference
from ort_conformance.subject import Subject
from ort_conformance.suites.networks import perceptron

SUITE = "profiling"
FIELDS = ("cat", "pid", "tid", "dur", "ts", "ph", "name", "args")


@promise(SUITE)
def a_profiled_run_gives_the_same(subject: Subject) -> None:
    """Profiling changes no result, and writes complete events with times that are not negative."""
    model, feeds = perceptron()
    with subject.session(model) as session:
        expected = session.run(None, feeds)
    found, events = _profiled(subject)
    difference = find_difference(found, expected, "approximate")
    require(difference is None, str(difference))
    for event in events:
        missing = [name for name in FIELDS if name not in event]
        require(not missing, f"an event lacks {', '.join(missing)}: {event}")
        require(event["dur"] >= 0 and event["ts"] >= 0, f"an event has a negative time: {event}")


@promise(SUITE)
def events_name_their_provider(subject: Subject) -> None:
    """Every event of a node names a provider of the session."""
    _, events = _profiled(subject)
    nodes = [event for event in events if event["cat"] == "Node"]
    strange = {event["args"].get("provider") for event in nodes} - {subject.name, "CPUExecutionProvider"}
    require(not strange, f"events name the providers {sorted(map(str, strange))}")


def _profiled(subject: Subject) -> tuple[Sequence[object], list[dict[str, Any]]]:  # Any: JSON
    model, feeds = perceptron()
    with tempfile.TemporaryDirectory() as folder:
        options = ort.SessionOptions()
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(folder, "trace"))
        with subject.session(model, options=options) as session:
            results = session.run(None, feeds)
            path = session.end_profiling()
        return results, json.loads(Path(path).read_text(encoding="utf-8"))
