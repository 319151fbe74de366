"""Profiling: a Chrome trace with onnxruntime's names."""

import json
import re

import numpy as np
import onnxruntime
import pytest

from ort_core.errors import Fail
from ort_core.options import SessionOptions

X = np.arange(8, dtype=np.float32).reshape(2, 4)
FEEDS = {"x": X, "z": X}


def trace(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def test_the_trace_has_the_events_and_fields_of_onnxruntime(model, session_of, tmp_path):
    events = []
    for make, options in (
        (lambda o: session_of("two_inputs", o), SessionOptions()),
        (lambda o: onnxruntime.InferenceSession(model("two_inputs"), o), onnxruntime.SessionOptions()),
    ):
        options.enable_profiling = True
        options.profile_file_prefix = str(tmp_path / f"p{len(events)}")
        session = make(options)
        assert session.get_profiling_start_time_ns() > 0
        session.run(None, FEEDS)
        path = session.end_profiling()
        assert re.fullmatch(r".*p\d_\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d_\d{1,3}\.json", path)
        events.append(trace(path))
    ours, theirs = events
    assert set(ours[0]) == set(theirs[0])
    session_names = [{e["name"] for e in each if e["cat"] == "Session"} for each in events]
    assert session_names[0] == session_names[1]
    nodes = [sorted((e for e in each if e["cat"] == "Node"), key=lambda e: e["args"]["op_name"]) for each in events]
    for our, their in zip(*nodes, strict=True):
        assert re.sub(r"\d", "", our["name"]) == re.sub(r"\d", "", their["name"])
        for key in ("op_name", "provider", "input_type_shape", "output_type_shape", "parameter_size", "output_size"):
            assert our["args"][key] == their["args"][key], key


def test_a_session_without_profiling_has_no_trace(session_of):
    session = session_of("two_inputs")
    assert session.end_profiling() == ""
    assert session.get_profiling_start_time_ns() == 0


def test_runs_after_the_end_are_not_traced(session_of, tmp_path):
    options = SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "p")
    session = session_of("two_inputs", options)
    path = session.end_profiling()
    session.run(None, FEEDS)
    assert session.end_profiling() == path
    assert {event["cat"] for event in trace(path)} == {"Session"}


def test_a_place_that_cannot_be_written_is_an_error_with_the_option_named(session_of, tmp_path):
    options = SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "absent" / "p")
    with pytest.raises(Fail, match="profile_file_prefix"):
        session_of("two_inputs", options).end_profiling()
