"""How much memory of runs a session keeps: one state for callers in turn, however often they call."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import parser

import ort_core
from ort_core.cpu.direct import direct_calls
from ort_core.cpu.program import program


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Return the run states that are made."""
    found: list[object] = []
    make = program._ProgramRunState.__init__

    def counted(state: object, plan: program.ProgramPlan) -> None:
        found.append(state)
        make(state, plan)

    monkeypatch.setattr(program._ProgramRunState, "__init__", counted)
    return found


@pytest.mark.unguarded
def test_runs_in_turn_share_one_state(made: list[object]) -> None:
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[4, 4] x) => (float[4, 4] y) {h = MatMul(x, x) y = Softmax(h)}'
    )
    session = ort_core.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for _ in range(6):
        session.run(None, {"x": np.eye(4, dtype=np.float32)})
    assert len(made) == 1, "a direct call and the runs before it each keep memory of their own"


@pytest.mark.unguarded
@pytest.mark.parametrize(("columns", "most"), [(4, 8), (20_000, 60)], ids=["small", "large"])
def test_small_programs_keep_the_memory_of_many_sizes(
    made: list[object], monkeypatch: pytest.MonkeyPatch, columns: int, most: int
) -> None:
    """Sizes that come in turn, as a decoding loop begins anew: more than there are direct calls."""
    monkeypatch.setattr(direct_calls, "OPEN_AFTER", 1 << 30)  # Python plans all
    model = parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 17]> g (float[N, {columns}] x) => (float[N, {columns}] y)
        {{h = Softmax(x) z = Transpose <perm = [1, 0]> (h) k = Softmax(z) y = Transpose <perm = [1, 0]> (k)}}"""
    )
    session = ort_core.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for _ in range(3):
        made.clear()
        for rows in range(1, 21):
            session.run(None, {"x": np.ones((rows, columns), np.float32)})
    assert len(made) <= most, "the last turn makes states for direct calls alone"
    assert columns == 4 or len(made) > 8, "memory of large ones goes back"


@pytest.mark.unguarded
def test_native_code_plans_many_sizes_in_the_memory_of_one_run(made: list[object]) -> None:
    model = parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]> g (float[N, 20000] x) => (float[N, 20000] y)
        {h = Softmax(x) z = Transpose <perm = [1, 0]> (h) k = Softmax(z) y = Transpose <perm = [1, 0]> (k)}"""
    )
    session = ort_core.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for rows in range(1, 41):
        session.run(None, {"x": np.ones((rows, 20_000), np.float32)})
    assert len(made) <= 8, "the first ones, and one for each time that twice as much memory is needed"
