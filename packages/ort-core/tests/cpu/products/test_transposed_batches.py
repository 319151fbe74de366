"""FusedMatMul whose operands have their batches inside: what onnxruntime saves of attention that splits heads late."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import ort_core as ort
from ort_core.tolerances import compare

TURNS = list(itertools.product((0, 1), repeat=4))


def turned(value: np.ndarray, swap: int, batch: int) -> np.ndarray:
    value = np.moveaxis(value, 0, -2) if batch else value
    return value.swapaxes(-1, -2) if swap else value


def unturned(value: np.ndarray, swap: int, batch: int) -> np.ndarray:
    value = value.swapaxes(-1, -2) if swap else value
    return np.ascontiguousarray(np.moveaxis(value, -2, 0) if batch else value)


@pytest.mark.parametrize(("a", "b", "batch_a", "batch_b"), TURNS)
@pytest.mark.parametrize(("rows", "is_constant"), [(7, False), (1, False), (33, True)])
def test_a_product_of_operands_with_batches_inside_is_native_and_right(
    a: int, b: int, batch_a: int, batch_b: int, rows: int, is_constant: bool
) -> None:
    random = np.random.default_rng(rows)
    turns = {"transA": a, "transB": b, "transBatchA": batch_a, "transBatchB": batch_b}
    for batch in ((4,), (2, 3)):
        left, right = (random.standard_normal(shape) for shape in ((*batch, rows, 6), (*batch, 6, 17)))
        expected = (0.5 * left @ right).astype(np.float32)
        x, w = (unturned(v, *t).astype(np.float32) for v, t in ((left, (a, batch_a)), (right, (b, batch_b))))
        info = helper.make_tensor_value_info
        node = helper.make_node("FusedMatMul", ["x", "w"], ["m"], domain="com.microsoft", alpha=0.5, **turns)
        nodes = [node, helper.make_node("Neg", ["m"], ["y"])]
        given = [info("x", TensorProto.FLOAT, [f"d{n}" for n in range(x.ndim)])]
        constants = [numpy_helper.from_array(w, "w")] if is_constant else []
        if not is_constant:
            given.append(info("w", TensorProto.FLOAT, w.shape))
        graph = helper.make_graph(nodes, "g", given, [info("y", TensorProto.FLOAT, None)], constants)
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
        session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
        assert "numpy" not in str(session.explain())
        found = session.run(None, {"x": x} if is_constant else {"x": x, "w": w})[0]
        comparison = compare(found, -expected, "approximate")
        assert comparison.passes, f"{turns} {batch}: {comparison}"
        assert turned(x, a, batch_a).shape == left.shape
