"""Options of sessions that a folder states are those of its sessions."""

from __future__ import annotations

import gc
import json

import numpy as np
import pytest
from genai_built import built

import ort_core
import ort_genai as og
from ort_core.settings import Scope, all_settings
from ort_genai.errors import InvalidModelFolder
from ort_genai.session_options import session_options


def opened(**options):
    config = og.Config(built())
    config.overlay(json.dumps({"model": {"decoder": {"session_options": options}}}))
    return og.Model(config).decoder.session.get_session_options()


def test_threads_level_and_entries_are_taken():
    found = opened(**{
        "intra_op_num_threads": 1, "graph_optimization_level": "ORT_ENABLE_BASIC", "enable_cpu_mem_arena": False,
        "session.set_denormal_as_zero": "1", "enable_mem_pattern": True, "log_id": "chat",
    })  # fmt: skip
    assert found.intra_op_num_threads == 1
    assert found.graph_optimization_level == ort_core.GraphOptimizationLevel.ORT_ENABLE_BASIC
    assert found.get_session_config_entry("session.set_denormal_as_zero") == "1"
    assert (found.enable_cpu_mem_arena, found.logid) == (False, "chat")


def test_an_entry_that_nobody_knows_is_told(caplog):
    found = opened(**{"session.no_such_entry": "1", "custom_ops_library": "operators.so"})
    assert "session.no_such_entry" not in found.config_entries
    assert [each.getMessage().split(" ")[1] for each in caplog.records] == [
        "session_options.session.no_such_entry", "session_options.custom_ops_library",
    ]  # fmt: skip


def test_a_trace_is_written_when_the_model_ends(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = og.Config(built())
    config.overlay(json.dumps({"model": {"decoder": {"session_options": {"enable_profiling": "genai_"}}}}))
    model = og.Model(config)
    model.decoder.run_alone(np.array([5]), "logits")
    assert list(tmp_path.iterdir()) == []
    del model, config
    gc.collect()
    assert [each.name.startswith("genai_") for each in tmp_path.iterdir()] == [True]


def test_runs_have_the_entries_that_the_folder_states():
    config = og.Config(built())
    stated = {"memory.enable_memory_arena_shrinkage": "cpu:0"}
    config.overlay(json.dumps({"model": {"decoder": {"run_options": stated}}}))
    model = og.Model(config)
    generator = og.Generator(model, og.GeneratorParams(model))
    generator.set_runtime_option("terminate_session", "1")
    for options in (model.decoder.new_state().run_options, generator._state.run_options):
        assert options.config_entries == stated
    assert model.decoder.run_options.terminate is False, "options of a run are those of one generation"


@pytest.mark.parametrize(
    "options", [
        {"intra_op_num_threads": -1}, {"graph_optimization_level": "all"}, {"enable_mem_pattern": "yes"}, {"log_id": 1},
        {"enable_profiling": True}, {"enable_profiling": "../trace"}, {"config_entries": {"a": "b"}},
        {"session.set_denormal_as_zero": 1},
    ]
)  # fmt: skip
def test_what_is_none_is_refused(options):
    with pytest.raises(InvalidModelFolder, match=next(iter(options))):
        opened(**options)


@pytest.mark.parametrize(
    "path", ["../model.onnx", "/etc/hostname", "a/../../b", "..\\b", "C:\\b", "\\\\host\\b", "", 5]
)
def test_paths_out_of_the_folder_are_refused(path):
    config = og.Config(built())
    config.overlay(json.dumps({"model": {"decoder": {"filename": path}}}))
    with pytest.raises(InvalidModelFolder, match=r"model\.decoder\.filename"):
        og.Model(config)
    if path != "":  # which states that there is none
        with pytest.raises(InvalidModelFolder, match=r"session_options\.ep\.context_file_path"):
            opened(**{"ep.context_file_path": path})


def test_every_entry_that_names_a_file_is_kept_in_the_folder():
    named = [
        name for scope, name in all_settings()
        if scope is Scope.SESSION and name.endswith(("path", "file", "file_name", "dir", "folder"))
    ]  # fmt: skip
    assert "session.optimized_model_filepath" in named
    for name in named:
        with pytest.raises(InvalidModelFolder, match="leads out of the model's folder"):
            session_options({name: "../written"}, built())
