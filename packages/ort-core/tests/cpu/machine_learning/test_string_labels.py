"""Classifiers with string labels: compiled with numbers, and a table of strings behind them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import ort_core as ort
from ort_core.cpu.partition.partition import CpuPartition
from ort_core.cpu.partition.segments import LazyKernels
from ort_core.errors import OrtError
from ort_core.tolerances import compare

ML = "ai.onnx.ml"
COLUMNS = 4
LABELS = ["cat", "Hund", "", "鳥"]


def numbers(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def linear(classes: int) -> tuple[str, dict[str, Any]]:
    rows = 1 if classes == 2 else classes
    return "LinearClassifier", {
        "coefficients": numbers(1, rows * COLUMNS).tolist(), "intercepts": numbers(2, rows).tolist(),
        "classlabels_strings": LABELS[:classes], "post_transform": "SOFTMAX" if classes > 2 else "LOGISTIC",
    }  # fmt: skip


def support_vectors(classes: int) -> tuple[str, dict[str, Any]]:
    total = 3 * classes
    return "SVMClassifier", {
        "coefficients": numbers(1, (classes - 1) * total).tolist(),
        "rho": numbers(2, classes * (classes - 1) // 2).tolist(),
        "support_vectors": numbers(3, total * COLUMNS).tolist(), "vectors_per_class": [3] * classes,
        "kernel_type": "RBF", "kernel_params": [0.2, 0.0, 0.0], "classlabels_strings": LABELS[:classes],
    }  # fmt: skip


def trees(classes: int) -> tuple[str, dict[str, Any]]:
    """One tree for each class: its second leaf votes for it."""
    ids, leaves = [k for k in range(classes) for _ in range(3)], range(classes)
    return "TreeEnsembleClassifier", {
        "nodes_treeids": ids, "nodes_nodeids": [0, 1, 2] * classes,
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"] * classes,
        "nodes_featureids": [k % COLUMNS for k in ids], "nodes_values": [0.25, 0.0, 0.0] * classes,
        "nodes_truenodeids": [1, 0, 0] * classes, "nodes_falsenodeids": [2, 0, 0] * classes,
        "class_treeids": [k for k in leaves for _ in range(2)], "class_nodeids": [1, 2] * classes,
        "class_ids": [k for k in leaves for _ in range(2)], "class_weights": numbers(4, 2 * classes).tolist(),
        "classlabels_strings": LABELS[:classes],
    }  # fmt: skip


def model_of(op_type: str, attributes: dict[str, Any], *outputs: str, opset: int = 3) -> ModelProto:
    info = helper.make_tensor_value_info
    node = helper.make_node(op_type, ["x"], ["label", "scores"], domain=ML, **attributes)
    types = {"label": TensorProto.STRING, "scores": TensorProto.FLOAT}
    graph = helper.make_graph(
        [node], "labels", [info("x", TensorProto.FLOAT, ["rows", COLUMNS])], [info(n, types[n], None) for n in outputs]
    )
    opsets = [helper.make_opsetid(ML, opset), helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


@pytest.mark.parametrize("opset", [1, 3])
@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("kind", [linear, support_vectors, trees], ids=lambda kind: kind.__name__)
def test_labels_and_scores_are_the_references(
    kind: Any, classes: int, opset: int, partitions: list[CpuPartition]
) -> None:
    model = model_of(*kind(classes), "label", "scores", opset=opset).SerializeToString()
    reference = ort.InferenceSession(model, providers=["ReferenceExecutionProvider"])
    compiled = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    assert [node.op_type for each in partitions for node in each.refusals] == ["LabelEncoder"], "all else is compiled"
    for rows in (1, 7, 100):
        x = numbers(rows, rows, COLUMNS)
        (label, scores), (true_label, true_scores) = (each.run(None, {"x": x}) for each in (compiled, reference))
        assert label.dtype == object
        np.testing.assert_array_equal(label, true_label)
        comparison = compare(scores, true_scores, "approximate")
        assert comparison.passes, str(comparison)


def test_scores_alone_and_labels_alone_stay_what_they_are() -> None:
    for wanted in ("label", "scores"):
        model = model_of(*linear(4), wanted).SerializeToString()
        x = numbers(3, 9, COLUMNS)
        found, truth = (
            ort.InferenceSession(model, providers=[f"{name}ExecutionProvider"]).run(None, {"x": x})[0]
            for name in ("CPU", "Reference")
        )
        if wanted == "label":
            np.testing.assert_array_equal(found, truth)
        else:
            assert compare(found, truth, "approximate").passes


@pytest.mark.parametrize("is_row", [False, True], ids=["vector", "row"])
@pytest.mark.parametrize("outputs", [("label", "scores"), ("label",), ("picked", "label")], ids=",".join)
def test_labels_picked_by_number_are_one_line_behind_the_program(
    monkeypatch: pytest.MonkeyPatch, is_row: bool, outputs: tuple[str, ...]
) -> None:
    """What skl2onnx writes: a row of strings, the columns that are the best, one dimension."""
    labels = np.array([*LABELS, "?"], object)
    nodes = [
        helper.make_node("Gemm", ["x", "w"], ["scores"]),
        helper.make_node("ArgMax", ["scores"], ["best"], axis=1),
        helper.make_node("ArrayFeatureExtractor", ["labels", "best"], ["picked"], domain=ML),
        helper.make_node("Reshape", ["picked", "shape"], ["label"]),
    ]
    types = {"label": TensorProto.STRING, "picked": TensorProto.STRING, "scores": TensorProto.FLOAT}
    info = helper.make_tensor_value_info
    constants = [
        numpy_helper.from_array(numbers(1, COLUMNS, 5), "w"), numpy_helper.from_array(np.array([-1]), "shape"),
        numpy_helper.from_array(labels[None] if is_row else labels, "labels"),
    ]  # fmt: skip
    graph = helper.make_graph(
        nodes, "picked", [info("x", TensorProto.FLOAT, ["rows", COLUMNS])], [info(n, types[n], None) for n in outputs],
        constants,
    )  # fmt: skip
    opsets = [helper.make_opsetid(ML, 3), helper.make_opsetid("", 18)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    for rows in (7, 1, 100):
        x = numbers(rows, rows, COLUMNS)
        first, _ = (session.run(None, {"x": x}) for _ in range(2))
        with monkeypatch.context() as patch:
            patch.setattr(LazyKernels, "run", lambda *_: pytest.fail("a signature that came twice is one direct call"))
            again = session.run(None, {"x": x})
        best = labels[(x @ numbers(1, COLUMNS, 5)).argmax(1)]
        for found in (first, again):
            for name, value in zip(outputs, found, strict=True):
                if name == "scores":
                    np.testing.assert_allclose(value, x @ numbers(1, COLUMNS, 5), rtol=1e-4, atol=1e-5)
                else:
                    assert value.dtype == object
                    np.testing.assert_array_equal(value, best if name == "label" else best[None])


def test_a_number_that_no_label_has_is_the_reference_s_error() -> None:
    nodes = [
        helper.make_node("Neg", ["x"], ["number"]),
        helper.make_node("ArrayFeatureExtractor", ["labels", "number"], ["label"], domain=ML),
    ]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "g", [info("x", TensorProto.INT64, ["n"])], [info("label", TensorProto.STRING, None)],
        [numpy_helper.from_array(np.array(LABELS, object), "labels")],
    )  # fmt: skip
    opsets = [helper.make_opsetid(ML, 3), helper.make_opsetid("", 18)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    good = {"x": -np.arange(4)}
    for _ in range(3):
        np.testing.assert_array_equal(session.run(None, good)[0], [LABELS])
    for bad in (1, -4):
        with pytest.raises(OrtError, match="index is out of range"):
            session.run(None, {"x": np.array([0, bad, -1, -2])})
