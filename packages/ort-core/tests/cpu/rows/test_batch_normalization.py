"""BatchNormalization in inference mode, alone and fused into products, against its formula in float64."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import ort_core as ort
from ort_core.tolerances import compare

CHANNELS = 19


def parameters(seed: int = 0) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    found = {name: random.standard_normal(CHANNELS).astype(np.float32) for name in ("scale", "offset", "mean")}
    return {**found, "variance": random.uniform(0.1, 2, CHANNELS).astype(np.float32)}


def session_of(nodes, shape, constants, opset=15, inputs=()) -> ort.InferenceSession:
    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    given += [helper.make_tensor_value_info(name, TensorProto.FLOAT, [CHANNELS]) for name in inputs]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    fixed = [numpy_helper.from_array(array, name) for name, array in constants.items() if name not in inputs]
    graph = helper.make_graph(nodes, "normalized", given, [output], fixed)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL  # else passes fold it away
    return ort.InferenceSession(model.SerializeToString(), options)


def normalization(source: str = "x", **attributes: object):
    return helper.make_node("BatchNormalization", [source, "scale", "offset", "mean", "variance"], ["y"], **attributes)


def expected(x: np.ndarray, constants: dict[str, np.ndarray], epsilon: float = 1e-5) -> np.ndarray:
    along = (-1,) + (1,) * (x.ndim - 2)
    scale, offset, mean, variance = (constants[name].astype(np.float64).reshape(along) for name in constants)
    return (x.astype(np.float64) - mean) / np.sqrt(variance + epsilon) * scale + offset


def is_native(session: ort.InferenceSession) -> bool:
    """Return whether the whole model is one native program, which alone has direct calls (but not guarded ones)."""
    refusal = session._loaded.direct.refusal
    return refusal is None or "guarded" in refusal.reason


def assert_close(found: np.ndarray, wanted: np.ndarray) -> None:
    comparison = compare(found, wanted.astype(np.float32), "approximate")
    assert comparison.passes, str(comparison)


@pytest.mark.parametrize("opset", [7, 9, 14, 15])
@pytest.mark.parametrize("shape", [(3, CHANNELS), (0, CHANNELS), (2, CHANNELS, 5), (2, CHANNELS, 3, 7)])
def test_batch_normalization_follows_its_formula_for_any_rank(opset, shape):
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    constants = parameters()
    nodes = [normalization(epsilon=0.01)]
    session = session_of(nodes + [helper.make_node("Relu", ["y"], ["z"])], ["N", *shape[1:]], constants, opset)
    assert_close(session.run(None, {"x": x})[0], expected(x, constants, 0.01))
    assert is_native(session)


@pytest.mark.parametrize("rows", [1, 4, 33])
def test_batch_normalization_behind_a_product_becomes_its_epilogue(rows):
    random = np.random.default_rng(2)
    x, w = random.standard_normal((rows, 40)).astype(np.float32), random.standard_normal((40, CHANNELS))
    constants = {**parameters(), "w": w.astype(np.float32)}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Relu", ["p"], ["r"]), normalization("r"),
    ]  # fmt: skip
    session = session_of(nodes, ["N", 40], constants)
    product = np.maximum(x.astype(np.float64) @ constants["w"].astype(np.float64), 0)
    assert_close(session.run(None, {"x": x})[0], expected(product, parameters()))
    assert is_native(session)


def test_batch_normalization_with_statistics_from_the_caller_runs_by_kernels():
    x = np.random.default_rng(3).standard_normal((3, CHANNELS)).astype(np.float32)
    constants = parameters()
    session = session_of([normalization()], ["N", CHANNELS], constants, inputs=["mean"])
    found = session.run(None, {"x": x, "mean": constants["mean"]})[0]
    assert_close(found, expected(x, constants))
    assert not is_native(session)


@pytest.mark.parametrize("kind", ["one scale", "zero points", "int32"])
def test_quantized_parameters_are_compiled_in(kind: str) -> None:
    random = np.random.default_rng(4)
    constants, numbers, nodes = {}, {}, []
    for name in ("scale", "offset", "mean", "variance"):
        levels = random.integers(1, 100, CHANNELS).astype(np.int32 if kind == "int32" else np.int8)
        steps = random.uniform(0.01, 0.02, CHANNELS if kind == "zero points" else ()).astype(np.float32)
        parts = {f"{name}_levels": levels, f"{name}_steps": steps}
        points = np.full(CHANNELS, -5, np.int8) if kind == "zero points" else np.zeros((), levels.dtype)
        if kind == "zero points":
            parts[f"{name}_points"] = points
        constants |= parts
        numbers[name] = ((levels.astype(np.float64) - points) * steps).astype(np.float32)
        nodes.append(helper.make_node("DequantizeLinear", [*parts], [name], axis=0))
    session = session_of([*nodes, normalization()], [2, CHANNELS, 5], constants)
    x = random.standard_normal((2, CHANNELS, 5)).astype(np.float32)
    assert_close(session.run(None, {"x": x})[0], expected(x, numbers))
    assert is_native(session)


def test_channels_that_only_a_run_counts_are_read_as_those_of_the_statistics():
    constants = parameters()
    session = session_of([normalization()], ["N", "C", "H", "W"], constants)
    assert is_native(session)
    x = np.random.default_rng(5).standard_normal((2, CHANNELS, 9, 11)).astype(np.float32)
    assert_close(session.run(None, {"x": x})[0], expected(x, constants))
    with pytest.raises(ort.OrtError):
        session.run(None, {"x": x[:, :-1]})
