"""Linear models and feature preparation compiled: against the reference kernels, with NaN, infinities and no rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import ort_core as ort
from ort_core.errors import OrtError

ML = "ai.onnx.ml"
FLOAT, INT64, INT32 = TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT32
COLUMNS = 5
ROWS = (1, 3, 0, 33, 100)
TYPES = {FLOAT: np.float32, INT64: np.int64, INT32: np.int32}
Check = Callable[..., None]


def model_of(
    op_type: str,
    attributes: dict[str, Any],
    outputs: dict[str, int],
    kind: int = FLOAT,
    inputs: tuple[str, ...] = ("x",),
) -> ModelProto:
    """Return a model of one node."""
    info = helper.make_tensor_value_info
    nodes = [helper.make_node(op_type, list(inputs), list(outputs), domain=ML, **attributes)]
    given = [info(name, kind, ["rows", COLUMNS]) for name in inputs]
    graph = helper.make_graph(nodes, "features", given, [info(n, t, None) for n, t in outputs.items()])
    opsets = [helper.make_opsetid(ML, 3), helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def followed(model: ModelProto, output: str) -> ModelProto:
    """Return the model with its float output doubled behind: two nodes are worth a program."""
    node = helper.make_node("Add", [output, output], ["doubled"])
    model.graph.node.append(node)
    del model.graph.output[:]
    model.graph.output.append(helper.make_tensor_value_info("doubled", FLOAT, None))
    return model


def rows(count: int, kind: int = FLOAT, *, special: bool = False) -> np.ndarray:
    random = np.random.default_rng(count)
    data = random.integers(-3, 4, (count, COLUMNS)) / (2 if kind == FLOAT else 1)
    if special:
        for value in (np.nan, np.inf, -np.inf, 0.0):
            data = np.where(random.random(data.shape) < 0.1, value, data)
    return data.astype(TYPES[kind])


def coefficients(count: int) -> list[float]:
    return np.random.default_rng(count).standard_normal(count).astype(np.float32).tolist()


@pytest.mark.parametrize("kind", [FLOAT, INT64], ids=["float32", "int64"])
@pytest.mark.parametrize("targets", [1, 4])
@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX"])
def test_linear_regressor_gives_what_the_reference_gives(check: Check, kind: int, targets: int, transform: str) -> None:
    attributes = {"coefficients": coefficients(targets * COLUMNS), "targets": targets, "post_transform": transform}
    if transform == "NONE":
        attributes["intercepts"] = coefficients(targets)
    model = model_of("LinearRegressor", attributes, {"y": FLOAT}, kind)
    check(model, [{"x": rows(count, kind)} for count in ROWS])


@pytest.mark.parametrize(("classes", "named"), [(1, True), (2, True), (3, True), (1, False)])
@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"])
def test_linear_classifier_gives_what_the_reference_gives(
    check: Check, classes: int, named: bool, transform: str
) -> None:
    attributes: dict[str, Any] = {"coefficients": coefficients(classes * COLUMNS), "post_transform": transform}
    attributes["intercepts"] = coefficients(classes)
    if named:
        attributes["classlabels_ints"] = [10, -4, 3][: max(classes, 2)]
    model = model_of("LinearClassifier", attributes, {"label": INT64, "scores": FLOAT})
    check(model, [{"x": rows(count)} for count in ROWS])


def test_largest_score_is_the_first_of_equal_ones_and_the_first_not_a_number(check: Check) -> None:
    same = np.tile(np.array(coefficients(COLUMNS), np.float32), 4)
    attributes = {"coefficients": same.tolist(), "intercepts": [0.0] * 4, "classlabels_ints": [5, 6, 7, 8]}
    model = model_of("LinearClassifier", attributes, {"label": INT64, "scores": FLOAT})
    check(model, [{"x": rows(count)} for count in ROWS])
    spoilt = rows(40)
    spoilt[::3, 1] = np.nan
    check(model, [{"x": spoilt}])


@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
def test_normalizer_gives_what_the_reference_gives(check: Check, norm: str) -> None:
    model = followed(model_of("Normalizer", {"norm": norm}, {"y": FLOAT}), "y")
    feeds = [{"x": rows(count)} for count in ROWS]
    feeds.append({"x": np.zeros((3, COLUMNS), np.float32)})
    check(model, feeds)


CASES: list[tuple[str, dict[str, Any], int]] = [
    ("Scaler", {"offset": [0.5], "scale": [2.0]}, FLOAT),
    ("Scaler", {"offset": coefficients(COLUMNS), "scale": coefficients(COLUMNS)}, FLOAT),
    ("Scaler", {"offset": [0.0] * COLUMNS, "scale": coefficients(COLUMNS)}, INT64),
    ("Binarizer", {"threshold": 0.5}, FLOAT),
    ("Imputer", {"imputed_value_floats": [7.5], "replaced_value_float": float("nan")}, FLOAT),
    ("Imputer", {"imputed_value_floats": coefficients(COLUMNS), "replaced_value_float": 0.5}, FLOAT),
    ("OneHotEncoder", {"cats_int64s": [-1, 0, 2, 9], "zeros": 1}, INT64),
    ("OneHotEncoder", {"cats_int64s": [-1, 0, 2, -(2**63)], "zeros": 1}, FLOAT),
    ("LabelEncoder", {"keys_floats": [1.0, float("nan"), 1.0], "values_floats": [3.0, 4.0, 5.0]}, FLOAT),
    ("LabelEncoder", {"keys_int64s": [1, 2, -3], "values_floats": [3.0, 4.0, 5.0], "default_float": -9.0}, INT64),
]


@pytest.mark.parametrize(("op_type", "attributes", "kind"), CASES, ids=lambda value: str(value)[:40])
def test_feature_preparation_gives_what_the_reference_gives(
    check: Check, op_type: str, attributes: dict[str, Any], kind: int
) -> None:
    model = followed(model_of(op_type, attributes, {"y": FLOAT}, kind), "y")
    check(model, [{"x": rows(count, kind, special=kind == FLOAT)} for count in ROWS], "rounding")


def test_array_feature_extractor_picks_constant_columns(check: Check) -> None:
    model = model_of("ArrayFeatureExtractor", {}, {"y": FLOAT})
    model.graph.node[0].input.append("positions")
    model.graph.initializer.append(numpy_helper.from_array(np.array([4, 0, 0, 2], np.int64), "positions"))
    scaled = helper.make_node("Scaler", ["y"], ["z"], domain=ML, offset=[0.0], scale=[2.0])
    model.graph.node.append(scaled)
    model.graph.output[0].name = "z"
    check(model, [{"x": rows(count)} for count in ROWS], "exact")


def test_feature_vectorizer_joins_matrices(check: Check) -> None:
    model = model_of("FeatureVectorizer", {"inputdimensions": [COLUMNS, COLUMNS]}, {"y": FLOAT}, INT64, ("x", "z"))
    model = followed(model, "y")
    check(model, [{"x": rows(count, INT64), "z": rows(count, INT64) + 5} for count in ROWS], "exact")


def fed_positions(table: np.ndarray | None) -> bytes:
    """Return a model that picks columns, of a constant table or of a feed, at positions that are fed."""
    node = helper.make_node("ArrayFeatureExtractor", ["x", "positions"], ["y"], domain=ML)
    given = [helper.make_tensor_value_info("positions", INT64, ["M"])]
    if table is None:
        given.append(helper.make_tensor_value_info("x", FLOAT, ["N", 3]))
    constants = [] if table is None else [numpy_helper.from_array(table, "x")]
    graph = helper.make_graph([node], "g", given, [helper.make_empty_tensor_value_info("y")], constants)
    imports = [helper.make_opsetid("", 20), helper.make_opsetid(ML, 3)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9).SerializeToString()


@pytest.mark.parametrize("kind", ["row", "vector", "fed"])
def test_array_feature_extractor_picks_columns_that_are_fed(kind: str) -> None:
    labels = np.array([7, -5, 3], np.int32)
    table = {"row": labels[None], "vector": labels, "fed": None}[kind]
    session = ort.InferenceSession(fed_positions(table), providers=["CPUExecutionProvider"])
    assert "numpy" not in str(session.explain())
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    for positions in ([2, 0, 1, 1, 0], [1]):
        feeds = {"positions": np.array(positions), **({"x": x} if table is None else {})}
        wanted = x[:, positions] if table is None else labels[positions][None]
        np.testing.assert_array_equal(session.run(None, feeds)[0], wanted)
        for bad in (-1, 3, -(2**63), 2**40):
            with pytest.raises(OrtError, match="index is out of range"):
                session.run(None, {**feeds, "positions": np.array([0, bad])})
