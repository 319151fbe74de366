"""How much memory of runs a session keeps: one state for callers in turn, however often they call."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import parser

import ort_core
from ort_core.cpu.program import program


@pytest.mark.unguarded
def test_runs_in_turn_share_one_state(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []
    make = program._ProgramRunState.__init__

    def counted(state: object, plan: program.ProgramPlan) -> None:
        made.append(state)
        make(state, plan)

    monkeypatch.setattr(program._ProgramRunState, "__init__", counted)
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[4, 4] x) => (float[4, 4] y) {h = MatMul(x, x) y = Softmax(h)}'
    )
    session = ort_core.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for _ in range(6):
        session.run(None, {"x": np.eye(4, dtype=np.float32)})
    assert len(made) == 1, "a direct call and the runs before it each keep memory of their own"
