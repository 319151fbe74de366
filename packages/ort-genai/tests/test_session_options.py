"""Options of sessions that a folder states are those of its sessions."""

from __future__ import annotations

import json

import pytest
from genai_built import built

import ort_core
import ort_genai as og
from ort_genai.errors import InvalidModelFolder


def opened(**options):
    config = og.Config(built())
    config.overlay(json.dumps({"model": {"decoder": {"session_options": options}}}))
    return og.Model(config).decoder.session.get_session_options()


def test_threads_level_and_entries_are_taken():
    found = opened(
        intra_op_num_threads=1, graph_optimization_level="ORT_ENABLE_BASIC",
        config_entries={"session.set_denormal_as_zero": "1"}, enable_mem_pattern=True,
    )  # fmt: skip
    assert found.intra_op_num_threads == 1
    assert found.graph_optimization_level == ort_core.GraphOptimizationLevel.ORT_ENABLE_BASIC
    assert found.get_session_config_entry("session.set_denormal_as_zero") == "1"


@pytest.mark.parametrize("options", [{"intra_op_num_threads": -1}, {"graph_optimization_level": "all"}])
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
        with pytest.raises(InvalidModelFolder, match=r"config_entries\.ep\.context_file_path"):
            opened(config_entries={"ep.context_file_path": path})
