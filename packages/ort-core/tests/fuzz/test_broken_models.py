"""Broken models give a result or an OrtError: no crash, no hang, no bare error, no memory beyond the limit."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

import ort_core as ort

CAMPAIGN = Path(__file__).with_name("campaign.py")
MUTANTS_PER_BATCH, BATCHES = 250, 2  # `nox -s fuzz` tries as many as one likes
TIME_LIMIT_S = 0.1  # of one run: endless loops are among the mutants, and each takes all of it
FIRST_SEED = 1_000_000  # away from the seeds of campaigns by hand


@pytest.mark.slow
@pytest.mark.parametrize("batch", range(BATCHES))
def test_mutants_of_many_operators_give_a_result_or_an_ort_error(batch, corpus_file, tmp_path):
    pytest.importorskip("resource", reason="memory limits of a process are set by POSIX calls")
    out = tmp_path / "findings.jsonl"
    first = FIRST_SEED + batch * MUTANTS_PER_BATCH
    command = [
        sys.executable,
        str(CAMPAIGN),
        str(corpus_file),
        str(first),
        str(MUTANTS_PER_BATCH),
        str(out),
        str(TIME_LIMIT_S),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert done.returncode == 0, f"the process ended with {done.returncode} after {lines[-1:]}: {done.stderr[-2000:]}"
    findings = [line for line in lines if "problem" in line and not line["problem"].startswith("slow")]
    assert findings == []
    endings = lines[-1]["endings"]
    assert sum(endings.values()) == MUTANTS_PER_BATCH
    assert endings["result"] > MUTANTS_PER_BATCH // 20, f"too few mutants are alive to show anything: {endings}"


def build_seed_model():
    inner = helper.make_node("If", ["c"], ["r"], then_branch=branch("Relu"), else_branch=branch("Neg"))
    reshape = helper.make_node("Reshape", ["r", "shape"], ["y"])
    shape = helper.make_tensor("shape", TensorProto.INT64, [2], [3, -1])
    graph = helper.make_graph(
        [inner, reshape],
        "seed",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3]),
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [shape],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()


def branch(op_type):
    node = helper.make_node(op_type, ["x"], ["branch"])
    return helper.make_graph([node], op_type, [], [onnx.ValueInfoProto(name="branch")])


SEED_MODEL = build_seed_model()


@settings(max_examples=400)
@given(
    changes=st.lists(st.tuples(st.integers(0, len(SEED_MODEL) - 1), st.integers(0, 255)), min_size=1, max_size=4),
    kept=st.one_of(st.just(len(SEED_MODEL)), st.integers(0, len(SEED_MODEL))),
)
def test_a_model_with_changed_bytes_loads_or_is_refused(changes, kept):
    content = bytearray(SEED_MODEL)
    for place, byte in changes:
        content[place] = byte
    try:
        session = ort.InferenceSession(bytes(content[:kept]))
    except ort.OrtError as error:
        assert str(error)  # noqa: PT017 - either way of ending is right, a refusal must say why
    else:
        assert session.get_outputs() is not None


@settings(max_examples=200)
@given(content=st.binary(max_size=200))
def test_arbitrary_bytes_are_no_model(content):
    with pytest.raises(ort.OrtError):
        ort.InferenceSession(content)
