"""Attributes beyond what they should be: flags that are neither 0 nor 1 say no, pads that nobody reads are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import NodeProto, helper

import ort_core as ort

MS = "com.microsoft"


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(7).standard_normal(shape).astype(np.float32)


HEADS, ROWS = {name: numbers(1, 2, 3, 4) for name in "qkv"}, {name: numbers(1, 3, 8) for name in "qkv"}
IMAGE, TURNS = {"x": numbers(1, 1, 6, 6)}, {"c": numbers(5, 2), "s": numbers(5, 2)}
TURNED = {"x": numbers(1, 2, 3, 4), "p": np.array([[[0, 1, 2]], [[3, 1, 0]], [[1, 1, 4]]]), **TURNS}
GROUPED = {name: numbers(1, 3, 32) for name in "qkv"} | {name: numbers(1, 2, 0, 16) for name in ("past k", "past v")}
GROUPED |= {"n": np.array([2], np.int32), "t": np.array(3, np.int32), "c": numbers(8, 8), "s": numbers(8, 8)}
HEADS_OF_GROUPS = {"num_heads": 2, "kv_num_heads": 2}
HANGING = {"kernel_shape": [3, 3], "strides": [2, 2]}
CASES: dict[str, tuple[str, str, str, dict[str, np.ndarray], dict[str, Any]]] = {
    "causal": ("Attention", "", "is_causal", HEADS, {}),
    "unidirectional": ("MultiHeadAttention", MS, "unidirectional", ROWS, {"num_heads": 2}),
    "sorted": ("Unique", "", "sorted", {"x": np.array([3, 1, 3, 2], np.float32)}, {}),
    "ceil": ("MaxPool", "", "ceil_mode", IMAGE, HANGING),
    "ceil of means": ("AveragePool", "", "ceil_mode", IMAGE, HANGING),
    "ceil of norms": ("LpPool", "", "ceil_mode", IMAGE, HANGING),
    "interleaved": ("MRotaryEmbedding", MS, "interleaved", TURNED, {"mrope_section": [1, 1, 0]}),
    "grouped": ("GroupQueryAttention", MS, "rotary_interleaved", GROUPED, {**HEADS_OF_GROUPS, "do_rotary": 1}),
    "turned": ("GroupQueryAttention", MS, "do_rotary", GROUPED, HEADS_OF_GROUPS),
    "largest": ("TopK", "", "largest", {"x": numbers(2, 5), "k": np.array([2], np.int64)}, {}),
}


@pytest.mark.parametrize("provider", ["CPUExecutionProvider", "ReferenceExecutionProvider"])
@pytest.mark.parametrize("value", [-1, 0, 1, 7])
@pytest.mark.parametrize("name", CASES)
def test_only_one_says_yes(name: str, value: int, provider: str) -> None:
    op_type, domain, flag, feeds, given = CASES[name]
    made = ["y", "z", "w"][: {"TopK": 2, "GroupQueryAttention": 3}.get(op_type, 1)]
    content = model_of(helper.make_node(op_type, list(feeds), made, domain=domain, **{flag: value}, **given), feeds)
    (theirs,) = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"]).run(["y"], feeds)
    (ours,) = ort.InferenceSession(content, providers=[provider]).run(["y"], feeds)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("provider", ["CPUExecutionProvider", "ReferenceExecutionProvider"])
@pytest.mark.parametrize("pads", [[0, 0, 0], [0] * 8, [-1] * 4])
def test_pads_beside_an_output_shape_are_checked_though_they_are_not_used(pads: list[int], provider: str) -> None:
    feeds = {"x": numbers(1, 2, 3, 3), "w": numbers(2, 1, 2, 2)}
    for given in ({"output_shape": [4, 4]}, {}):
        content = model_of(helper.make_node("ConvTranspose", list(feeds), ["y"], pads=pads, **given), feeds)
        with pytest.raises(ort.OrtError, match="pads"):
            ort.InferenceSession(content, providers=[provider]).run(None, feeds)
        with pytest.raises(onnxruntime.capi.onnxruntime_pybind11_state.Fail, match="pads"):
            onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("provider", ["CPUExecutionProvider", "ReferenceExecutionProvider"])
@pytest.mark.parametrize("axis", [-3, 2, 7])
@pytest.mark.parametrize("op_type", ["QuantizeLinear", "DequantizeLinear"])
@pytest.mark.parametrize("is_named", [False, True], ids=["sizes", "names"])
def test_an_axis_that_is_not_there_is_refused_where_it_has_scales(
    op_type: str, axis: int, provider: str, is_named: bool
) -> None:
    """Compiled code took it modulo the rank."""
    x = numbers(2, 3) if op_type == "QuantizeLinear" else np.zeros((2, 3), np.uint8)
    for count in (3, 1):
        feeds = {"x": x, "s": np.full(count, 0.5, np.float32), "z": np.zeros(count, np.uint8)}
        content = model_of(helper.make_node(op_type, list(feeds), ["y"], axis=axis), feeds, is_named=is_named)
        if count == 1:  # of one scale the axis does not matter
            ort.InferenceSession(content, providers=[provider]).run(None, feeds)
            continue
        with pytest.raises(ort.OrtError, match="axis"):
            ort.InferenceSession(content, providers=[provider]).run(None, feeds)


def model_of(node: NodeProto, feeds: dict[str, np.ndarray], *, is_named: bool = False) -> bytes:
    infos = []
    for name, x in feeds.items():
        shape = [f"{name}{axis}" for axis in range(x.ndim)] if is_named else x.shape
        infos.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), shape))
    result = [helper.make_tensor_value_info("y", 2 if node.op_type == "QuantizeLinear" else 1, None)]
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid(MS, 1)]
    graph = helper.make_graph([node], "attribute", infos, result)
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
