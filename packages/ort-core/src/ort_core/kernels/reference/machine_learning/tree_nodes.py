"""Tree ensemble nodes as facts: the decoded trees and all that decides how leaves become results.

Compilers read nodes this way; the kernels of ``ml_trees`` take the same attributes one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from ort_core.errors import InvalidArgument
from ort_core.frozen import frozen
from ort_core.ir.attributes import Attribute
from ort_core.ir.constants import Constant
from ort_core.kernels.reference.machine_learning.ml_trees import (
    AGGREGATES,
    TRANSFORM_NUMBERS,
    decode_nodes,
    decode_split_leaves,
)
from ort_core.kernels.reference.machine_learning.tree_ensemble import TreeEnsemble

Read = Callable[[str], np.ndarray | None]


@frozen
class TreeModel:
    """What a node of the tree ensemble family computes.

    ``base`` holds float64 values, one per target (of classifiers with up to two classes also a single one), or
    nothing. ``scored`` are the targets that leaves score, ``all_positive`` says that no weight is negative.
    """

    ensemble: TreeEnsemble
    aggregate: str
    base: np.ndarray | None
    post_transform: str
    scored: frozenset[int]
    all_positive: bool


def tree_model(op_type: str, attributes: Mapping[str, Attribute]) -> TreeModel:
    """Decode a TreeEnsemble, TreeEnsembleRegressor or TreeEnsembleClassifier node.

    Args:
        op_type: the node's operator.
        attributes: the node's attributes.

    Raises:
        InvalidArgument: the attributes do not describe trees.
    """

    def read(name: str) -> np.ndarray | None:
        return _array(attributes, name)

    if op_type == "TreeEnsemble":
        return _split_leaves_model(attributes, read)
    prefix = "class" if op_type == "TreeEnsembleClassifier" else "target"
    weights = _either(read, f"{prefix}_weights")
    ids = _required(read, f"{prefix}_ids")
    ensemble = decode_nodes(
        _required(read, "nodes_treeids"),
        _required(read, "nodes_nodeids"),
        _required(read, "nodes_modes"),
        _required(read, "nodes_featureids"),
        _either(read, "nodes_values"),
        _required(read, "nodes_truenodeids"),
        _required(read, "nodes_falsenodeids"),
        _required(read, "nodes_missing_value_tracks_true"),
        _required(read, f"{prefix}_treeids"),
        _required(read, f"{prefix}_nodeids"),
        ids,
        weights,
        target_count(op_type, attributes),
    )
    return model_facts(
        attributes, ensemble, frozenset(ids.tolist()), all_positive=bool((weights >= 0).all())
    )  # fmt: skip


def model_facts(
    attributes: Mapping[str, Attribute], ensemble: TreeEnsemble, scored: frozenset[int], *, all_positive: bool
) -> TreeModel:
    """Return a decoded ensemble with what else a node of opsets 1 and 3 says."""
    found = _array(attributes, "base_values_as_tensor")
    found = _array(attributes, "base_values") if found is None else found
    base = None if found is None or not found.size else found.reshape(-1).astype(np.float64)
    return TreeModel(
        ensemble,
        _text(attributes, "aggregate_function", "SUM"),
        base,
        _text(attributes, "post_transform", "NONE"),
        scored,
        all_positive,
    )


def _split_leaves_model(attributes: Mapping[str, Attribute], read: Read) -> TreeModel:
    numbers = {name: _int(attributes, name, default) for name, default in _SPLIT_DEFAULTS.items()}
    aggregate, transform = numbers["aggregate_function"], numbers["post_transform"]
    if not (0 <= aggregate < len(AGGREGATES) and 0 <= transform < len(TRANSFORM_NUMBERS)):
        raise InvalidArgument(f"TreeEnsemble: aggregate_function {aggregate} or post_transform {transform} is unknown")
    weights, targets = _required(read, "leaf_weights"), _required(read, "leaf_targetids")
    ensemble = decode_split_leaves(
        _required(read, "nodes_featureids").tolist(),
        _required(read, "nodes_modes"),
        _required(read, "nodes_splits"),
        _required(read, "nodes_truenodeids").tolist(),
        _required(read, "nodes_trueleafs").tolist(),
        _required(read, "nodes_falsenodeids").tolist(),
        _required(read, "nodes_falseleafs").tolist(),
        _list(read("nodes_missing_value_tracks_true")),
        read("membership_values"),
        _required(read, "tree_roots").tolist(),
        targets.tolist(),
        weights,
        numbers["n_targets"],
    )
    positive = bool((weights >= 0).all())
    scored = frozenset(targets.tolist())
    return TreeModel(ensemble, AGGREGATES[aggregate], None, TRANSFORM_NUMBERS[transform], scored, positive)


_SPLIT_DEFAULTS = {"aggregate_function": 1, "post_transform": 0, "n_targets": 1}


def target_count(op_type: str, attributes: Mapping[str, Attribute]) -> int:
    """Return how many targets or classes a node of opsets 1 and 3 scores."""
    if op_type == "TreeEnsembleRegressor":
        return _int(attributes, "n_targets", 1)
    for name in ("classlabels_strings", "classlabels_int64s"):
        labels = attributes[name].value if name in attributes else None
        if isinstance(labels, tuple) and labels:
            return len(labels)
    raise InvalidArgument("TreeEnsembleClassifier: classlabels_int64s or classlabels_strings is needed")


def _array(attributes: Mapping[str, Attribute], name: str) -> np.ndarray | None:
    if name not in attributes:
        return None
    value = attributes[name].value
    if isinstance(value, tuple):
        kinds = {float: np.float32, int: np.int64}
        return np.array(value, kinds.get(type(value[0]), object) if value else np.float32)
    return value.array() if isinstance(value, Constant) else None


def _required(read: Read, name: str) -> np.ndarray:
    found = read(name)
    return np.empty(0, np.int64) if found is None else found


def _either(read: Read, name: str) -> np.ndarray:
    """Return the tensor form of an attribute if the node has it, else the list, else nothing."""
    tensor = read(f"{name}_as_tensor")
    found = read(name) if tensor is None else tensor
    return np.empty(0, np.float32) if found is None else found.reshape(-1)


def _list(values: np.ndarray | None) -> list[int] | None:
    return None if values is None else values.tolist()


def _int(attributes: Mapping[str, Attribute], name: str, default: int) -> int:
    value = attributes[name].value if name in attributes else default
    return value if isinstance(value, int) else default


def _text(attributes: Mapping[str, Attribute], name: str, default: str) -> str:
    value = attributes[name].value if name in attributes else default
    return value if isinstance(value, str) else default
