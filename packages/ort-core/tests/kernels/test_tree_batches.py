"""Tree ensemble nodes that are decoded together come to what each of them comes to alone."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

from ort_core.cpu.lowering.tree_tables import tables_of, tree_tables
from ort_core.ir.attributes import Attribute
from ort_core.kernels.reference.machine_learning.tree_batches import tree_models
from ort_core.kernels.reference.machine_learning.tree_ensemble import TreeShares
from ort_core.kernels.reference.machine_learning.tree_nodes import tree_model

MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")


def grow(random: np.random.Generator, ids: list[int], rows: list[dict], depth: int) -> int:
    """Append the nodes of a random tree, children before parents; return the root's id."""
    own = ids.pop()
    row = {"nodeids": own, "featureids": int(random.integers(0, 5)), "truenodeids": 0, "falsenodeids": 0}
    row.update(modes="LEAF", values=0.0, missing_value_tracks_true=int(random.integers(0, 2)))
    if depth and random.random() < 0.8:
        row["modes"] = MODES[random.integers(0, 6)]
        row["values"] = float(random.choice([0.5, -1.0, np.nan, 3.0]))
        row["truenodeids"], row["falsenodeids"] = (grow(random, ids, rows, depth - 1) for _ in range(2))
    rows.append(row)
    return own


def node(seed: int, op_type: str) -> tuple[str, dict[str, Attribute]]:
    """Return a node of one to three random trees."""
    random = np.random.default_rng(seed)
    prefix = "class" if op_type == "TreeEnsembleClassifier" else "target"
    lists: dict[str, list] = {}
    for tree in random.permutation(10)[: random.integers(1, 4)].tolist():
        rows: list[dict] = []
        grow(random, random.permutation(40).tolist(), rows, 3)
        for row in rows:
            for name, value in {"treeids": tree, **row}.items():
                lists.setdefault(f"nodes_{name}", []).append(value)
            for target in random.permutation(3)[: random.integers(0, 3)].tolist() if row["modes"] == "LEAF" else ():
                entry = {"treeids": tree, "nodeids": row["nodeids"], "ids": target}
                for name, value in {**entry, "weights": float(random.normal())}.items():
                    lists.setdefault(f"{prefix}_{name}", []).append(value)
    own = {"n_targets": 3 + seed % 2} if prefix == "target" else {"classlabels_int64s": [0, 1, 2]}
    if seed % 3 == 0:
        lists["base_values"] = [0.5, 0.25, 1.0]
    return op_type, {name: Attribute.of(name, value) for name, value in {**lists, **own}.items()}


def nodes(count: int) -> list[tuple[str, dict[str, Attribute]]]:
    found = (node(seed, ("TreeEnsembleRegressor", "TreeEnsembleClassifier")[seed % 2]) for seed in range(count))
    return [each for each in found if any(name.endswith("_weights") for name in each[1])]  # leaves without entries


def assert_same(first: object, second: object) -> None:
    """Compare dataclasses field by field, arrays to the bit."""
    for field in fields(first):
        left, right = getattr(first, field.name), getattr(second, field.name)
        if isinstance(left, np.ndarray):
            assert (left.dtype, left.shape) == (right.dtype, right.shape), field.name
            assert left.tobytes() == right.tobytes(), field.name
        elif hasattr(left, "__dataclass_fields__"):
            assert_same(left, right)
        else:
            assert left == right, field.name


def test_nodes_decoded_together_come_to_what_each_comes_to_alone():
    given = nodes(60)
    batch = tree_models(given)
    assert batch is not None
    assert len(batch.models) == len(given) > 50
    for together, (op_type, attributes) in zip(batch.models, given, strict=True):
        assert_same(together, tree_model(op_type, attributes))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_tables_laid_out_together_are_those_of_each_alone(dtype):
    batch = tree_models(nodes(60))
    assert batch is not None
    tables = tables_of(batch.joined, batch.shares, np.dtype(dtype))
    for together, model in zip(tables, batch.models, strict=True):
        assert_same(together, tree_tables(model.ensemble, np.dtype(dtype)))


def test_shares_of_one_ensemble_are_all_of_it():
    ensemble = tree_model(*nodes(1)[0]).ensemble
    shares = TreeShares.whole(ensemble)
    assert [int(each[0]) for each in (shares.inner, shares.leaves, shares.trees)] == [
        len(ensemble.features), len(ensemble.leaf_starts) - 1, len(ensemble.roots),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value"),
    [("nodes_truenodeids", [99] * 40), ("nodes_modes", ["BRANCH_ODD"] * 40), ("target_ids", [7] * 40),
     ("nodes_featureids", [0]), ("target_weights", []), ("nodes_values_as_tensor", [1.0])],
)  # fmt: skip
def test_a_node_that_is_wrong_or_written_otherwise_leaves_each_to_itself(name, value):
    good, (op_type, attributes) = nodes(8)[:2], node(0, "TreeEnsembleRegressor")
    length = len(attributes[name].value) if name in attributes else 1
    wrong = (op_type, {**attributes, name: Attribute.of(name, value[:length] or [0.0] * (length - 1))})
    assert tree_models([*good, wrong]) is None
    assert tree_models(good) is not None


def test_nothing_and_newer_nodes_are_not_decoded_together():
    assert tree_models([]) is None
    assert tree_models([("TreeEnsemble", {})]) is None
