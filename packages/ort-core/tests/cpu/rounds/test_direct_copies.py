"""Models that only give a tensor another shape: one direct call that copies, against the reference kernels."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import parser

import ort_core as ort
from ort_core.cpu.guarded.arrays import GuardedArrays
from ort_core.cpu.guarded.mode import GuardedMode

pytestmark = pytest.mark.unguarded

HEADER = '<ir_version: 9, opset_import: ["" : 21]>\n'
NODES = {
    "Identity": "y = Identity(x)",
    "Reshape": "shape = Constant <value_ints = [0, -1]> ()\ny = Reshape(x, shape)",
    "Flatten": "y = Flatten <axis = 1> (x)",
    "Unsqueeze": "axes = Constant <value_ints = [0, 2]> ()\ny = Unsqueeze(x, axes)",
    "Squeeze": "axes = Constant <value_ints = [0, 2]> ()\ny0 = Unsqueeze(x, axes)\ny = Squeeze(y0)",
    "two": "y0 = Identity(x)\ny = Flatten <axis = 0> (y0)",
}


def session(body: str, kind: str = "float", provider: str = "CPUExecutionProvider") -> ort.InferenceSession:
    text = f"g ({kind}[A,B] x) => ({kind} y) {{\n{body}\n}}"
    model = parser.parse_model(HEADER + text)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(model.SerializeToString(), options, providers=[provider])


def is_direct(ran: ort.InferenceSession, x: np.ndarray) -> bool:
    return ran._loaded.direct.call({"x": x}, None) is not None


@pytest.mark.parametrize("body", NODES.values(), ids=NODES)
def test_shapes_are_those_of_the_kernels_and_memory_is_its_own(body: str) -> None:
    ran, truth = session(body), session(body, provider="ReferenceExecutionProvider")
    kept: list[tuple[np.ndarray, np.ndarray]] = []
    for turn, shape in enumerate([(3, 5)] * 4 + [(2, 7), (1, 1), (300, 700), (300, 700), (300, 700), (3, 5)]):
        x = np.random.default_rng(turn).standard_normal(shape).astype(np.float32)
        (found,), (expected,) = ran.run(None, {"x": x}), truth.run(None, {"x": x})
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
        assert np.array_equal(found, expected)
        assert not np.shares_memory(found, x)
        kept.append((found, expected.copy()))
    assert all(np.array_equal(found, expected) for found, expected in kept)  # no run writes to an older result
    assert is_direct(ran, np.zeros((3, 5), np.float32))
    assert is_direct(ran, np.zeros((300, 700), np.float32))
    assert not is_direct(ran, np.zeros((5, 3), np.float32).T)
    turned = np.asfortranarray(np.random.default_rng(9).standard_normal((3, 5)).astype(np.float32))
    assert np.array_equal(ran.run(None, {"x": turned})[0], truth.run(None, {"x": turned})[0])


@pytest.mark.parametrize(
    "kind", ["double", "float16", "bfloat16", "int8", "int4", "uint64", "bool", "complex64", "string"]
)
@pytest.mark.parametrize("name", ["Identity", "Flatten"])
def test_every_type_is_copied(name: str, kind: str) -> None:
    ran, truth = session(NODES[name], kind), session(NODES[name], kind, "ReferenceExecutionProvider")
    if kind == "bfloat16":
        from ml_dtypes import bfloat16 as dtype
    elif kind == "int4":
        from ml_dtypes import int4 as dtype
    else:
        dtype = {"double": np.float64, "bool": np.bool_, "string": np.object_}.get(kind, kind)
    x = np.arange(-3, 3).astype(np.float32).astype(dtype).reshape(2, 3)
    if kind == "string":
        x = np.array([["a", "b", ""]], object)
    for _ in range(4):
        (found,), (expected,) = ran.run(None, {"x": x}), truth.run(None, {"x": x})
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
        assert found.tolist() == expected.tolist()
    assert is_direct(ran, x) == (kind != "string")


def test_no_elements() -> None:
    ran = session(NODES["Flatten"])
    for shape in ((0, 4), (0, 4), (0, 4), (4, 0)):
        (found,) = ran.run(None, {"x": np.zeros(shape, np.float32)})
        assert found.shape == shape


def test_large_tensors_are_not_direct() -> None:
    ran = session(NODES["Identity"])
    x = np.ones((1025, 1024), np.float32)
    for _ in range(4):
        assert np.array_equal(ran.run(None, {"x": x})[0], x)
    refused = ran._loaded.direct.refusal
    assert refused is None
    assert is_direct(ran, x[:3].copy()) is False
    assert is_direct(ran, x) is False


def test_a_shape_that_is_fed_is_read_in_each_run() -> None:
    text = "g (float[A,B] x, int64[2] shape) => (float[C,D] y) { y = Reshape(x, shape) }"
    ran = ort.InferenceSession(parser.parse_model(HEADER + text).SerializeToString())
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    for shape in ([3, 2], [3, 2], [3, 2], [6, 1], [1, -1]):
        (found,) = ran.run(None, {"x": x, "shape": np.array(shape)})
        assert np.array_equal(found, x.reshape(shape))


@pytest.mark.parametrize("mode", [GuardedMode.BEGIN, GuardedMode.END])
@pytest.mark.parametrize("count", [1, 3, 64, 257])
def test_nothing_beside_feeds_and_outputs_is_touched(count: int, mode: GuardedMode) -> None:
    ran = session(NODES["Identity"], "uint8")
    x = np.arange(count).astype(np.uint8).reshape(1, -1)
    for _ in range(3):
        ran.run(None, {"x": x})
    guarded = GuardedArrays([x], [np.empty_like(x)], mode)
    found = ran._loaded.direct.call({"x": guarded.arrays[0]}, (guarded.arrays[1],))
    assert found is not None
    guarded.check("a copy")
    assert np.array_equal(found[0], x)
