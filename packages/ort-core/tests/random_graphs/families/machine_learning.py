"""ai.onnx.ml: trees, linear models, support vectors, features, labels."""

from __future__ import annotations

from typing import Any

import numpy as np

from random_graphs import element_types as et
from random_graphs.family import family
from random_graphs.writer import GraphWriter, Refused, Value

ML = "ai.onnx.ml"


def rows(g: GraphWriter, *dtypes: et.ElementType) -> Value:
    """Return a table of features."""
    return g.pick(*(dtypes or (et.F32,)), rank=2, filled=True)


@family()
def scaler(g: GraphWriter) -> Value:
    value = rows(g, et.F32, et.F32, et.I64, et.F64)
    count = g.choice((1, value.size(1)))
    given = {name: g.numbers.uniform(0.5, 2, count).tolist() for name in ("offset", "scale")}
    return g.node("Scaler", [value], domain=ML, **given)


@family()
def normalizer(g: GraphWriter) -> Value:
    return g.node("Normalizer", [rows(g)], domain=ML, norm=g.choice(("MAX", "L1", "L2")))


@family()
def imputer(g: GraphWriter) -> Value:
    value = rows(g)
    return g.node(
        "Imputer", [value], domain=ML, imputed_value_floats=[0.5], replaced_value_float=g.choice((0.0, float("nan")))
    )


@family()
def binarizer(g: GraphWriter) -> Value:
    return g.node("Binarizer", [rows(g)], domain=ML, threshold=g.choice((0.0, 0.5)))


@family()
def feature_vectorizer(g: GraphWriter) -> Value:
    value = rows(g)
    return g.node("FeatureVectorizer", [value, value], domain=ML, inputdimensions=[value.size(1)] * 2)


@family()
def array_feature_extractor(g: GraphWriter) -> Value:
    value = rows(g, et.F32, et.I64)
    found = g.numbers.integers(0, value.size(1), g.choice((1, 3)))
    return g.node("ArrayFeatureExtractor", [value, g.constant(found.astype(np.int64))], domain=ML)


@family()
def linear_regressor(g: GraphWriter) -> Value:
    value, targets = rows(g, et.F32, et.F32, et.F64), g.choice((1, 2, 17))
    bias = g.numbers.uniform(-1, 1, targets).tolist() if g.chance(0.7) else None
    weights = g.numbers.uniform(-1, 1, targets * value.size(1)).tolist()
    return g.node("LinearRegressor", [value], domain=ML, coefficients=weights, intercepts=bias, targets=targets)


@family()
def linear_classifier(g: GraphWriter) -> list[Value]:
    value, classes = rows(g, et.F32, et.F32, et.F64), g.choice((2, 3))
    return g.node(
        "LinearClassifier", [value], 2, domain=ML, classlabels_ints=[3, 7, 9][:classes],
        coefficients=g.numbers.uniform(-1, 1, classes * value.size(1)).tolist(),
        intercepts=g.numbers.uniform(-1, 1, classes).tolist(),
        post_transform=g.choice(("NONE", "SOFTMAX", "LOGISTIC")),
    )  # fmt: skip


def forest(g: GraphWriter, features: int, trees: int) -> tuple[dict[str, list[Any]], list[tuple[int, int]]]:
    """Return the nodes of random trees, and tree and node of each leaf."""
    columns: dict[str, list[Any]] = {
        f"nodes_{name}": []
        for name in ("treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids")
    }
    leaves: list[tuple[int, int]] = []

    def add(tree: int, node: int, mode: str, yes: int, no: int) -> None:
        row = (tree, node, g.random.randrange(features), mode, float(np.float32(g.random.uniform(-1, 1))), yes, no)
        for column, item in zip(columns.values(), row, strict=True):
            column.append(item)

    for tree in range(trees):
        depth = g.choice((0, 1, 2, 3))
        inner = 2**depth - 1
        mode = g.choice(("BRANCH_LEQ", "BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT"))
        for node in range(inner):
            add(tree, node, mode, 2 * node + 1, 2 * node + 2)
        for node in range(inner, 2 * inner + 1):
            add(tree, node, "LEAF", 0, 0)
            leaves.append((tree, node))
    return columns, leaves


