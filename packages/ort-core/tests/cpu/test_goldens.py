"""What small graphs are compiled to is what it was: the steps, their memory, their threads and their work."""

from __future__ import annotations

import platform
import sys

import numpy as np
import onnx
import pytest
from golden_programs import FOLDER, PROGRAMS, text_of

import ort_core as ort
from ort_core.cpu.partition.partition import CpuPartition

IS_FOREIGN = sys.platform != "linux" or platform.machine() != "x86_64"


@pytest.mark.skipif(
    IS_FOREIGN, reason="goldens are of x86-64 code, which is compiled and linked, and not run, on its own kind"
)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_graph_is_compiled_to_its_golden(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for setting in ("ORT_GUARDED_MEMORY", "ORT_STEP_PIECES"):  # under which there are other slots, and other pieces
        monkeypatch.delenv(setting, raising=False)
    kept = (FOLDER / f"{name}.txt").read_text(encoding="utf-8")
    found = text_of(name)
    assert found == kept, f"goldens/{name}.txt: run golden_programs.py to write it anew, and read what has changed"


def test_every_golden_belongs_to_a_graph() -> None:
    assert {path.stem for path in FOLDER.glob("*.txt")} == set(PROGRAMS)


def test_a_program_and_a_step_are_readable(partitions: list[CpuPartition]) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[N, 8] x, float[8, 8] w) => (float[N, 8] y) {
        a = MatMul (x, w)
        y = Relu (a)
    }"""
    ort.InferenceSession(onnx.parser.parse_model(text).SerializeToString())
    (program,) = partitions[0].native_programs
    lines = str(program).splitlines()
    assert lines[0].startswith("program of 1 steps, ")
    assert lines[1:3] == ["  inputs  x float[N, 8]; w float[8, 8]", "  outputs y float[N, 8]"]
    assert lines[3].endswith("0.0 MatMul+Relu  -> y float[N, 8]")
    assert str(program.steps[0]).startswith("MatMul+Relu by product_")
    assert "reads input float[8*N], input float[64]; writes output float[8*N]" in str(program.steps[0])


def test_offsets_are_where_runs_put_buffers(partitions: list[CpuPartition]) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[N, 8] x, float[8, 8] w) => (float[N, 8] y) {
        a = MatMul (x, w)
        b = Softmax (a)
        c = MatMul (b, w)
        y = Softmax (c)
    }"""
    session = ort.InferenceSession(onnx.parser.parse_model(text).SerializeToString())
    session.run(None, {"x": np.ones((3, 8), np.float32), "w": np.ones((8, 8), np.float32)})
    (program,) = partitions[0].native_programs
    told = [each for facts in partitions[0].steps({"N": 3}) for each in facts.writes if each.offset is not None]
    assert told
    (plan,) = program._plans.values()
    arena = plan._offsets
    assert {each.offset for each in told} <= set(arena), (told, arena)
