"""Tree ensembles: random trees against onnxruntime, and against a walk written as plain recursion."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from ort_core.errors import InvalidArgument
from ort_core.kernels.kernel import KernelContext, Unguarded
from ort_core.kernels.reference.machine_learning import ml_trees

MODES: dict[str, Callable[[float, float], bool]] = {
    "BRANCH_LEQ": lambda x, y: x <= y,
    "BRANCH_LT": lambda x, y: x < y,
    "BRANCH_GTE": lambda x, y: x >= y,
    "BRANCH_GT": lambda x, y: x > y,
    "BRANCH_EQ": lambda x, y: x == y,
    "BRANCH_NEQ": lambda x, y: x != y,
}
AGGREGATES: dict[str, Callable[[Sequence[float], int], float]] = {
    "SUM": lambda scores, trees: sum(scores),
    "AVERAGE": lambda scores, trees: sum(scores) / trees,
    "MIN": lambda scores, trees: min(scores, default=0.0),
    "MAX": lambda scores, trees: max(scores, default=0.0),
}


def context() -> KernelContext:
    return KernelContext("", "ai.onnx.ml", 3, "", (True, True), (None, None), {}, Unguarded())


@dataclass
class Forest:
    """Random trees as the attribute lists of TreeEnsembleRegressor-3."""

    random: np.random.Generator
    features: int
    modes: Sequence[str]
    nodes: list[list[Any]] = field(default_factory=list)
    leaves: list[tuple[int, int]] = field(default_factory=list)

    def grow(self, tree: int, depth: int) -> Forest:
        first = len(self.nodes)

        def add(left: int) -> int:
            number = len(self.nodes) - first
            if left == 0:
                self.nodes.append([tree, number, "LEAF", 0, 0.0, 0, 0])
                self.leaves.append((tree, number))
                return number
            mode = str(self.random.choice(self.modes))
            feature, value = int(self.random.integers(self.features)), float(self.random.integers(-3, 4)) / 2
            self.nodes.append([tree, number, mode, feature, value, 0, 0])
            for child in (5, 6):
                self.nodes[first + number][child] = add(left - 1 if self.random.random() < 0.8 else 0)
            return number

        add(depth)
        return self

    def attributes(self) -> dict[str, Any]:
        names = ("treeids", "nodeids", "modes", "featureids", "values", "truenodeids", "falsenodeids")
        return {f"nodes_{name}": column for name, column in zip(names, zip(*self.nodes, strict=True), strict=True)}

    def leaf_of(self, tree: int, row: np.ndarray, missing: Sequence[int]) -> int:
        place = next(i for i, node in enumerate(self.nodes) if node[0] == tree)
        first = place
        while self.nodes[place][2] != "LEAF":
            _, _, mode, feature, value, yes, no = self.nodes[place]
            goes = MODES[mode](row[feature], value) or (np.isnan(row[feature]) and missing[place])
            place = first + (yes if goes else no)
        return place - first


def forest(seed: int, trees: int = 4, depth: int = 4, modes: Sequence[str] = tuple(MODES)) -> Forest:
    made = Forest(np.random.default_rng(seed), 3, modes)
    for tree in range(trees):
        made.grow(tree, depth)
    return made


def rows_for(made: Forest, dtype: type = np.float32) -> np.ndarray:
    data = (made.random.integers(-4, 5, (25, made.features)) / 2).astype(dtype)
    if np.issubdtype(dtype, np.floating):
        data[made.random.random(data.shape) < 0.1] = np.nan
    return data


@pytest.mark.parametrize("aggregate", sorted(AGGREGATES))
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
@pytest.mark.parametrize("seed", range(4))
def test_regressor_equals_a_walk_by_recursion(aggregate: str, dtype: type, seed: int) -> None:
    made = forest(seed)
    data = rows_for(made, dtype)
    missing = made.random.integers(0, 2, len(made.nodes)).tolist()
    targets = 2
    entries = [(t, n, k) for t, n in made.leaves for k in range(targets) if made.random.random() < 0.7] or [(0, 0, 0)]
    weights = made.random.normal(size=len(entries)).astype(np.float32).tolist()
    tree_ids, node_ids, target_ids = zip(*entries, strict=True)
    found = ml_trees.tree_ensemble_regressor(
        data,
        **made.attributes(),
        nodes_missing_value_tracks_true=tuple(missing),
        target_treeids=tree_ids,
        target_nodeids=node_ids,
        target_ids=target_ids,
        target_weights=tuple(weights),
        n_targets=targets,
        aggregate_function=aggregate,
        base_values=(0.5, -1.0),
        ctx=context(),
    )
    expected = np.zeros((len(data), targets))
    for index, row in enumerate(data):
        reached = {(tree, made.leaf_of(tree, row, missing)) for tree in range(4)}
        for target in range(targets):
            scores = [w for (t, n, k), w in zip(entries, weights, strict=True) if (t, n) in reached and k == target]
            expected[index, target] = AGGREGATES[aggregate](scores, 4) + (0.5, -1.0)[target]
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("classes", [1, 2, 3])
@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"])
def test_classifier_equals_onnxruntime(classes: int, positive: bool, transform: str) -> None:
    made = forest(classes, modes=["BRANCH_LEQ"])
    data = rows_for(made)
    scored = range(classes) if classes > 2 else [0]
    entries = [(t, n, k) for t, n in made.leaves for k in scored]
    weights = made.random.normal(size=len(entries)).astype(np.float32)
    tree_ids, node_ids, class_ids = zip(*entries, strict=True)
    attributes = made.attributes() | {
        "class_treeids": tree_ids,
        "class_nodeids": node_ids,
        "class_ids": class_ids,
        "class_weights": tuple((np.abs(weights) if positive else weights).tolist()),
        "classlabels_int64s": tuple(range(7, 7 + classes)),
        "post_transform": transform,
    }
    label, scores = ml_trees.tree_ensemble_classifier(data, **attributes, ctx=context())
    expected_label, expected = run_onnxruntime(data, attributes)
    assert label.tolist() == expected_label.tolist()
    np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-5)


def run_onnxruntime(data: np.ndarray, attributes: dict[str, Any]) -> list[np.ndarray]:
    node = helper.make_node("TreeEnsembleClassifier", ["x"], ["y", "z"], domain="ai.onnx.ml", **attributes)
    source = helper.make_tensor_value_info("x", TensorProto.FLOAT, None)
    outputs = [helper.make_tensor_value_info(n, t, None) for n, t in (("y", 7), ("z", 1))]
    imports = [helper.make_opsetid("ai.onnx.ml", 3), helper.make_opsetid("", 18)]
    model = helper.make_model(helper.make_graph([node], "g", [source], outputs), opset_imports=imports, ir_version=9)
    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": data})


def stump(**changes: Any) -> dict[str, Any]:
    """One tree of TreeEnsemble-5: feature 0 in the set {1, 5}, else feature 1 <= 2."""
    attributes: dict[str, Any] = {
        "tree_roots": (0,),
        "nodes_featureids": (0, 1),
        "nodes_modes": np.array([6, 0], np.uint8),
        "nodes_splits": np.array([0, 2], np.float32),
        "nodes_truenodeids": (0, 1),
        "nodes_trueleafs": (1, 1),
        "nodes_falsenodeids": (1, 2),
        "nodes_falseleafs": (0, 1),
        "membership_values": np.array([5, 1, np.nan], np.float32),
        "leaf_targetids": (0, 1, 0),
        "leaf_weights": np.array([10, 20, 30], np.float32),
        "n_targets": 2,
    }
    return attributes | changes


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_tree_ensemble_5_decides_by_sets_and_keeps_the_type(dtype: type) -> None:
    data = np.array([[1, 0], [5, 9], [2, 2], [2, 3], [np.nan, 3]], dtype)
    found = ml_trees.tree_ensemble(data, **stump(), ctx=context())
    assert found.dtype == dtype
    assert found.tolist() == [[10, 0], [10, 0], [0, 20], [30, 0], [30, 0]]
    assert ml_trees.tree_ensemble(data[:0], **stump(), ctx=context()).shape == (0, 2)


def test_the_ensemble_is_decoded_once_per_node() -> None:
    ctx = context()
    ml_trees.tree_ensemble(np.zeros((1, 2), np.float32), **stump(), ctx=ctx)
    decoded = ctx.state["ensemble"]
    ml_trees.tree_ensemble(np.zeros((1, 2), np.float32), **stump(), ctx=ctx)
    assert ctx.state["ensemble"] is decoded


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"nodes_falsenodeids": (0, 2)}, "contains a cycle or shared internal node at index 0"),
        ({"leaf_targetids": (0, -1, 0)}, r"cannot have negative values \(-1\)"),
        ({"leaf_targetids": (0, 2, 0)}, "greater or equal to the target/class count"),
        ({"nodes_truenodeids": (0, 9)}, "does not exist"),
        ({"tree_roots": (7,)}, "does not exist"),
        ({"nodes_featureids": (0, -1)}, "must be in"),
        ({"nodes_featureids": (0, 5)}, "must be in"),
        ({"nodes_modes": np.array([6, 9], np.uint8)}, "nodes_modes must be"),
        ({"membership_values": np.array([1], np.float32)}, "membership_values"),
        ({"leaf_weights": np.array([1], np.float32)}, "must have the same size"),
        ({"aggregate_function": 4}, "aggregate_function"),
    ],
)
def test_attributes_that_are_no_trees_are_invalid_arguments(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        ml_trees.tree_ensemble(np.zeros((1, 2), np.float32), **stump(**changes), ctx=context())


def test_nodes_of_version_3_may_share_a_child_but_not_form_a_cycle() -> None:
    shared = {
        "nodes_treeids": (0,) * 4,
        "nodes_nodeids": (0, 1, 2, 3),
        "nodes_modes": ("BRANCH_EQ", "BRANCH_EQ", "LEAF", "LEAF"),
        "nodes_featureids": (0,) * 4,
        "nodes_values": (1.0, 3.0, 0.0, 0.0),
        "nodes_truenodeids": (2, 2, 0, 0),
        "nodes_falsenodeids": (1, 3, 0, 0),
        "target_treeids": (0, 0),
        "target_nodeids": (2, 3),
        "target_ids": (0, 0),
        "target_weights": (1.0, 2.0),
    }
    data = np.array([[1], [3], [2]], np.float32)
    found = ml_trees.tree_ensemble_regressor(data, **shared, ctx=context())
    assert found.tolist() == [[1], [1], [2]]
    cycle = shared | {"nodes_falsenodeids": (1, 0, 0, 0)}
    with pytest.raises(InvalidArgument, match="Cycle detected while folding categorical nodes"):
        ml_trees.tree_ensemble_regressor(data, **cycle, ctx=context())
    orphan = shared | {"target_nodeids": (2, 8)}
    with pytest.raises(InvalidArgument, match="node 8 of tree 0 is referred to and does not exist"):
        ml_trees.tree_ensemble_regressor(data, **orphan, ctx=context())