@family(2)
def tree_regressor(g: GraphWriter) -> Value:
    if g.ml_version > 3:
        raise Refused("an older operator")
    value, targets = rows(g, et.F32, et.F32, et.F64), g.choice((1, 1, 2))
    columns, leaves = forest(g, value.size(1), g.choice((1, 3, 9)))
    return g.node(
        "TreeEnsembleRegressor", [value], domain=ML, **columns, n_targets=targets,
        target_treeids=[tree for tree, _ in leaves], target_nodeids=[node for _, node in leaves],
        target_ids=[g.random.randrange(targets) for _ in leaves],
        target_weights=[float(np.float32(g.random.uniform(-1, 1))) for _ in leaves],
        aggregate_function=g.choice((None, "SUM", "AVERAGE", "MIN", "MAX")),
    )  # fmt: skip


@family()
def tree_classifier(g: GraphWriter) -> list[Value]:
    if g.ml_version > 3:
        raise Refused("an older operator")
    value, classes = rows(g), g.choice((2, 3))
    columns, leaves = forest(g, value.size(1), g.choice((1, 3, 9)))
    places = [(leaf, label) for leaf in leaves for label in range(classes)]
    return g.node(
        "TreeEnsembleClassifier", [value], 2, domain=ML, **columns, classlabels_int64s=[3, 7, 9][:classes],
        class_treeids=[leaf[0] for leaf, _ in places], class_nodeids=[leaf[1] for leaf, _ in places],
        class_ids=[label for _, label in places],
        class_weights=[float(np.float32(g.random.uniform(0, 1))) for _ in places],
        post_transform=g.choice(("NONE", "SOFTMAX")),
    )  # fmt: skip


@family()
def support_vectors(g: GraphWriter) -> Value:
    value, count = rows(g), g.choice((1, 4, 9))
    kernel = g.choice(("LINEAR", "RBF", "SIGMOID"))
    return g.node(
        "SVMRegressor", [value], domain=ML, coefficients=g.numbers.uniform(-1, 1, count).tolist(), n_supports=count,
        support_vectors=g.numbers.uniform(-1, 1, count * value.size(1)).tolist(), rho=[0.25], kernel_type=kernel,
        kernel_params=[0.1, 0.5, 2.0],
    )  # fmt: skip


@family()
def label_encoder(g: GraphWriter) -> Value:
    """Numbers to text and back."""
    value = g.pick(et.I64)
    text = g.node("LabelEncoder", [value], domain=ML, keys_int64s=[0, 1, 2, 5], values_strings=["a", "b", "c", "d"])
    return g.node(
        "LabelEncoder", [text], domain=ML, keys_strings=["a", "b", "d"], values_int64s=[4, 9, -1], default_int64=7
    )


@family()
def one_hot_encoder(g: GraphWriter) -> Value:
    value = g.pick(et.I64, most=3)
    return g.node("OneHotEncoder", [value], domain=ML, cats_int64s=[0, 1, 2, 7], zeros=1)


@family()
def support_classifier(g: GraphWriter) -> list[Value]:
    value, count = rows(g), g.choice((1, 4))
    return g.node(
        "SVMClassifier", [value], 2, domain=ML, classlabels_ints=[2, 5], vectors_per_class=[count, count],
        coefficients=g.numbers.uniform(-1, 1, 2 * count).tolist(), rho=[0.25], kernel_params=[0.1, 0.5, 2.0],
        support_vectors=g.numbers.uniform(-1, 1, 2 * count * value.size(1)).tolist(),
        kernel_type=g.choice(("LINEAR", "RBF")),
    )  # fmt: skip


@family()
def categories(g: GraphWriter) -> Value:
    value = g.pick(et.I64)
    text = g.node("CategoryMapper", [value], domain=ML, cats_int64s=[0, 1, 2], cats_strings=["a", "b", "c"])
    return g.node("CategoryMapper", [text], domain=ML, cats_int64s=[5, 6, 7], cats_strings=["c", "a", "_Unused"])
