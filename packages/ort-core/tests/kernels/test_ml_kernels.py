"""Kernels of ai.onnx.ml: features, encoders and maps against their formulas; models against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from ort_core.errors import InvalidArgument
from ort_core.ir.types import DataType, TensorType
from ort_core.kernels.kernel import KernelContext, Unguarded
from ort_core.kernels.reference.machine_learning import ml_features, ml_linear, ml_maps, ml_svm

TRANSFORMS = ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"]


def context(output: TensorType | None = None) -> KernelContext:
    return KernelContext("", "ai.onnx.ml", 5, "", (True,), (output,), {}, Unguarded())


def run_onnxruntime(op_type: str, data: np.ndarray, attributes: dict[str, Any], *types: int) -> list[np.ndarray]:
    """Return what onnxruntime computes for one node of ai.onnx.ml."""
    names = [f"y{i}" for i in range(len(types))]
    node = helper.make_node(op_type, ["x"], names, domain="ai.onnx.ml", **attributes)
    source = helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(data.dtype), None)
    outputs = [helper.make_tensor_value_info(n, t, None) for n, t in zip(names, types)]
    imports = [helper.make_opsetid("ai.onnx.ml", 3), helper.make_opsetid("", 18)]
    model = helper.make_model(helper.make_graph([node], "g", [source], outputs), opset_imports=imports, ir_version=9)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": data})


def assert_like(found: Any, expected: list[np.ndarray]) -> None:
    found = found if isinstance(found, tuple) else (found,)
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.dtype == theirs.dtype
        assert mine.shape == theirs.shape
        if theirs.dtype.kind == "f":
            np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)
        else:
            assert mine.tolist() == theirs.tolist()


def as_kernel(attributes: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in attributes.items()}


def floats(random: np.random.Generator, *shape: int) -> list[float]:
    return random.normal(size=shape).astype(np.float32).reshape(-1).tolist()


@pytest.mark.parametrize("classes", [1, 2, 4])
@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.int32])
def test_linear_classifier_equals_onnxruntime(classes: int, transform: str, dtype: type) -> None:
    random = np.random.default_rng(classes)
    data = random.integers(-3, 4, (7, 3)).astype(dtype)
    labels = [f"label{i}" for i in range(max(classes, 2))]
    attributes = {
        "coefficients": floats(random, classes, 3),
        "intercepts": floats(random, classes),
        "post_transform": transform,
        "classlabels_strings": labels,
    }
    expected = run_onnxruntime("LinearClassifier", data, attributes, TensorProto.STRING, TensorProto.FLOAT)
    assert_like(ml_linear.linear_classifier(data, **as_kernel(attributes)), expected)


@pytest.mark.parametrize("targets", [1, 3])
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_linear_regressor_equals_onnxruntime(targets: int, transform: str) -> None:
    random = np.random.default_rng(targets)
    data = random.normal(size=(5, 4)).astype(np.float32)
    attributes = {"coefficients": floats(random, targets, 4), "intercepts": floats(random, targets)}
    attributes |= {"targets": targets, "post_transform": transform}
    expected = run_onnxruntime("LinearRegressor", data, attributes, TensorProto.FLOAT)
    assert_like(ml_linear.linear_regressor(data, **as_kernel(attributes)), expected)
    assert ml_linear.linear_regressor(data[:0], **as_kernel(attributes)).shape == (0, targets)


@pytest.mark.parametrize("kind", ["LINEAR", "POLY", "RBF", "SIGMOID"])
@pytest.mark.parametrize("supports", [0, 4])
@pytest.mark.parametrize("one_class", [0, 1])
def test_svm_regressor_equals_onnxruntime(kind: str, supports: int, one_class: int) -> None:
    random = np.random.default_rng(3)
    data = random.normal(size=(6, 3)).astype(np.float32)
    attributes: dict[str, Any] = {"kernel_type": kind, "kernel_params": [0.5, 0.25, 2.0], "rho": [0.125]}
    attributes |= {"one_class": one_class, "coefficients": floats(random, supports or 3)}
    if supports:
        attributes |= {"n_supports": supports, "support_vectors": floats(random, supports, 3)}
    expected = run_onnxruntime("SVMRegressor", data, attributes, TensorProto.FLOAT)
    assert_like(ml_svm.svm_regressor(data, **as_kernel(attributes)), expected)


def test_distances_of_support_vectors_keep_their_digits_far_from_zero() -> None:
    random = np.random.default_rng(7)
    data, support = (3000 + random.normal(size=(count, 3)).astype(np.float32) for count in (6, 4))
    attributes: dict[str, Any] = {
        "kernel_type": "RBF", "kernel_params": [0.5, 0.0, 0.0], "rho": [0.0], "coefficients": [1.0, 2.0, 3.0, 4.0],
        "n_supports": 4, "support_vectors": support.ravel().tolist(),
    }  # fmt: skip
    far = np.concatenate([data, [[np.inf, 0, 0]]]).astype(np.float32)
    squares = np.square(far.astype(np.float64)[:, None] - support.astype(np.float64)).sum(-1)
    expected = np.exp(-0.5 * squares) @ [1.0, 2.0, 3.0, 4.0]
    for found in (
        ml_svm.svm_regressor(far, **as_kernel(attributes)),
        run_onnxruntime("SVMRegressor", far, attributes, TensorProto.FLOAT)[0],
    ):
        np.testing.assert_allclose(found.ravel(), expected, rtol=1e-3)
    classes: dict[str, Any] = {
        "kernel_type": "RBF", "kernel_params": [0.5, 0.0, 0.0], "rho": [0.1], "coefficients": [1.0, 2.0, -3.0, -4.0],
        "support_vectors": support.ravel().tolist(), "vectors_per_class": [2, 2], "classlabels_ints": [0, 1],
    }  # fmt: skip
    wanted = run_onnxruntime("SVMClassifier", far, classes, TensorProto.INT64, TensorProto.FLOAT)
    assert_like(ml_svm.svm_classifier(far, **as_kernel(classes)), wanted)


@pytest.mark.parametrize("kind", ["LINEAR", "POLY", "RBF", "SIGMOID"])
@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("probabilities", [False, True])
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_svm_classifier_equals_onnxruntime(kind: str, classes: int, probabilities: bool, transform: str) -> None:
    random = np.random.default_rng(classes)
    data = random.normal(size=(9, 3)).astype(np.float32)
    counts = [2, 1, 3, 2][:classes]
    pairs = classes * (classes - 1) // 2
    attributes: dict[str, Any] = {
        "kernel_type": kind,
        "kernel_params": [0.5, 0.25, 2.0],
        "post_transform": transform,
        "vectors_per_class": counts,
        "support_vectors": floats(random, sum(counts), 3),
        "coefficients": floats(random, classes - 1, sum(counts)),
        "rho": floats(random, pairs),
        "classlabels_ints": list(range(5, 5 + classes)),
    }
    if probabilities:
        attributes |= {"prob_a": [-abs(x) for x in floats(random, pairs)], "prob_b": floats(random, pairs)}
    expected = run_onnxruntime("SVMClassifier", data, attributes, TensorProto.INT64, TensorProto.FLOAT)
    assert_like(ml_svm.svm_classifier(data, **as_kernel(attributes)), expected)


def test_linear_svm_classifier_equals_onnxruntime() -> None:
    random = np.random.default_rng(5)
    data = random.normal(size=(9, 3)).astype(np.float32)
    for classes in (2, 3):
        attributes = {"coefficients": floats(random, classes, 3), "rho": [0.5], "kernel_type": "LINEAR"}
        attributes["kernel_params"] = [0.0, 0.0, 0.0]
        attributes["classlabels_strings"] = [f"c{i}" for i in range(classes)]
        expected = run_onnxruntime("SVMClassifier", data, attributes, TensorProto.STRING, TensorProto.FLOAT)
        assert_like(ml_svm.svm_classifier(data, **as_kernel(attributes)), expected)


@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
@pytest.mark.parametrize("shape", [(4,), (3, 4), (0, 4)])
@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_normalizer_equals_its_formula_and_leaves_zero_rows(norm: str, shape: tuple[int, ...], dtype: type) -> None:
    data = np.arange(int(np.prod(shape))).reshape(shape).astype(dtype)
    rows = data.reshape(-1, 4).astype(np.float64)
    size = {"MAX": rows.max(1), "L1": np.abs(rows).sum(1), "L2": np.sqrt((rows**2).sum(1))}[norm][:, None]
    expected = (rows / np.where(size == 0, 1, size)).astype(np.float32).reshape(shape)
    assert_like(ml_features.normalizer(data, norm=norm), [expected])
    assert ml_features.normalizer(np.zeros((1, 3)), norm=norm).tolist() == [[0, 0, 0]]


def test_scaler_binarizer_and_imputer_follow_their_formulas() -> None:
    data = np.array([[1.0, np.nan], [3.0, 4.0]], np.float32)
    assert ml_features.scaler(data[:, :1], offset=(1.0,), scale=(2.0,)).tolist() == [[0], [4]]
    assert ml_features.scaler(data[1:], offset=(1.0, 2.0), scale=(2.0, 0.5)).tolist() == [[4, 1]]
    assert ml_features.binarizer(data[:, 0], threshold=1.0).tolist() == [0, 1]
    filled = ml_features.imputer(data, imputed_value_floats=(7.0, 8.0), replaced_value_float=float("nan"))
    assert filled.tolist() == [[1, 8], [3, 4]]
    whole = ml_features.imputer(np.array([[1, 2]]), imputed_value_int64s=(9,), replaced_value_int64=2)
    assert whole.tolist() == [[1, 9]]
    with pytest.raises(InvalidArgument, match="expected 1 or 2"):
        ml_features.scaler(data, scale=(1.0, 2.0, 3.0))


def test_feature_vectorizer_cuts_and_fills_up() -> None:
    found = ml_features.feature_vectorizer(np.array([[1, 2, 3]]), np.array([[4.5]]), inputdimensions=(2, 3))
    assert found.tolist() == [[1, 2, 4.5, 0, 0]]
    assert found.dtype == np.float32


def test_array_feature_extractor_reads_the_last_dimension() -> None:
    data = np.arange(6).reshape(2, 3)
    assert ml_features.array_feature_extractor(data, np.array([[2, 0]])).tolist() == [[2, 0], [5, 3]]
    assert ml_features.array_feature_extractor(data[0], np.array([1])).tolist() == [[1]]
    for bad in ([3], [-1], []):
        with pytest.raises(InvalidArgument, match="Invalid Y argument"):
            ml_features.array_feature_extractor(data, np.array(bad, np.int64))


def test_one_hot_encoder_marks_categories_of_numbers_and_strings() -> None:
    found = ml_features.one_hot_encoder(np.array([[1.7, 9.0]], np.float32), cats_int64s=(9, 1))
    assert found.tolist() == [[[0, 1], [1, 0]]]
    words = np.array(["b", "?"], object)
    assert ml_features.one_hot_encoder(words, cats_strings=("a", "b")).tolist() == [[0, 1], [0, 0]]
    assert ml_features.one_hot_encoder(words[:0], cats_strings=("a", "b")).shape == (0, 2)
    with pytest.raises(InvalidArgument, match="Unknown Category"):
        ml_features.one_hot_encoder(words, cats_strings=("a", "b"), zeros=0)


def test_label_encoder_maps_between_all_kinds_of_lists() -> None:
    encode = ml_maps.label_encoder
    words = np.array([["a", "?"], ["b", "a"]], object)
    assert encode(words, keys_strings=("a", "b", "a"), values_int64s=(1, 2, 3)).tolist() == [[1, -1], [2, 1]]
    numbers = np.array([1.5, np.nan, 2.0], np.float32)
    found = encode(numbers, keys_floats=(np.nan, 1.5), values_strings=("nan", "x"), default_string="?")
    assert found.tolist() == ["x", "nan", "?"]
    tensor = encode(
        np.array([3, 4], np.int16),
        keys_tensor=np.array([3], np.int16),
        values_tensor=np.array([0.5]),
        default_tensor=np.array([9.0]),
    )
    assert tensor.tolist() == [0.5, 9.0]
    assert tensor.dtype == np.float64
    assert encode(words[:0], keys_strings=("a",), values_floats=(1.0,)).shape == (0, 2)
    with pytest.raises(InvalidArgument, match="2 keys for 1 values"):
        encode(words, keys_strings=("a", "b"), values_int64s=(1,))


def test_label_encoder_1_and_category_mapper_go_both_ways() -> None:
    assert ml_maps.label_encoder_1(np.array(["b", "?"], object), classes_strings=("a", "b")).tolist() == [1, -1]
    assert ml_maps.label_encoder_1(np.array([1, -1, 2]), classes_strings=("a", "b")).tolist() == ["b", *["_Unused"] * 2]
    categories = {"cats_int64s": (5, 6), "cats_strings": ("x", "y")}
    assert ml_maps.category_mapper(np.array(["y", "?"], object), **categories).tolist() == [6, -1]
    assert ml_maps.category_mapper(np.array([5, 7]), **categories).tolist() == ["x", "_Unused"]


def test_maps_become_rows_and_rows_become_maps() -> None:
    assert ml_maps.cast_map({2: 3.0, 0: 1.0}).tolist() == [[1, 3]]
    assert ml_maps.cast_map({2: "3", 0: "1"}, map_form="SPARSE", max_map=3).tolist() == [[1, 0, 3]]
    assert ml_maps.cast_map({1: 2.5}, cast_to="TO_INT64").tolist() == [[2]]
    with pytest.raises(InvalidArgument, match="cannot be read as TO_FLOAT"):
        ml_maps.cast_map({0: "one"})
    double = context(TensorType(DataType.DOUBLE))
    found = ml_maps.dict_vectorizer({"a": 1.5, "z": 2.0}, string_vocabulary=("z", "b", "a"), ctx=double)
    assert found.tolist() == [[2, 0, 1.5]]
    assert found.dtype == np.float64
    scores = np.array([[0.25, 0.75]], np.float32)
    assert ml_maps.zip_map(scores, classlabels_strings=("n", "y")) == [{"n": 0.25, "y": 0.75}]
    assert ml_maps.zip_map(scores[0], classlabels_int64s=(0, 1)) == [{0: 0.25, 1: 0.75}]
    with pytest.raises(InvalidArgument, match="number of classlabels"):
        ml_maps.zip_map(scores, classlabels_int64s=(0,))
