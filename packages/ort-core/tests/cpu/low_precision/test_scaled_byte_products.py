"""Products of dequantized bytes that are scaled or read their weights transposed: FusedMatMul, written or fused."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import ort_core as ort

RNG = np.random.default_rng(5)
DEPTH, COLUMNS = 9, 18


def run(nodes: list, x: np.ndarray, weights: np.ndarray, scales: np.ndarray, axis: int) -> np.ndarray:
    constants = {
        "sx": np.float32(0.03), "zx": np.int8(3), "w": weights, "sw": scales, "h": np.float32(0.5),
        "zw": np.zeros(scales.shape, np.int8),
    }  # fmt: skip
    graph = helper.make_graph(
        [
            helper.make_node("DequantizeLinear", ["x", "sx", "zx"], ["a"]),
            helper.make_node("DequantizeLinear", ["w", "sw", "zw"], ["b"], axis=axis),
            *nodes,
        ],
        "scaled",
        [helper.make_tensor_value_info("x", TensorProto.INT8, ["N", *x.shape[1:]])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]


def operands(rows: tuple[int, ...], *, turned: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return bytes, weights (outputs first if turned), scales of outputs, and the product in float64."""
    x = RNG.integers(-128, 128, (*rows, DEPTH)).astype(np.int8)
    weights = RNG.integers(-128, 128, (DEPTH, COLUMNS)).astype(np.int8)
    scales = RNG.uniform(0.01, 0.02, COLUMNS).astype(np.float32)
    product = (x.astype(np.float64) - 3) * 0.03 @ (weights * scales.astype(np.float64))
    return x, weights.T.copy() if turned else weights, scales, product


@pytest.mark.parametrize("op_type", ["Mul", "Div"])
@pytest.mark.parametrize("rows", [(1, 1), (2, 5), (3,)])
def test_a_constant_factor_behind_a_product_of_bytes_counts(rows: tuple[int, ...], op_type: str) -> None:
    x, weights, scales, product = operands(rows, turned=False)
    nodes = [helper.make_node("MatMul", ["a", "b"], ["p"]), helper.make_node(op_type, ["p", "h"], ["y"])]
    found = run(nodes, x, weights, scales, 1)
    np.testing.assert_allclose(found, product * (0.5 if op_type == "Mul" else 2.0), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("alpha", [1.0, 0.125])
def test_attributes_of_a_fused_product_of_bytes_count(turned: bool, alpha: float) -> None:
    x, weights, scales, product = operands((2, 4), turned=turned)
    node = helper.make_node("FusedMatMul", ["a", "b"], ["y"], domain="com.microsoft", alpha=alpha, transB=int(turned))
    found = run([node], x, weights, scales, 0 if turned else 1)
    np.testing.assert_allclose(found, product * alpha, rtol=1e-4, atol=1e-5)


def run_gemm(bias: np.ndarray, x: np.ndarray, weights: np.ndarray, kind: str) -> np.ndarray:
    """Return ``x @ weights + bias`` of integers whose scales are 0.5 and 0.25: the product's is 0.125."""
    constants = {
        "sx": np.float32(0.5), "zx": np.uint8(7), "w": weights, "sw": np.float32(0.25), "zw": np.int8(0), "c": bias,
        "sc": np.float32(0.125),
    }  # fmt: skip
    made = helper.make_node("QGemm", ["x", "sx", "zx", "w", "sw", "zw", "c"], ["y"], domain="com.microsoft")
    parts = [
        helper.make_node("DequantizeLinear", ["x", "sx", "zx"], ["a"]),
        helper.make_node("DequantizeLinear", ["w", "sw", "zw"], ["b"]),
        helper.make_node("DequantizeLinear", ["c", "sc"], ["r"]),
        helper.make_node("Gemm", ["a", "b", "r"], ["y"]),
    ]
    graph = helper.make_graph(
        [made] if kind == "QGemm" else parts,
        "bias",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": x})[0])


@pytest.mark.parametrize("kind", ["QGemm", "Gemm of dequantized"])
@pytest.mark.parametrize("shape", [(5,), (1, 5), (5, 1)])
def test_a_bias_of_rows_is_no_bias_of_columns(shape: tuple[int, ...], kind: str) -> None:
    x = RNG.integers(0, 256, (5, DEPTH)).astype(np.uint8)
    weights = RNG.integers(-128, 128, (DEPTH, 5)).astype(np.int8)
    bias = RNG.integers(-9999, 9999, shape).astype(np.int32)
    right = ((x.astype(np.float64) - 7) @ weights + bias) * 0.125
    np.testing.assert_array_equal(run_gemm(bias, x, weights, kind), right)
