"""Models whose tensors could never exist: the compiler leaves what it cannot count to the kernels, with the reason."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import ort_core as ort

SHAPES: dict[str, tuple[list[int | str], int]] = {
    "symbolic": (["a", "b"], 1 << 31),
    "one of them": ([4, "b"], 1 << 31),
    "known": ([4, 4], 1 << 31),
    "just beyond": ([1, 1], 1 << 31),
}
LAST = ("Tanh", "Softmax", "MatMul", "Transpose", "ReduceSum", "LayerNormalization", "Concat", "Cast", "Gather")


def model_of(shape: list[int | str], repeats: int, last: str) -> bytes:
    inputs = {"MatMul": ["t", "t"], "Concat": ["t", "t"], "LayerNormalization": ["t", "scale"], "Gather": ["t", "i"]}
    attributes = {"Concat": {"axis": 0}, "Cast": {"to": TensorProto.DOUBLE}, "Gather": {"axis": 1}}.get(last, {})
    nodes = [
        helper.make_node("Exp", ["x"], ["e"]),
        helper.make_node("Tile", ["e", "repeats"], ["u"]),
        helper.make_node("Sigmoid", ["u"], ["t"]),
        helper.make_node(last, inputs.get(last, ["t"]), ["y"], **attributes),
    ]
    constants = {
        "repeats": np.array([repeats, repeats]), "scale": np.ones(1, np.float32), "i": np.array([0, 1, 1]),
    }  # fmt: skip
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "large", [info("x", TensorProto.FLOAT, shape)],
        [info("y", TensorProto.DOUBLE if last == "Cast" else TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9).SerializeToString()


@pytest.mark.parametrize("last", LAST)
@pytest.mark.parametrize("shape", SHAPES)
def test_sizes_beyond_64_bits_are_refused_with_a_reason(shape, last):
    """Tests are strict: what is no refusal of the compiler is an error here."""
    sizes, repeats = SHAPES[shape]
    session = ort.InferenceSession(model_of(sizes, repeats, last), providers=["CPUExecutionProvider"])
    executions = [node.execution for node in session.explain().nodes if node.op_type in ("Tile", "Sigmoid")]
    assert executions, str(session.explain())
    for each in executions:
        assert each is not None, last
        assert "more than 64 bits" in each.reason or "elements or bytes" in each.reason, str(each)
    with pytest.raises(ort.OrtError):
        session.run(None, {"x": np.zeros([size if isinstance(size, int) else 4 for size in sizes], np.float32)})
