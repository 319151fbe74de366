"""Products of matrices whose batches have sizes of different names: each may be 1, which only a run knows."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import ort_core as ort
from ort_core.cpu.partition.partition import CpuPartition

FLOAT = TensorProto.FLOAT


def numbers(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("rows", [1, 5])
def test_batches_that_may_repeat_are_multiplied_natively(rows: int, partitions: list[CpuPartition]) -> None:
    info = helper.make_tensor_value_info
    ends = [info("a", FLOAT, ["A", "B", rows, "K"]), info("b", FLOAT, ["C", "K", 7])], [info("y", FLOAT, None)]
    nodes = [helper.make_node("MatMul", ["a", "b"], ["c"]), helper.make_node("Relu", ["c"], ["y"])]
    graph = helper.make_graph(nodes, "products", *ends)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    assert not any(partition.refusals for partition in partitions)
    for a_batch, b_batch in (((2, 3), 3), ((2, 3), 1), ((2, 1), 3), ((1, 1), 1)):
        a, b = numbers(1, *a_batch, rows, 9), numbers(2, b_batch, 9, 7)
        expected = np.maximum(a.astype(np.float64) @ b, 0)
        np.testing.assert_allclose(session.run(None, {"a": a, "b": b})[0], expected, rtol=1e-5, atol=1e-5)
    with pytest.raises(ort.OrtError):
        session.run(None, {"a": numbers(1, 2, 3, rows, 9), "b": numbers(2, 2, 9, 7)})
