"""Recurrent layers of float16 are compiled: computed in float32 and rounded once, as their numpy kernels do."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import ort_core as ort
from ort_core.cpu.codegen.llvm_ir.scalar_printer import converts_halves
from ort_core.cpu.codegen.machine_code.llvm_targets import host_target

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
HIDDEN, WIDTH, STEPS, BATCH = 17, 9, 7, 3


@pytest.mark.skipif(not converts_halves(host_target()), reason="the processor does not convert float16")
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("op_type", GATES)
def test_a_layer_of_float16_is_native_and_gives_what_its_kernel_gives(
    op_type: str, direction: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORT_STRICT_COMPILATION", "1")
    random = np.random.default_rng(len(direction))
    directions, gates = (2 if direction == "bidirectional" else 1), GATES[op_type] * HIDDEN
    fixed = {
        "w": 0.3 * random.standard_normal((directions, gates, WIDTH)),
        "r": 0.3 * random.standard_normal((directions, gates, HIDDEN)), "b": random.random((directions, 2 * gates)),
    }  # fmt: skip
    inputs = ["x", "w", "r", "b"]
    if op_type == "LSTM":
        fixed["p"] = 0.2 * random.standard_normal((directions, 3 * HIDDEN))
        inputs += ["", "", "", "p"]
    node = helper.make_node(op_type, inputs, ["y", "h"], hidden_size=HIDDEN, direction=direction)
    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT16, ["T", "N", WIDTH])]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT16, None) for name in "yh"]
    constants = [numpy_helper.from_array(each.astype(np.float16), name) for name, each in fixed.items()]
    graph = helper.make_graph([node], "g", given, results, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    assert "numpy:" not in str(session.explain())
    feeds = {"x": random.standard_normal((STEPS, BATCH, WIDTH)).astype(np.float16)}
    oracle = ort.InferenceSession(model, providers=["ReferenceExecutionProvider"])
    for found, wanted in zip(session.run(None, feeds), oracle.run(None, feeds), strict=True):
        assert found.dtype == np.float16
        apart = np.abs(found.astype(np.float64) - wanted.astype(np.float64))
        assert (apart <= np.spacing(np.abs(wanted))).all(), "one step of float16 at most"
