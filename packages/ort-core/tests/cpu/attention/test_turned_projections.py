"""Attention of com.microsoft that turns its heads: onnxruntime's CPU refuses it, and has the parts it is made of."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import NodeProto, helper, numpy_helper

import ort_core as ort

MS = "com.microsoft"
HEADS, SIZE, LENGTH = 2, 16, 5
WIDTH = HEADS * SIZE


def model(nodes: list[NodeProto], constants: dict[str, np.ndarray]) -> bytes:
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", 1, [None, LENGTH, 8])],
        [helper.make_tensor_value_info("y", 1, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(MS, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


def parts(weights: dict[str, np.ndarray], causal: int) -> bytes:
    """Return projections, turns and an attention as nodes of their own."""
    angles = np.outer(np.arange(LENGTH), 10000.0 ** (-np.arange(0, SIZE, 2) / SIZE)).astype(np.float32)
    constants = {
        **weights, "cos": np.cos(angles), "sin": np.sin(angles), "at": np.arange(LENGTH)[None].repeat(3, 0),
        "thirds": np.array([WIDTH] * 3),
    }  # fmt: skip
    turned = [
        helper.make_node("RotaryEmbedding", [name, "at", "cos", "sin"], [f"{name}_turned"], domain=MS, num_heads=HEADS)
        for name in "qk"
    ]
    attention = helper.make_node(
        "MultiHeadAttention", ["q_turned", "k_turned", "v"], ["y"], domain=MS, num_heads=HEADS, unidirectional=causal
    )
    return model(
        [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Add", ["m", "b"], ["qkv"]),
         helper.make_node("Split", ["qkv", "thirds"], ["q", "k", "v"], axis=2), *turned, attention], constants,
    )  # fmt: skip


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("provider", ["CPUExecutionProvider", "ReferenceExecutionProvider"])
def test_projected_heads_are_turned_as_by_nodes_of_their_own(provider: str, causal: int) -> None:
    numbers = np.random.default_rng(7)
    shapes = {"x": (3, LENGTH, 8), "w": (8, 3 * WIDTH), "b": (3 * WIDTH,)}
    arrays = {name: numbers.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    weights, feeds = {name: arrays[name] for name in "wb"}, {"x": arrays["x"]}
    attributes = {"num_heads": HEADS, "unidirectional": causal}
    one = helper.make_node("Attention", ["x", "w", "b"], ["y"], domain=MS, do_rotary=1, **attributes)
    found = ort.InferenceSession(model([one], weights), providers=[provider]).run(None, feeds)[0]
    peer = onnxruntime.InferenceSession(parts(weights, causal), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(found, peer.run(None, feeds)[0], rtol=1e-4, atol=1e-5)
