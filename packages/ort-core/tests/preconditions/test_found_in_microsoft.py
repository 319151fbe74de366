"""What attacks on single nodes of com.microsoft have found wrong, each beside onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import ValueInfoProto, helper, numpy_helper

import ort_core as ort
from ort_core.cpu.partition import admission

PROVIDERS = ("CPUExecutionProvider", "ReferenceExecutionProvider")
Arrays = dict[str, np.ndarray]


def model(op_type: str, feeds: Arrays, constants: Arrays, inputs: list[str], outputs: str, **attributes: Any) -> bytes:
    """Return a model of one node; sizes of feeds are open."""
    infos = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(array.dtype), [f"{name}{axis}" for axis in range(array.ndim)]
        )
        for name, array in feeds.items()
    ]
    node = helper.make_node(op_type, inputs, list(outputs), domain="com.microsoft", **attributes)
    results = [ValueInfoProto(name=name) for name in outputs]
    initializers = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph([node], "g", infos, results, initializers)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString())


def run(engine: Any, content: bytes, feeds: Arrays, provider: str = PROVIDERS[0]) -> list[np.ndarray]:
    options = engine.SessionOptions()
    options.log_severity_level = 4
    return engine.InferenceSession(content, options, providers=[provider]).run(None, feeds)


def agree(content: bytes, feeds: Arrays) -> None:
    expected = run(onnxruntime, content, feeds)
    for provider in PROVIDERS:
        for found, wanted in zip(run(ort, content, feeds, provider), expected, strict=True):
            assert found.dtype == wanted.dtype
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5, err_msg=provider)


@pytest.fixture(autouse=True)
def _compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "_SMALL", 0)


@pytest.mark.parametrize("more", ["", "biased", "turned"])
@pytest.mark.parametrize("queries", [1, 2])
@pytest.mark.parametrize("last", [1, 4, 8])
def test_keys_that_another_layer_has_written_lie_anywhere_in_the_cache(last: int, queries: int, more: str) -> None:
    generator = np.random.default_rng(last)
    shapes = {"q": (1, queries, 64), "k": (1, 0, 32), "v": (1, 0, 32), "pk": (1, 2, 9, 16), "pv": (1, 2, 9, 16)}
    feeds = {name: generator.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    feeds |= {"n": np.array([last], np.int32), "t": np.array(last + 1, np.int32)}
    inputs = [*feeds]
    if more == "biased":
        feeds["c"] = generator.standard_normal((1, 1, queries, last + 1)).astype(np.float32)
        inputs += ["", "", "", "c"]
    elif more == "turned":
        feeds |= {name: generator.standard_normal((20, 8)).astype(np.float32) for name in "ij"}
        inputs += ["i", "j"]
    heads = {"num_heads": 4, "kv_num_heads": 2, "do_rotary": int(more == "turned")}
    agree(model("GroupQueryAttention", feeds, {}, inputs, "yab", **heads), feeds)


@pytest.mark.parametrize("given", ["", "s", "z", "sz"])
@pytest.mark.parametrize("columns", [4, 33])
def test_a_zero_point_alone_says_whether_a_product_is_quantized(columns: int, given: str) -> None:
    """The compiled product wrote floats into a buffer of bytes where a zero point had no scale."""
    generator = np.random.default_rng(columns)
    feeds = {"a": generator.integers(0, 256, (3, 8), np.uint8)}
    constants = {
        "p": np.array(0.02, np.float32), "q": np.array(120, np.uint8),
        "w": generator.integers(0, 256, (8, columns), np.uint8), "r": np.array(0.5, np.float32),
        "u": np.array(99, np.uint8), "s": np.array(2.0, np.float32), "z": np.array(7, np.uint8),
    }  # fmt: skip
    inputs = ["a", "p", "q", "w", "r", "u", "", *(name if name in given else "" for name in "sz")]
    agree(model("QGemm", feeds, constants, inputs, "y"), feeds)


REFUSED: dict[str, tuple[str, Arrays, Arrays, list[str], dict[str, Any]]] = {
    "batches of matrices that have none": (
        "FusedMatMulActivation", {"a": np.ones((4, 4), np.float32)}, {"b": np.ones((4, 4), np.float32)}, ["a", "b"],
        {"activation": "Relu", "transBatchA": 1},
    ),
    "no padding of two axes": (
        "ConvTransposeWithDynamicPads", {"x": np.ones((1, 2, 5, 5), np.float32)},
        {"w": np.ones((2, 3, 3, 3), np.float32), "p": np.zeros(0, np.int64)}, ["x", "w", "p"], {},
    ),
    "a mask of other queries": (
        "Attention", {"x": np.ones((2, 4, 8), np.float32)},
        {"w": np.ones((8, 24), np.float32), "b": np.ones(24, np.float32), "m": np.ones((2, 1, 4), np.int32)},
        ["x", "w", "b", "m"], {"num_heads": 2},
    ),
    "scales of several rows": (
        "QGemm", {"a": np.ones((3, 2), np.uint8)},
        {"s": np.ones((1, 1), np.float32), "z": np.array(0, np.uint8), "w": np.ones((2, 4), np.uint8),
         "t": np.array(1, np.float32), "y": np.array(0, np.uint8)}, ["a", "s", "z", "w", "t", "y"], {},
    ),
    "blocks of a size that no code book has": (
        "MatMulBnb4", {"a": np.ones((3, 34), np.float32)},
        {"w": np.ones(34, np.uint8), "m": np.ones(4, np.float32)}, ["a", "w", "m"],
        {"K": 34, "N": 2, "block_size": 17, "quant_type": 0},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused_by_kernels_and_compiled_code(name: str) -> None:
    op_type, feeds, constants, inputs, attributes = REFUSED[name]
    content = model(op_type, feeds, constants, inputs, "y", **attributes)
    with pytest.raises(Exception, match=r"\w"):
        run(onnxruntime, content, feeds)
    for provider in PROVIDERS:
        with pytest.raises(ort.OrtError, match=op_type):
            run(ort, content, feeds, provider)


@pytest.mark.parametrize("bound", [0.0, 1.0, float("-inf")])
def test_bounds_of_gates_are_negative(bound: float) -> None:
    names = {"q": (1, 2, 4), "k": (1, 2, 4), "v": (1, 2, 4)}
    feeds = {name: np.ones(shape, np.float32) for name, shape in names.items()}
    content = model("GatedDeltaNet", feeds, {}, [*feeds], "y", gate_lower_bound=bound)
    with pytest.raises(ort.OrtError, match="gate_lower_bound must be finite and negative"):
        run(ort, content, feeds)
