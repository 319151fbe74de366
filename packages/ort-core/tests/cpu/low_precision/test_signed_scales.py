"""Products and convolutions of bytes whose result is limited and quantized by a scale of either sign."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

import ort_core as ort

RNG = np.random.default_rng(11)
DEPTH, COLUMNS = 8, 6
SX, ZX = np.float32(-0.04), 5
SW = (RNG.uniform(0.004, 0.02, COLUMNS) * np.resize([1, -1], COLUMNS)).astype(np.float32)
BIAS = RNG.uniform(-0.4, 0.4, COLUMNS).astype(np.float32)
WHOLE, SC = RNG.integers(-400, 400, COLUMNS).astype(np.int32), np.float32(-0.001)
BIASES = {"floats": "c", "integers": "d"}  # what is added
ENDS = {np.dtype(np.uint8): (0, 255), np.dtype(np.int8): (-128, 127)}


def compiled(nodes: list[NodeProto], x: np.ndarray, constants: dict[str, np.ndarray]) -> np.ndarray:
    names = [numpy_helper.from_array(np.asarray(each), name) for name, each in constants.items()]
    dequantized = [
        helper.make_node("DequantizeLinear", ["x", "sx", "zx"], ["a"]),
        helper.make_node("DequantizeLinear", ["w", "sw", "zw"], ["b"], axis=0 if constants["w"].ndim == 4 else 1),
    ]
    graph = helper.make_graph(
        [*dequantized, *nodes, helper.make_node("QuantizeLinear", ["r", "sy", "zy"], ["y"])], "signed",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, x.shape)],
        [helper.make_tensor_value_info("y", helper.np_dtype_to_tensor_dtype(constants["zy"].dtype), None)], names,
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": x})[0])


def levels(real: np.ndarray, scale: np.float32, zero: np.ndarray) -> np.ndarray:
    """Return a quantization in float64, a half to even."""
    low, high = ENDS[zero.dtype]
    return np.clip(np.rint(real / np.float64(scale)) + int(zero), low, high)


def limits_of(kind: str) -> tuple[list[NodeProto], dict[str, np.ndarray], tuple[float, float]]:
    """Return the nodes from ``p`` to ``r``, their constants, and the limits that they stand for."""
    if kind == "Relu":
        return [helper.make_node("Relu", ["p"], ["r"])], {}, (0.0, np.inf)
    if kind == "Max":
        return [helper.make_node("Max", ["p", "none"], ["r"])], {"none": np.zeros((), np.float32)}, (0.0, np.inf)
    if kind == "Clip":
        ends = {"low": np.float32(-0.1), "high": np.float32(0.3)}
        return [helper.make_node("Clip", ["p", "low", "high"], ["r"])], ends, (-0.1, 0.3)
    return [helper.make_node("Identity", ["p"], ["r"])], {}, (-np.inf, np.inf)


@pytest.mark.parametrize("kind", ["Relu", "Max", "Clip", "none"])
@pytest.mark.parametrize("zero", [np.uint8(0), np.uint8(255), np.int8(-128), np.int8(3)], ids=str)
@pytest.mark.parametrize("scale", [np.float32(0.01), np.float32(-0.01)], ids=str)
@pytest.mark.parametrize("bias", ["no bias", "floats", "integers"])
@pytest.mark.parametrize("operator", ["MatMul", "Conv"])
def test_limits_in_front_of_a_scale_of_either_sign_are_those_of_the_reals(operator, bias, scale, zero, kind) -> None:
    nodes, constants, (low, high) = limits_of(kind)
    added = {"no bias": np.zeros(COLUMNS), "floats": BIAS, "integers": WHOLE * np.float64(SC)}[bias]
    weights = RNG.integers(-128, 128, (DEPTH, COLUMNS)).astype(np.int8)
    real = weights * SW.astype(np.float64)
    constants |= {
        "sx": SX, "zx": np.uint8(ZX), "sw": SW, "zw": np.zeros(COLUMNS, np.int8), "sy": scale,
        "zy": np.asarray(zero), "c": WHOLE if bias == "integers" else BIAS, "sc": SC,
    }  # fmt: skip
    if operator == "MatMul":
        x = RNG.integers(0, 256, (7, DEPTH)).astype(np.uint8)
        constants["w"] = weights
        first = [helper.make_node("MatMul", ["a", "b"], ["p" if bias == "no bias" else "m"])]
        first += [] if bias == "no bias" else [helper.make_node("Add", ["m", BIASES[bias]], ["p"])]
        product = (x.astype(np.float64) - ZX) * np.float64(SX) @ real + added
    else:
        x = RNG.integers(0, 256, (1, DEPTH, 3, 4)).astype(np.uint8)
        constants["w"] = weights.T.reshape(COLUMNS, DEPTH, 1, 1)
        first = [helper.make_node("Conv", ["a", "b", *([] if bias == "no bias" else [BIASES[bias]])], ["p"])]
        product = np.einsum("ndhw,dc->nchw", (x.astype(np.float64) - ZX) * np.float64(SX), real)
        product += added.reshape(-1, 1, 1)
    if bias == "integers":
        first.insert(0, helper.make_node("DequantizeLinear", ["c", "sc"], ["d"]))
    found = compiled([*first, *nodes], x, constants)
    expected = levels(np.clip(product, low, high), scale, np.asarray(zero))
    assert np.abs(found.astype(np.int64) - expected).max() <= 1, "a level that a last bit decides is the next one"
    assert np.mean(found != expected) < 0.05
