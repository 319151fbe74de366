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
    ("OneHotEncoder", {"cats_int64s": [3, -1, 0, 2, 1, -3, -2], "zeros": 0}, INT64),
    ("LabelEncoder", {"keys_floats": [1.0, float("nan"), 1.0], "values_floats": [3.0, 4.0, 5.0]}, FLOAT),
    ("LabelEncoder", {"keys_int64s": [1, 2, -3], "values_floats": [3.0, 4.0, 5.0], "default_float": -9.0}, INT64),
    ("LabelEncoder", {"keys_int64s": [-1, *range(0, 120, 3), -1], "values_floats": coefficients(42)}, INT64),
    ("LabelEncoder", {"keys_int64s": [*range(-40, 60, 2)], "values_floats": coefficients(50)}, INT64),
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


def test_an_unknown_category_is_the_reference_s_error_and_compiled_where_there_is_none(
    compiled: Callable[[ModelProto], ort.InferenceSession],
) -> None:
    attributes = {"cats_int64s": list(range(-3, 4)), "zeros": 0}
    session = compiled(followed(model_of("OneHotEncoder", attributes, {"y": FLOAT}, INT64), "y"))
    assert "numpy" not in str(session.explain())
    for count in ROWS:
        x = rows(count, INT64)
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], 2 * np.eye(7, dtype=np.float32)[x + 3])
    model = followed(model_of("OneHotEncoder", attributes, {"y": FLOAT}, INT64), "y")
    plain = ort.InferenceSession(model.SerializeToString(), providers=["ReferenceExecutionProvider"])
    for unknown in (4, -4, 2**62):
        with pytest.raises(OrtError, match="gave way"):  # they find the words
            session.run(None, {"x": np.full((2, COLUMNS), unknown)})
        with pytest.raises(OrtError, match="Unknown Category"):
            plain.run(None, {"x": np.full((2, COLUMNS), unknown)})


def test_integer_keys_that_lie_far_apart_keep_the_reference() -> None:
    keys = [-(2**63), 2**62, 2**63 - 1, *range(40)]
    attributes = {"keys_int64s": keys, "values_floats": coefficients(43)}
    model = followed(model_of("LabelEncoder", attributes, {"y": FLOAT}, INT64), "y").SerializeToString()
    x = np.array([[0, 39, 40, -(2**63), 2**63 - 1], [2**62, -1, 5, 7, 2**40]])
    found, wanted = (
        ort.InferenceSession(model, providers=[f"{name}ExecutionProvider"]).run(None, {"x": x})[0]
        for name in ("CPU", "Reference")
    )
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("values", ["values_floats", "values_int64s"])
def test_many_integer_keys_are_places_of_a_table(values: str) -> None:
    keys = list(range(-50, 100, 3))
    wanted = coefficients(50) if values == "values_floats" else list(range(1000, 1050))
    kind = FLOAT if values == "values_floats" else INT64
    model = model_of("LabelEncoder", {"keys_int64s": keys, values: wanted}, {"y": kind}, INT64)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    assert "numpy" not in str(session.explain())
    x = np.concatenate([np.arange(-60, 110), [2**63 - 1, -(2**63), 2**40, -(2**40), 7]]).reshape(-1, COLUMNS)
    table = dict(zip(keys, wanted, strict=True))
    default = -0.0 if values == "values_floats" else -1
    expected = [[table.get(int(each), default) for each in row] for row in x]
    found = session.run(None, {"x": x})[0]
    np.testing.assert_array_equal(found, np.array(expected, TYPES[kind]))


def test_array_feature_extractor_picks_columns_of_float64() -> None:
    model = model_of("ArrayFeatureExtractor", {}, {"y": TensorProto.DOUBLE}, TensorProto.DOUBLE)
    model.graph.node[0].input.append("positions")
    model.graph.initializer.append(numpy_helper.from_array(np.array([4, 0, 0, 2], np.int64), "positions"))
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    assert "numpy" not in str(session.explain())
    for count in ROWS:
        x = rows(count).astype(np.float64)
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], x[:, [4, 0, 0, 2]])


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
