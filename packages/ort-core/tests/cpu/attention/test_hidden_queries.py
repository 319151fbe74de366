"""Queries that no key counts for: zeros or no numbers, as each operator has it in onnxruntime and in onnx.reference.

onnxruntime's GroupQueryAttention has two ways: it gives zeros where the caches are outputs, too, and else no numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import ort_core as ort

MS = "com.microsoft"
HIDDEN = 1  # the query that sees no key
LENGTH, HEADS, SIZE = 5, 2, 8


def three_axes() -> dict[str, np.ndarray]:
    random = np.random.default_rng(3)
    return {name: random.standard_normal((1, LENGTH, HEADS * SIZE)).astype(np.float32) for name in "qkv"}


def four_axes() -> dict[str, np.ndarray]:
    return {
        name: np.ascontiguousarray(x.reshape(1, LENGTH, HEADS, SIZE).swapaxes(1, 2)) for name, x in three_axes().items()
    }


def hiding(rank: int) -> np.ndarray:
    mask = np.zeros((1,) * (rank - 2) + (LENGTH, LENGTH), np.float32)
    mask[..., HIDDEN, :] = -np.inf
    return mask


def model_of(nodes: Sequence[NodeProto], feeds: dict[str, np.ndarray], constants: dict[str, np.ndarray]) -> ModelProto:
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for name, x in feeds.items()
    ]
    made = [numpy_helper.from_array(x, name) for name, x in constants.items()]
    result = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "hidden", infos, result, made)
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 23), helper.make_opsetid(MS, 1)], ir_version=10
    )


def standard() -> tuple[ModelProto, dict[str, np.ndarray]]:
    feeds = {**four_axes(), "mask": hiding(2)}
    return model_of([helper.make_node("Attention", ["q", "k", "v", "mask"], ["y"])], feeds, {}), feeds


def multi_head() -> tuple[ModelProto, dict[str, np.ndarray]]:
    feeds = {**three_axes(), "mask": hiding(4)}
    operands = ["q", "k", "v", "", "", "mask"]
    return model_of(
        [helper.make_node("MultiHeadAttention", operands, ["y"], domain=MS, num_heads=HEADS)], feeds, {}
    ), feeds


def projecting() -> tuple[ModelProto, dict[str, np.ndarray]]:
    feeds = {"q": three_axes()["q"], "mask": hiding(4)}
    width = HEADS * SIZE
    constants = {
        "w": np.concatenate([np.eye(width, dtype=np.float32)] * 3, axis=1),
        "b": np.zeros(3 * width, np.float32),
    }
    node = helper.make_node("Attention", ["q", "w", "b", "", "", "mask"], ["y"], domain=MS, num_heads=HEADS)
    return model_of([node], feeds, constants), feeds


def grouped() -> tuple[ModelProto, dict[str, np.ndarray]]:
    feeds = {**three_axes(), "mask": hiding(4)}
    operands = ["q", "k", "v", "", "", "last", "total", "", "", "", "mask"]
    node = helper.make_node(
        "GroupQueryAttention", operands, ["y", "key", "value"], domain=MS, num_heads=HEADS, kv_num_heads=HEADS
    )
    constants = {"last": np.array([LENGTH - 1], np.int32), "total": np.array(LENGTH, np.int32)}
    return model_of([node], feeds, constants), feeds


def written_out() -> tuple[ModelProto, dict[str, np.ndarray]]:
    feeds = {**four_axes(), "mask": hiding(4)}
    nodes = [
        helper.make_node("Transpose", ["k"], ["kt"], perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["q", "kt"], ["products"]),
        helper.make_node("Div", ["products", "root"], ["scores"]),
        helper.make_node("Add", ["scores", "mask"], ["masked"]),
        helper.make_node("Softmax", ["masked"], ["weights"], axis=-1),
        helper.make_node("MatMul", ["weights", "v"], ["y"]),
    ]
    return model_of(nodes, feeds, {"root": np.float32(np.sqrt(SIZE))}), feeds


FORMS = {
    "Attention of ONNX": (standard, False),
    "MultiHeadAttention": (multi_head, True),
    "Attention of com.microsoft": (projecting, True),
    "GroupQueryAttention": (grouped, False),
    "its parts": (written_out, True),
}


@pytest.mark.parametrize("provider", ["CPUExecutionProvider", "ReferenceExecutionProvider"])
@pytest.mark.parametrize("form", FORMS)
def test_a_query_that_sees_no_key_gets_what_its_operator_says(form: str, provider: str) -> None:
    make, is_nan = FORMS[form]
    model, feeds = make()
    content = model.SerializeToString()
    (theirs,) = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"]).run(None, feeds)
    (ours,) = ort.InferenceSession(content, providers=[provider]).run(None, feeds)
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
    hidden = ours[..., HIDDEN, :]
    assert np.isnan(hidden).all() if is_nan else not hidden.any()


@pytest.mark.parametrize("make", [standard, written_out])
def test_the_same_stands_in_the_reference_of_onnx(make: object) -> None:
    model, feeds = make()  # type: ignore[operator]  # parametrized: one of the makers above
    with np.errstate(invalid="ignore"):
        (expected,) = ReferenceEvaluator(model).run(None, feeds)
    (ours,) = ort.InferenceSession(model.SerializeToString()).run(None, feeds)
    np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-5)
