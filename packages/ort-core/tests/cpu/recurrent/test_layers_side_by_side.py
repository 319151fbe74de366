"""Recurrent layers that need nothing of each other, and towers of small products, on one thread each."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import ort_core as ort
from ort_core.cpu.program.program import NativeProgram
from ort_core.cpu.threads.pool_code import OWNER_AT, SERIAL

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
HIDDEN, WIDTH, STEPS = 19, 7, 9


def layers(*operators: str, batch: int | str) -> onnx.ModelProto:
    """Return layers over one sequence, every second one backwards, whose last states are joined and multiplied."""
    chance = np.random.default_rng(3)
    nodes, weights = [], []

    def constant(name: str, *shape: int) -> str:
        array = chance.standard_normal(shape).astype(np.float32) / 4
        weights.append(numpy_helper.from_array(array, name))
        return name

    for number, operator in enumerate(operators):
        rows = GATES[operator] * HIDDEN
        w, r = constant(f"w{number}", 1, rows, WIDTH), constant(f"r{number}", 1, rows, HIDDEN)
        direction = "reverse" if number % 2 else "forward"
        nodes.append(
            helper.make_node(operator, ["x", w, r], ["", f"h{number}"], hidden_size=HIDDEN, direction=direction)
        )
    nodes.append(helper.make_node("Concat", [f"h{i}" for i in range(len(operators))], ["all"], axis=2))
    nodes.append(helper.make_node("MatMul", ["all", constant("w", len(operators) * HIDDEN, 5)], ["y"]))
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [STEPS, batch, WIDTH])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, batch, 5])]
    graph = helper.make_graph(nodes, "layers", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def session(model: onnx.ModelProto, threads: int, provider: str = "CPUExecutionProvider") -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    return ort.InferenceSession(model.SerializeToString(), options, providers=[provider])


@pytest.mark.parametrize("guarded", ["", "end", "begin"])
@pytest.mark.parametrize("batch", [1, "N"])
def test_layers_side_by_side_give_what_the_reference_gives(
    batch: int | str, guarded: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORT_GUARDED_MEMORY", guarded)
    model = layers("LSTM", "LSTM", "GRU", "RNN", "LSTM", batch=batch)
    found, reference = session(model, 3), session(model, 1, "ReferenceExecutionProvider")
    alone = session(model, 1)
    for rows in (1, 1) if batch == 1 else (1, 2, 5, 1):
        x = np.random.default_rng(rows).standard_normal((STEPS, rows, WIDTH)).astype(np.float32)
        (y,), (expected,), (one,) = (each.run(None, {"x": x}) for each in (found, reference, alone))
        np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(y, one)


def test_layers_of_one_text_have_an_owner_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORT_GUARDED_MEMORY", "")
    monkeypatch.delenv("ORT_STEP_PIECES", raising=False)
    seen: list[list[int]] = []
    planned = NativeProgram._plan

    def plan(self: NativeProgram, signature: tuple[tuple[int, ...], ...]) -> object:
        made = planned(self, signature)
        names = [name for _, name in self.kernels]
        flags = made.flags
        seen.append([int(f) >> OWNER_AT for f, name in zip(flags, names) if f & SERIAL and "recurrent" in name])
        return made

    monkeypatch.setattr(NativeProgram, "_plan", plan)
    made = session(layers("LSTM", "LSTM", "LSTM", batch="N"), 3)
    for rows in (1, 4):
        made.run(None, {"x": np.zeros((STEPS, rows, WIDTH), np.float32)})
    assert [sorted(owners) for owners in seen[-2:]] == [[0, 1, 2], []], "four rows are shared by all threads"
