"""Many small tree ensemble nodes decoded together: converters write forests as thousands of nodes of a tree each.

Their lists are joined, decoded once as the trees of one ensemble, and cut apart again; what each node comes to is what
``tree_model`` gives. Where anything about the nodes is wrong, none is decoded here: each one says what by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain

import numpy as np

from ort_core.errors import InvalidArgument
from ort_core.frozen import frozen
from ort_core.ir.attributes import Attribute
from ort_core.kernels.reference.machine_learning.ml_trees import decode_nodes
from ort_core.kernels.reference.machine_learning.tree_ensemble import TreeEnsemble, TreeShares, starts_of
from ort_core.kernels.reference.machine_learning.tree_nodes import TreeModel, model_facts, target_count

Attributes = Mapping[str, Attribute]
_NODE_LISTS = ("treeids", "nodeids", "modes", "featureids", "values", "truenodeids", "falsenodeids")
_TENSOR_FORMS = ("nodes_values_as_tensor", "class_weights_as_tensor", "target_weights_as_tensor")


@frozen
class TreeBatch:
    """Ensembles side by side: ``joined`` has the trees of all, ``shares`` tells which are whose."""

    models: tuple[TreeModel, ...]
    joined: TreeEnsemble
    shares: TreeShares


def tree_models(nodes: Sequence[tuple[str, Attributes]]) -> TreeBatch | None:
    """Decode TreeEnsembleRegressor and TreeEnsembleClassifier nodes, given as operator and attributes.

    Returns ``None`` where one of them is not written in plain lists of fitting lengths, or describes no trees.
    """
    lists = [_lists_of(op_type, attributes) for op_type, attributes in nodes]
    if not nodes or any(each is None for each in lists):
        return None
    found = [each for each in lists if each is not None]
    try:
        counts = [target_count(op_type, attributes) for op_type, attributes in nodes]
        return _decoded(nodes, found, np.array(counts))
    except InvalidArgument:
        return None


@frozen
class _Lists:
    """The lists of a node by its nodes and by its entries, each kind of one length."""

    nodes: tuple[tuple[object, ...], ...]
    missing: tuple[object, ...]
    entries: tuple[tuple[object, ...], ...]  # tree ids, node ids, targets, weights


def _lists_of(op_type: str, attributes: Attributes) -> _Lists | None:
    prefix = "class" if op_type == "TreeEnsembleClassifier" else "target"
    if op_type == "TreeEnsemble" or any(name in attributes for name in _TENSOR_FORMS):
        return None
    nodes = tuple(_list(attributes, f"nodes_{name}") for name in _NODE_LISTS)
    missing = _list(attributes, "nodes_missing_value_tracks_true") or (0,) * len(nodes[0])
    entries = tuple(_list(attributes, f"{prefix}_{name}") for name in ("treeids", "nodeids", "ids", "weights"))
    fits = all(len(each) == len(nodes[0]) for each in (*nodes, missing))
    if not nodes[0] or not entries[0] or not fits or any(len(each) != len(entries[0]) for each in entries):
        return None
    return _Lists(nodes, missing, entries)


def _list(attributes: Attributes, name: str) -> tuple[object, ...]:
    value = attributes[name].value if name in attributes else ()
    return value if isinstance(value, tuple) else ()


def _decoded(nodes: Sequence[tuple[str, Attributes]], lists: Sequence[_Lists], targets: np.ndarray) -> TreeBatch:
    lengths = np.array([len(each.nodes[0]) for each in lists])
    entry_lengths = np.array([len(each.entries[0]) for each in lists])
    owner, entry_owner = (np.arange(len(lists)).repeat(each) for each in (lengths, entry_lengths))
    trees, node_ids, features, true_ids, false_ids = (
        _joined([each.nodes[i] for each in lists], np.int64) for i in (0, 1, 3, 5, 6)
    )
    entry_trees, entry_nodes, entry_targets = (_joined([each.entries[i] for each in lists], np.int64) for i in range(3))
    known, ranks = np.unique(np.concatenate([trees, entry_trees]), return_inverse=True)
    weights = _joined([each.entries[3] for each in lists], np.float32)
    if (entry_targets >= targets[entry_owner]).any():
        raise InvalidArgument("a target is not one of its ensemble's")
    joined = decode_nodes(
        owner * len(known) + ranks[: len(trees)],
        node_ids,
        np.array(list(chain.from_iterable(each.nodes[2] for each in lists)), object),
        features,
        _joined([each.nodes[4] for each in lists], np.float32),
        true_ids,
        false_ids,
        _joined([each.missing for each in lists], np.int64),
        entry_owner * len(known) + ranks[len(trees) :],
        entry_nodes,
        entry_targets,
        weights,
        int(targets.max()),
    )
    tree_owner = np.unique(owner * len(known) + ranks[: len(trees)]) // len(known)
    is_inner = np.fromiter((m != "LEAF" for each in lists for m in each.nodes[2]), np.bool_, len(owner))
    inner_counts = np.bincount(owner[is_inner], minlength=len(lists))
    shares = TreeShares(inner_counts, lengths - inner_counts, np.bincount(tree_owner, minlength=len(lists)))
    negative = np.bincount(entry_owner[~(weights >= 0)], minlength=len(lists))
    models = tuple(
        model_facts(attributes, ensemble, frozenset(each.entries[2]), all_positive=not count)  # type: ignore[arg-type]  # integers
        for (_, attributes), each, ensemble, count in zip(
            nodes, lists, _cut(joined, shares, targets), negative.tolist(), strict=True
        )
    )
    return TreeBatch(models, joined, shares)


def _joined(lists: Sequence[tuple[object, ...]], dtype: type) -> np.ndarray:
    return np.array(list(chain.from_iterable(lists)), dtype)


def _cut(joined: TreeEnsemble, shares: TreeShares, targets: np.ndarray) -> list[TreeEnsemble]:
    """Return the ensembles that a joined one is made of, each with numbers of its own for nodes and leaves."""
    inner, leaves, trees = (starts_of(each) for each in (shares.inner, shares.leaves, shares.trees))
    total, owners = len(joined.features), np.arange(len(targets))

    def renumbered(numbers: np.ndarray, counts: np.ndarray) -> np.ndarray:
        owner = owners.repeat(counts)
        leaf = numbers - total - leaves[owner] + shares.inner[owner]
        return np.where(numbers < total, numbers - inner[owner], leaf)

    true_children = renumbered(joined.true_children, shares.inner)
    false_children = renumbered(joined.false_children, shares.inner)
    roots = renumbered(joined.roots, shares.trees)
    borders = [each.tolist() for each in (inner, leaves, trees, joined.leaf_starts[leaves])]
    found = []
    for k, count in enumerate(targets.tolist()):
        i, f, t, e = (slice(each[k], each[k + 1]) for each in borders)
        starts = joined.leaf_starts[f.start : f.stop + 1] - e.start
        found.append(
            TreeEnsemble(
                joined.features[i], joined.modes[i], joined.thresholds[i], true_children[i], false_children[i],
                joined.missing_to_true[i], roots[t], starts, joined.entry_targets[e], joined.entry_weights[e], count,
                joined.member_values, joined.members,
            )
        )  # fmt: skip
    return found
