"""Tree ensembles compiled: random forests against the reference kernels, for all modes, types, sums and sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import ort_core as ort

ML = "ai.onnx.ml"
FEATURES = 5
ROWS = (1, 0, 7, 8, 13, 300)
MODES = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]
TYPES = {np.float32: TensorProto.FLOAT, np.float64: TensorProto.DOUBLE, np.int64: TensorProto.INT64,
         np.int32: TensorProto.INT32}  # fmt: skip
Check = Callable[..., None]


@dataclass
class Forest:
    """Random trees as attribute lists; values are halves, so that features often equal a threshold."""

    seed: int
    modes: Sequence[str]
    trees: int = 9
    depth: int = 6
    nodes: list[list[Any]] = field(default_factory=list)
    leaves: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)
        for tree in range(self.trees):
            self._grow(tree, len(self.nodes), int(self.random.integers(self.depth + 1)))

    def _grow(self, tree: int, first: int, left: int) -> int:
        number = len(self.nodes) - first
        if left == 0:
            self.nodes.append([tree, number, "LEAF", 0, 0.0, 0, 0])
            self.leaves.append((tree, number))
            return number
        special = [np.inf, -np.inf, 0.0, -0.0, np.nan]
        plain = float(self.random.integers(-3, 4)) / 2
        value = float(self.random.choice(special)) if self.random.random() < 0.1 else plain
        feature = int(self.random.integers(FEATURES))
        self.nodes.append([tree, number, str(self.random.choice(self.modes)), feature, value, 0, 0])
        for child in (5, 6):
            grown = self._grow(tree, first, left - 1 if self.random.random() < 0.8 else 0)
            self.nodes[first + number][child] = grown
        return number

    def attributes(self, *, tracks_missing: bool) -> dict[str, Any]:
        names = ("treeids", "nodeids", "modes", "featureids", "values", "truenodeids", "falsenodeids")
        found = {
            f"nodes_{name}": list(column) for name, column in zip(names, zip(*self.nodes, strict=True), strict=True)
        }
        if tracks_missing:
            found["nodes_missing_value_tracks_true"] = self.random.integers(0, 2, len(self.nodes)).tolist()
        return found

    def entries(self, prefix: str, targets: Sequence[int], *, share: float, positive: bool = False) -> dict[str, Any]:
        """Return leaf entries: each leaf scores each of the targets with probability ``share``."""
        kept = [(t, n, k) for t, n in self.leaves for k in targets if self.random.random() < share]
        kept = kept or [(*self.leaves[0], targets[0])]
        weights = self.random.standard_normal(len(kept)).astype(np.float32)
        trees, nodes, ids = zip(*kept, strict=True)
        chosen = np.abs(weights) if positive else weights
        return {f"{prefix}_treeids": trees, f"{prefix}_nodeids": nodes, f"{prefix}_ids": ids,
                f"{prefix}_weights": chosen.tolist()}  # fmt: skip


def rows(count: int, dtype: type, seed: int = 0) -> np.ndarray:
    """Return features that often equal a threshold; floats with NaN and infinities."""
    random = np.random.default_rng(seed + count)
    data = random.integers(-4, 5, (count, FEATURES)) / 2
    if np.issubdtype(dtype, np.floating):
        for value in (np.nan, np.inf, -np.inf, -0.0):
            data = np.where(random.random(data.shape) < 0.05, value, data)
    return data.astype(dtype)


def model_of(op_type: str, attributes: dict[str, Any], dtype: type, opset: int = 3) -> ModelProto:
    info = helper.make_tensor_value_info
    classifies = op_type == "TreeEnsembleClassifier"
    outputs = [info("label", TensorProto.INT64, None), info("scores", TensorProto.FLOAT, None)]
    single = [info("y", TYPES[dtype] if op_type == "TreeEnsemble" else TensorProto.FLOAT, None)]
    chosen = outputs if classifies else single
    node = helper.make_node(op_type, ["x"], [o.name for o in chosen], domain=ML, **attributes)
    graph = helper.make_graph([node], "trees", [info("x", TYPES[dtype], [None, FEATURES])], chosen)
    opsets = [helper.make_opsetid(ML, opset), helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


@pytest.mark.parametrize("dtype", TYPES, ids=lambda dtype: dtype.__name__)
@pytest.mark.parametrize("tracks_missing", [False, True], ids=["plain", "missing"])
@pytest.mark.parametrize("modes", [MODES[:2], MODES], ids=["less", "all"])
def test_regressor_gives_what_the_reference_gives(
    check: Check, dtype: type, tracks_missing: bool, modes: Sequence[str]
) -> None:
    forest = Forest(len(modes), modes)
    attributes = forest.attributes(tracks_missing=tracks_missing)
    attributes |= forest.entries("target", range(2), share=0.7) | {"n_targets": 2, "base_values": [0.5, -1.0]}
    model = model_of("TreeEnsembleRegressor", attributes, dtype)
    check(model, [{"x": rows(count, dtype)} for count in ROWS])


@pytest.mark.parametrize("targets", [1, 3, 12])
@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
def test_every_aggregate_gives_what_the_reference_gives(check: Check, aggregate: str, targets: int) -> None:
    forest = Forest(targets, MODES[:1], trees=17)
    share = 0.1 if targets == 12 else 0.8  # few of many targets: leaves that list their entries
    attributes = forest.attributes(tracks_missing=False) | forest.entries("target", range(targets), share=share)
    attributes |= {"n_targets": targets, "aggregate_function": aggregate}
    check(model_of("TreeEnsembleRegressor", attributes, np.float32), [{"x": rows(n, np.float32)} for n in ROWS])


@pytest.mark.parametrize("scored", [(0,), (1,), (0, 1), (0, 1, 2), (0, 2, 3, 4)])
@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"])
def test_classifier_gives_what_the_reference_gives(check: Check, scored: tuple[int, ...], transform: str) -> None:
    positive = (sum(scored) + len(transform)) % 2 == 0
    classes = max(2, max(scored) + 1)
    forest = Forest(sum(scored), MODES[:1])
    attributes = forest.attributes(tracks_missing=False)
    attributes |= forest.entries("class", scored, share=0.9, positive=positive)
    labels = [0, 1] if scored == (0, 1) else [7 * c - 3 for c in range(classes)]  # others run by the kernels
    attributes |= {"classlabels_int64s": labels, "post_transform": transform}
    if positive and (classes > 2 or scored == (0,)):
        attributes["base_values"] = [0.1 * (c + 1) for c in range(classes if classes > 2 else 1)]
    check(model_of("TreeEnsembleClassifier", attributes, np.float32), [{"x": rows(n, np.float32)} for n in ROWS])


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("members", [[1.0], [-1.0, 0.0, 2.0], [-2.0, -1.5, -1.0, 0.5, 1.0, 1.5, 2.0], []])
@pytest.mark.parametrize("missing", [0, 1])
def test_membership_gives_what_the_reference_gives(
    check: Check, dtype: type, members: list[float], missing: int
) -> None:
    def tensor(values: Sequence[float], kind: Any = dtype) -> Any:
        return numpy_helper.from_array(np.array(values, kind))

    attributes = {
        "n_targets": 1, "aggregate_function": 1, "post_transform": 0, "tree_roots": [0],
        "nodes_modes": tensor([6, 0], np.uint8), "nodes_featureids": [2, 0], "nodes_splits": tensor([0.0, 0.5]),
        "nodes_truenodeids": [1, 0], "nodes_trueleafs": [0, 1], "nodes_falsenodeids": [2, 1],
        "nodes_falseleafs": [1, 1], "nodes_missing_value_tracks_true": [missing, 0],
        "membership_values": tensor([*members, np.nan]), "leaf_targetids": [0, 0, 0],
        "leaf_weights": tensor([5.0, 12.0, -4.0]),
    }  # fmt: skip
    check(model_of("TreeEnsemble", attributes, dtype, 5), [{"x": rows(count, dtype)} for count in ROWS])


def test_float64_thresholds_decide_about_float32_features(check: Check) -> None:
    forest = Forest(3, MODES)
    attributes = forest.attributes(tracks_missing=False) | forest.entries("target", [0], share=1.0)
    attributes["n_targets"] = 1
    halves = np.array(attributes.pop("nodes_values"))
    near = np.where(np.isfinite(halves), halves * (1 + 2.0**-40), halves)  # between two float32
    attributes["nodes_values_as_tensor"] = numpy_helper.from_array(near)
    weights = np.array(attributes.pop("target_weights")) * (1 + 2.0**-30)
    attributes["target_weights_as_tensor"] = numpy_helper.from_array(weights)
    check(model_of("TreeEnsembleRegressor", attributes, np.float32), [{"x": rows(n, np.float32)} for n in ROWS])


def test_wide_rows_of_unknown_width_are_read_where_they_are(check: Check) -> None:
    forest = Forest(4, MODES[:1])
    attributes = forest.attributes(tracks_missing=False) | forest.entries("target", [0], share=1.0)
    attributes["n_targets"] = 1
    model = model_of("TreeEnsembleRegressor", attributes, np.float32)
    model.graph.input[0].type.tensor_type.shape.dim[1].Clear()
    wide = [np.concatenate([rows(n, np.float32), np.zeros((n, 4), np.float32)], axis=1) for n in ROWS]
    check(model, [{"x": data} for data in wide])


def test_too_few_columns_are_the_same_error_as_of_the_reference() -> None:
    forest = Forest(4, MODES[:1])
    attributes = forest.attributes(tracks_missing=False) | forest.entries("target", [0], share=1.0)
    attributes["n_targets"] = 1
    model = model_of("TreeEnsembleRegressor", attributes, np.float32)
    model.graph.input[0].type.tensor_type.shape.dim[1].Clear()
    texts = []
    for provider in ("CPUExecutionProvider", "ReferenceExecutionProvider"):
        session = ort.InferenceSession(model.SerializeToString(), providers=[provider])
        with pytest.raises(ort.OrtError, match="featureid") as error:
            session.run(None, {"x": np.zeros((3, 2), np.float32)})
        texts.append(str(error.value))
    assert texts[0] == texts[1]


def test_classifier_gives_the_same_bits_with_any_number_of_threads(same_bits: Check) -> None:
    forest = Forest(2, MODES, trees=33)
    attributes = forest.attributes(tracks_missing=True) | forest.entries("class", range(3), share=0.9)
    attributes |= {"classlabels_int64s": [1, 2, 3], "post_transform": "SOFTMAX"}
    same_bits(model_of("TreeEnsembleClassifier", attributes, np.float32), {"x": rows(301, np.float32)})


def test_deep_chain_is_walked_to_its_end(check: Check) -> None:
    depth = 300
    nodes = [[0, 2 * i, "BRANCH_LEQ", 0, float(i), 2 * i + 1, 2 * i + 2] for i in range(depth)]
    leaves = [[0, 2 * i + 1, "LEAF", 0, 0.0, 0, 0] for i in range(depth)]
    leaves.append([0, 2 * depth, "LEAF", 0, 0.0, 0, 0])
    forest = Forest(0, MODES[:1], trees=0)
    forest.nodes = nodes + leaves
    forest.leaves = [(0, leaf[1]) for leaf in leaves]
    attributes = forest.attributes(tracks_missing=False) | forest.entries("target", [0], share=1.0)
    attributes["n_targets"] = 1
    data = np.zeros((600, FEATURES), np.float32)
    data[:, 0] = np.arange(600) / 2 + 0.25
    check(model_of("TreeEnsembleRegressor", attributes, np.float32), [{"x": data}, {"x": data[-1:]}])
