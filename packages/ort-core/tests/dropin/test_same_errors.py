"""Misuses raise what onnxruntime raises: the class that programs catch, and the beginning of the text."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("onnxruntime")  # which the program runs on, too

PROGRAM = Path(__file__).with_name("misuses.py")
TAKEN = {  # what onnxruntime refuses, and this project takes
    "proto_model": "a ModelProto is a model",
    "bytearray_model": "a bytearray is bytes",
    "bind_list": "a list of numbers is a feed",
    "ov_init": "any value can be wrapped",
    "ov_complex": "complex numbers are element types of ONNX",
    "run_ov_numpy": "an array is a feed",
    "so_level_int": "an enumeration takes its numbers",
    "so_mode_int": "an enumeration takes its numbers",
    "mi": "plugins bring names of their own",
}
REFUSED = {  # what onnxruntime takes
    "bind_unknown_out": "a run would fail",
    "bind_cuda": "a run would fail",
    "ov_update_type": "the bytes of other elements are no values",
}
OTHER = {  # another class: nobody catches these
    "empty_path": "a name of no file", "sess_opts_type": "TypeError says more",
    "so_ext_np": "TypeError and RuntimeError",
    "so_optpath": "says what cannot be written", "tuning": "there are no records", "compiler_nofile": "NoSuchFile",
    "sparse_bad": "the object inside is asked for",
}  # fmt: skip


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """What every misuse gives: onnxruntime's, and the drop-in's."""
    folder = tmp_path_factory.mktemp("misuses")
    found = []
    environment = {name: value for name, value in os.environ.items() if name != "ALLOW_RELEASED_ONNX_OPSET_ONLY"}
    for runner in ([], ["-m", "ort_core.dropin"]):
        target = folder / f"{len(found)}.json"
        command = [sys.executable, *runner, str(PROGRAM), str(target)]
        subprocess.run(command, check=True, capture_output=True, env=environment)
        found.append(json.loads(target.read_text(encoding="utf-8")))
    return found


def is_caught_alike(theirs, ours):
    if "ok" in (theirs[0], ours[0]):
        return theirs[0] == ours[0]
    return theirs[0] in ours[1]


def test_every_misuse_is_caught_by_onnxruntimes_classes(outcomes):
    theirs, ours = outcomes
    other = {name for name in theirs if not is_caught_alike(theirs[name], ours[name])}
    assert len(theirs) > 150
    assert other == TAKEN.keys() | REFUSED.keys() | OTHER.keys()
    assert {name for name in other if ours[name][0] == "ok"} == TAKEN.keys()
    assert {name for name in other if theirs[name][0] == "ok"} == REFUSED.keys()


@pytest.mark.parametrize(
    "name",
    ["unknown_op", "unknown_domain", "unknown_ms_op", "undefined_input", "dup_name", "cycle", "attr_unknown",
     "type_mismatch", "missing_file", "garbage", "run_missing", "run_wrong_name", "run_dtype", "run_rank", "run_dim",
     "runtime_gather", "so_cfg_get", "so_cfg_long", "bind_unknown_in", "regep", "unregep", "so_provider"],
)  # fmt: skip
def test_messages_begin_as_onnxruntimes_do(outcomes, name):
    theirs, ours = (found[name][2] for found in outcomes)
    assert ours[:25] == theirs[:25]


def test_no_message_shows_a_code_twice(outcomes):
    assert [name for name, outcome in outcomes[1].items() if outcome[2].count("[ONNXRuntimeError]") > 1] == []
