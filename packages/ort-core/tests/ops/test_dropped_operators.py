"""Operators that ONNX has dropped load up to the opset that drops them, and are refused from there on."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

import ort_core as ort
from ort_core.errors import InvalidGraph

X = np.arange(6, dtype=np.float32).reshape(1, 1, 2, 3)
TREE = {
    "nodes_treeids": [0, 0, 0], "nodes_nodeids": [0, 1, 2], "nodes_featureids": [0, 0, 0],
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"], "nodes_values": [1.0, 0.0, 0.0],
    "nodes_truenodeids": [1, 0, 0], "nodes_falsenodeids": [2, 0, 0],
}  # fmt: skip
CLASSES = {"class_treeids": [0, 0], "class_nodeids": [1, 2], "class_ids": [1, 1], "class_weights": [0.2, 0.8]}
TARGETS = {"target_treeids": [0, 0], "target_nodeids": [1, 2], "target_ids": [0, 0], "target_weights": [1.0, 2.0]}
ML = "ai.onnx.ml"
NODES = {
    "Upsample": (helper.make_node("Upsample", ["x", "scales"], ["y"]), 10, "Resize"),
    "Scatter": (helper.make_node("Scatter", ["x", "places", "x"], ["y"], axis=3), 11, "ScatterElements"),
    "TreeEnsembleClassifier": (
        helper.make_node(
            "TreeEnsembleClassifier", ["rows"], ["y", "z"], domain=ML, classlabels_int64s=[0, 1], **TREE, **CLASSES
        ), 5, "TreeEnsemble",
    ),
    "TreeEnsembleRegressor": (
        helper.make_node("TreeEnsembleRegressor", ["rows"], ["y"], domain=ML, n_targets=1, **TREE, **TARGETS),
        5, "TreeEnsemble",
    ),
}  # fmt: skip


def model_of(node: NodeProto, version: int) -> ModelProto:
    weights = [
        numpy_helper.from_array(np.array([1, 1, 2, 2], np.float32), "scales"),
        numpy_helper.from_array(np.zeros((1, 1, 2, 3), np.int64), "places"),
        numpy_helper.from_array(np.ones((2, 3), np.float32), "rows"),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 2, 3])
    element_type = TensorProto.INT64 if len(node.output) == 2 else TensorProto.FLOAT
    y = helper.make_tensor_value_info("y", element_type, None)
    passed = helper.make_node("Identity", ["x"], ["unused"])
    imports = [helper.make_opsetid(node.domain, version)]
    if node.domain:
        imports.append(helper.make_opsetid("", 17))
    graph = helper.make_graph([node, passed], "dropped", [x], [y], weights)
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


@pytest.mark.parametrize("op_type", NODES)
def test_the_last_version_runs_and_the_next_is_refused_as_by_onnxruntime(op_type: str) -> None:
    node, dropped_at, successor = NODES[op_type]
    kept = model_of(node, dropped_at - 1).SerializeToString()
    theirs, ours = (
        package.InferenceSession(kept, providers=["CPUExecutionProvider"]).run(None, {"x": X})[0]
        for package in (onnxruntime, ort)
    )
    np.testing.assert_array_equal(ours, theirs)
    for version in (dropped_at, 21 if not node.domain else 5):
        content = model_of(node, version).SerializeToString()
        reason = f"Op registered for {op_type} is deprecated in domain_version of {version}"
        with pytest.raises(onnxruntime.capi.onnxruntime_pybind11_state.InvalidGraph, match=reason):
            onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
        with pytest.raises(InvalidGraph, match=f"{reason}; use {successor}, or"):
            ort.InferenceSession(content)
