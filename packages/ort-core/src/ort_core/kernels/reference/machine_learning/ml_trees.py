"""TreeEnsemble, TreeEnsembleRegressor and TreeEnsembleClassifier: attributes decoded once, then walked.

The decoded ensemble is kept in the node's state, so that only the first run pays for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ort_core.errors import InvalidArgument
from ort_core.kernels.kernel import KernelContext, kernel
from ort_core.kernels.reference.machine_learning.ml_scores import as_matrix, class_labels, transform, two_columns
from ort_core.kernels.reference.machine_learning.tree_ensemble import BranchMode, TreeEnsemble, check_targets

MODE_NAMES = {f"BRANCH_{mode.name}": int(mode) for mode in BranchMode if mode is not BranchMode.MEMBER}
AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
TRANSFORM_NUMBERS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
Floats = Sequence[float] | np.ndarray
Ints = Sequence[int] | np.ndarray


def _cached(ctx: KernelContext, decode: Callable[[], TreeEnsemble]) -> TreeEnsemble:
    if "ensemble" not in ctx.state:
        ctx.state["ensemble"] = decode()
    return ctx.state["ensemble"]


def decode_nodes(
    treeids: Ints,
    nodeids: Ints,
    modes: Sequence[str] | np.ndarray,
    featureids: Ints,
    values: Floats,
    trueids: Ints,
    falseids: Ints,
    missing: Ints | None,
    entry_treeids: Ints,
    entry_nodeids: Ints,
    entry_targets: Ints,
    entry_weights: Floats,
    target_count: int,
) -> TreeEnsemble:
    """Build an ensemble from the attribute lists of opsets 1 and 3, where leaves are nodes with mode LEAF.

    Raises:
        InvalidArgument: lists differ in length, or a node refers to one that does not exist.
    """
    values, entry_weights = _numbers(values), _numbers(entry_weights)
    given = np.asarray(() if missing is None else missing, np.int64)[: len(falseids)]
    tracks = np.zeros(len(falseids), np.bool_)
    tracks[: len(given)] = given == 1  # as in onnxruntime: of any length
    _check_lengths(
        len(falseids),
        "nodes_falsenodeids",
        nodes_featureids=featureids,
        nodes_modes=modes,
        nodes_nodeids=nodeids,
        nodes_treeids=treeids,
        nodes_truenodeids=trueids,
        nodes_values=values,
    )
    _check_lengths(
        len(entry_targets),
        "target_class_ids",
        target_class_nodeids=entry_nodeids,
        target_class_treeids=entry_treeids,
        target_class_weights=entry_weights,
    )
    names = np.asarray(modes, dtype=object)
    is_leaf = names == "LEAF"
    unknown = set(names[~is_leaf].tolist()) - set(MODE_NAMES)
    if unknown:
        raise InvalidArgument(f"unknown nodes_modes {sorted(unknown)}; known: LEAF, {', '.join(MODE_NAMES)}")
    inner = np.flatnonzero(~is_leaf)
    leaves = np.flatnonzero(is_leaf)
    number = np.empty(len(names), np.int64)
    number[inner] = np.arange(len(inner))
    number[leaves] = len(inner) + np.arange(len(leaves))
    tree = np.asarray(treeids, np.int64)
    find = _NodeFinder(tree, np.asarray(nodeids, np.int64))
    children = [number[find(tree[inner], np.asarray(ids, np.int64)[inner])] for ids in (trueids, falseids)]
    owner = number[find(np.asarray(entry_treeids, np.int64), np.asarray(entry_nodeids, np.int64))] - len(inner)
    order, starts = _by_leaf(owner, len(leaves))
    targets = np.asarray(entry_targets, np.int64)
    check_targets(targets, target_count)  # those of inner nodes, too, which no row reaches
    features = np.asarray(featureids, np.int64)[inner]
    return TreeEnsemble(
        features=features,
        modes=np.array([MODE_NAMES[name] for name in names[inner].tolist()], np.int64),
        thresholds=values[inner],
        true_children=children[0],
        false_children=children[1],
        missing_to_true=tracks[inner],
        roots=_roots(number, tree, children),
        leaf_starts=starts,
        entry_targets=targets[order],
        entry_weights=entry_weights.astype(np.float64)[order],
        target_count=target_count,
        member_values=np.empty(0, np.float32),
        members=np.empty(0, np.int64),
    ).check(shared_nodes=True)


def _numbers(values: Floats) -> np.ndarray:
    return values.reshape(-1) if isinstance(values, np.ndarray) else np.array(values, np.float32)


def _check_lengths(expected: int, reference: str, **lists: Sequence[object] | np.ndarray) -> None:
    for name, values in lists.items():
        if len(values) != expected:
            raise InvalidArgument(f"{reference} and {name} must have the same size, got {expected} and {len(values)}")


class _NodeFinder:
    """Finds positions in the node lists by (tree id, node id)."""

    def __init__(self, tree: np.ndarray, node: np.ndarray) -> None:
        self._ids = [np.unique(tree), np.unique(node)]
        keys = self._keys(tree, node)[0]
        self._order = np.argsort(keys, kind="stable")
        self._sorted = keys[self._order]

    def _keys(self, tree: np.ndarray, node: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        ranks, known = [], np.ones(len(tree), np.bool_)
        for ids, values in zip(self._ids, (tree, node), strict=True):
            rank = np.searchsorted(ids, values).clip(max=max(len(ids) - 1, 0))
            known &= (ids[rank] == values) if len(ids) else False
            ranks.append(rank)
        return ranks[0] * max(len(self._ids[1]), 1) + ranks[1], known

    def __call__(self, tree: np.ndarray, node: np.ndarray) -> np.ndarray:
        keys, known = self._keys(tree, node)
        place = np.searchsorted(self._sorted, keys).clip(max=max(len(self._sorted) - 1, 0))
        known &= (self._sorted[place] == keys) if len(self._sorted) else False
        if not known.all():
            at = int((~known).argmax())
            raise InvalidArgument(
                f"tree ensemble: node {node[at]} of tree {tree[at]} is referred to and does not exist"
            )
        return self._order[place]


def _by_leaf(owner: np.ndarray, leaf_count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the order that sorts entries by leaf, and where each leaf's entries start. Entries of inner nodes go."""
    order = np.argsort(owner, kind="stable")
    order = order[owner[order] >= 0]
    counts = np.bincount(owner[order], minlength=leaf_count)
    return order, np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def _roots(number: np.ndarray, tree: np.ndarray, children: Sequence[np.ndarray]) -> np.ndarray:
    """Return the first node of each tree that is nobody's child (in a cycle: simply the first)."""
    is_child = np.zeros(len(number), np.bool_)
    is_child[np.concatenate(children)] = True
    listed = is_child[number]
    order = np.lexsort((np.arange(len(tree)), listed, tree))
    _, first = np.unique(tree[order], return_index=True)
    return number[order[first]]


def _features(data: np.ndarray, ensemble: TreeEnsemble, op_type: str) -> np.ndarray:
    """Return the input in the type in which it is compared: double stays, all else becomes float."""
    matrix = as_matrix(data, op_type)
    return matrix if matrix.dtype == np.float64 else matrix.astype(np.float32)


def _base_values(base: Floats | None, count: int, *, one_is_enough: bool = False) -> np.ndarray | None:
    if base is None or np.size(base) == 0:
        return None
    if np.size(base) != count and not (one_is_enough and np.size(base) == 1):
        raise InvalidArgument(f"base_values should have 0 or {count} values. Got {np.size(base)}")
    return _numbers(base).astype(np.float64)


@kernel("TreeEnsembleRegressor", domain="ai.onnx.ml")
def tree_ensemble_regressor(
    data: np.ndarray,
    *,
    aggregate_function: str = "SUM",
    base_values: tuple[float, ...] | None = None,
    base_values_as_tensor: np.ndarray | None = None,
    n_targets: int = 1,
    nodes_falsenodeids: tuple[int, ...] = (),
    nodes_featureids: tuple[int, ...] = (),
    nodes_hitrates: tuple[float, ...] | None = None,
    nodes_hitrates_as_tensor: np.ndarray | None = None,
    nodes_missing_value_tracks_true: tuple[int, ...] | None = None,
    nodes_modes: tuple[str, ...] = (),
    nodes_nodeids: tuple[int, ...] = (),
    nodes_treeids: tuple[int, ...] = (),
    nodes_truenodeids: tuple[int, ...] = (),
    nodes_values: tuple[float, ...] = (),
    nodes_values_as_tensor: np.ndarray | None = None,
    post_transform: str = "NONE",
    target_ids: tuple[int, ...] = (),
    target_nodeids: tuple[int, ...] = (),
    target_treeids: tuple[int, ...] = (),
    target_weights: tuple[float, ...] = (),
    target_weights_as_tensor: np.ndarray | None = None,
    ctx: KernelContext,
) -> np.ndarray:
    """Y = post_transform(aggregate of the leaves that a row reaches + base values), [rows, targets]."""
    ensemble = _cached(
        ctx,
        lambda: decode_nodes(
            nodes_treeids,
            nodes_nodeids,
            nodes_modes,
            nodes_featureids,
            nodes_values if nodes_values_as_tensor is None else nodes_values_as_tensor,
            nodes_truenodeids,
            nodes_falsenodeids,
            nodes_missing_value_tracks_true,
            target_treeids,
            target_nodeids,
            target_ids,
            target_weights if target_weights_as_tensor is None else target_weights_as_tensor,
            n_targets,
        ),
    )
    base = _base_values(base_values if base_values_as_tensor is None else base_values_as_tensor, n_targets)
    rows = _features(data, ensemble, "TreeEnsembleRegressor")
    scores = ensemble.aggregate(rows, aggregate_function, ctx.guard)
    return transform((scores if base is None else scores + base).astype(np.float32), post_transform)


@kernel("TreeEnsembleClassifier", domain="ai.onnx.ml")
def tree_ensemble_classifier(
    data: np.ndarray,
    *,
    base_values: tuple[float, ...] | None = None,
    base_values_as_tensor: np.ndarray | None = None,
    class_ids: tuple[int, ...] = (),
    class_nodeids: tuple[int, ...] = (),
    class_treeids: tuple[int, ...] = (),
    class_weights: tuple[float, ...] = (),
    class_weights_as_tensor: np.ndarray | None = None,
    classlabels_int64s: tuple[int, ...] | None = None,
    classlabels_strings: tuple[str, ...] | None = None,
    nodes_falsenodeids: tuple[int, ...] = (),
    nodes_featureids: tuple[int, ...] = (),
    nodes_hitrates: tuple[float, ...] | None = None,
    nodes_hitrates_as_tensor: np.ndarray | None = None,
    nodes_missing_value_tracks_true: tuple[int, ...] | None = None,
    nodes_modes: tuple[str, ...] = (),
    nodes_nodeids: tuple[int, ...] = (),
    nodes_treeids: tuple[int, ...] = (),
    nodes_truenodeids: tuple[int, ...] = (),
    nodes_values: tuple[float, ...] = (),
    nodes_values_as_tensor: np.ndarray | None = None,
    post_transform: str = "NONE",
    ctx: KernelContext,
) -> tuple[np.ndarray, np.ndarray]:
    """Y = the label of the highest sum of leaf weights; Z = the sums after the post transform, [rows, classes]."""
    labels = class_labels(classlabels_int64s, classlabels_strings)
    if labels is None:
        raise InvalidArgument("TreeEnsembleClassifier: classlabels_int64s or classlabels_strings is needed")
    weights = class_weights if class_weights_as_tensor is None else class_weights_as_tensor
    ensemble = _cached(
        ctx,
        lambda: decode_nodes(
            nodes_treeids,
            nodes_nodeids,
            nodes_modes,
            nodes_featureids,
            nodes_values if nodes_values_as_tensor is None else nodes_values_as_tensor,
            nodes_truenodeids,
            nodes_falsenodeids,
            nodes_missing_value_tracks_true,
            class_treeids,
            class_nodeids,
            class_ids,
            weights,
            len(labels),
        ),
    )
    given = base_values if base_values_as_tensor is None else base_values_as_tensor
    base = _base_values(given, len(labels), one_is_enough=len(labels) <= 2)
    rows = _features(data, ensemble, "TreeEnsembleClassifier")
    sums = ensemble.aggregate(rows, "SUM", ctx.guard)
    if len(labels) > 2:
        totals = (sums if base is None else sums + base).astype(np.float32)
        return labels[totals.argmax(axis=1)], transform(totals, post_transform)
    all_positive = bool((_numbers(weights) >= 0).all())
    return _classify_binary(
        sums, base, labels, frozenset(class_ids), all_positive, post_transform, 0 if given is None else len(given)
    )


def _classify_binary(
    sums: np.ndarray,
    base: np.ndarray | None,
    labels: np.ndarray,
    scored_classes: frozenset[int],
    all_positive: bool,
    post_transform: str,
    base_count: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Return labels and scores of one or two classes, where the trees may score one class only.

    Such a single score decides for the second class: above 0.5 where all weights are positive (they are then
    probabilities), above 0 where not. Scored under class 0, it gives the first column 1 - s or -s as well.
    """
    totals = (sums if base is None else sums + base).astype(np.float32)
    threshold = 0.5 if all_positive else 0.0
    if len(labels) == 1:
        winner = (totals[:, 0] > threshold).astype(np.int64)
        return (winner if labels.dtype.kind == "i" else labels[winner * 0]), transform(totals, post_transform)
    if scored_classes == {0}:
        score = (sums[:, [0]] + (0.0 if base is None else base[0])).astype(np.float32)
        winner = (score[:, 0] > threshold).astype(np.int64)
        if base_count == 2:  # both columns then count as scored, the second by nothing
            return labels[winner], transform(np.concatenate([score, np.zeros_like(score)], axis=1), post_transform)
        return labels[winner], two_columns(score, post_transform, np.full(len(score), not all_positive))
    if scored_classes == {1}:
        totals = sums.astype(np.float32)
        if base is not None and base_count == 2:
            totals = np.stack([np.zeros(len(sums)), np.full(len(sums), base[1])], axis=1).astype(np.float32)
        return labels[(totals[:, 1] > threshold).astype(np.int64)], transform(totals, post_transform)
    return _classify_both(sums, base, labels, base_count, post_transform)


def _classify_both(
    sums: np.ndarray, base: np.ndarray | None, labels: np.ndarray, base_count: int, post_transform: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return labels and scores where the trees score both of two classes: the second one's sign decides.

    As onnxruntime has it: integer labels are then 1 and 0, one base value belongs to the first class, and of two the
    second is added to the first class's score, which both columns are made of.
    """
    totals = sums.copy()
    if base is not None and base_count == 1:
        totals[:, 0] += base[0]
    elif base is not None:
        score = sums[:, 0] + base[1]
        totals = np.stack([-score, score], axis=1)
    winner = (totals[:, 1] > 0).astype(np.int64)
    found = winner if labels.dtype.kind == "i" else labels[winner]
    return found, transform(totals.astype(np.float32), post_transform)


def decode_split_leaves(
    featureids: Sequence[int],
    modes: np.ndarray,
    splits: np.ndarray,
    trueids: Sequence[int],
    trueleafs: Sequence[int],
    falseids: Sequence[int],
    falseleafs: Sequence[int],
    missing: Sequence[int] | None,
    membership_values: np.ndarray | None,
    roots: Sequence[int],
    targets: Sequence[int],
    weights: np.ndarray,
    target_count: int,
) -> TreeEnsemble:
    """Build an ensemble from the attribute lists of TreeEnsemble-5, where leaves have lists of their own.

    Raises:
        InvalidArgument: lists differ in length, or a node refers to one that does not exist.
    """
    inner = len(featureids)
    _check_lengths(
        inner,
        "nodes_featureids",
        nodes_modes=modes.reshape(-1),
        nodes_splits=splits.reshape(-1),
        nodes_trueleafs=trueleafs,
        nodes_falseleafs=falseleafs,
        nodes_truenodeids=trueids,
        nodes_falsenodeids=falseids,
    )
    if missing is not None:
        _check_lengths(inner, "nodes_featureids", nodes_missing_value_tracks_true=missing)
    _check_lengths(len(targets), "leaf_targetids", leaf_weights=weights.reshape(-1))
    if any(not 0 <= root < inner for root in roots):
        raise InvalidArgument(
            f"TreeEnsemble: tree_roots {list(roots)} name a node that does not exist; there are {inner}"
        )
    kinds = modes.reshape(-1).astype(np.int64)
    member_values, members = _decode_members(kinds, membership_values)
    return TreeEnsemble(
        features=np.array(featureids, np.int64),
        modes=kinds,
        thresholds=splits.reshape(-1).astype(np.float64 if splits.dtype == np.float64 else np.float32),
        true_children=_children(trueids, trueleafs, inner, len(targets)),
        false_children=_children(falseids, falseleafs, inner, len(targets)),
        missing_to_true=np.array(missing or (0,) * inner, np.bool_),
        roots=np.array(roots, np.int64),
        leaf_starts=np.arange(len(targets) + 1),
        entry_targets=np.array(targets, np.int64),
        entry_weights=weights.reshape(-1).astype(np.float64),
        target_count=target_count,
        member_values=member_values,
        members=members,
    ).check()


def _children(ids: Sequence[int], leafs: Sequence[int], inner: int, leaves: int) -> np.ndarray:
    """Return the children's numbers: an id counts leaves where its flag is not 0, else nodes."""
    numbers, is_leaf = np.array(ids, np.int64), np.array(leafs, np.int64) != 0
    limits = np.where(is_leaf, leaves, inner)
    wrong = (numbers < 0) | (numbers >= limits)
    if wrong.any():
        at = int(wrong.argmax())
        kind = "leaf" if is_leaf[at] else "node"
        raise InvalidArgument(
            f"TreeEnsemble: node {at} leads to {kind} {numbers[at]}, which does not exist; there are {limits[at]}"
        )
    return numbers + inner * is_leaf


@kernel("TreeEnsemble", domain="ai.onnx.ml", since=5)
def tree_ensemble(
    data: np.ndarray,
    *,
    aggregate_function: int = 1,
    leaf_targetids: tuple[int, ...],
    leaf_weights: np.ndarray,
    membership_values: np.ndarray | None = None,
    n_targets: int = 1,
    nodes_falseleafs: tuple[int, ...],
    nodes_falsenodeids: tuple[int, ...],
    nodes_featureids: tuple[int, ...],
    nodes_hitrates: np.ndarray | None = None,
    nodes_missing_value_tracks_true: tuple[int, ...] | None = None,
    nodes_modes: np.ndarray,
    nodes_splits: np.ndarray,
    nodes_trueleafs: tuple[int, ...],
    nodes_truenodeids: tuple[int, ...],
    post_transform: int = 0,
    tree_roots: tuple[int, ...],
    ctx: KernelContext,
) -> np.ndarray:
    """Y = post_transform(aggregate of the leaves that a row reaches), [rows, targets], in X's type."""
    if not 0 <= aggregate_function < len(AGGREGATES) or not 0 <= post_transform < len(TRANSFORM_NUMBERS):
        raise InvalidArgument(
            f"TreeEnsemble: aggregate_function {aggregate_function} must be 0 to {len(AGGREGATES) - 1} and "
            f"post_transform {post_transform} 0 to {len(TRANSFORM_NUMBERS) - 1}"
        )

    ensemble = _cached(
        ctx,
        lambda: decode_split_leaves(
            nodes_featureids,
            nodes_modes,
            nodes_splits,
            nodes_truenodeids,
            nodes_trueleafs,
            nodes_falsenodeids,
            nodes_falseleafs,
            nodes_missing_value_tracks_true,
            membership_values,
            tree_roots,
            leaf_targetids,
            leaf_weights,
            n_targets,
        ),
    )
    rows = _features(data, ensemble, "TreeEnsemble")
    scores = ensemble.aggregate(rows, AGGREGATES[aggregate_function], ctx.guard)
    return transform(scores.astype(rows.dtype), TRANSFORM_NUMBERS[post_transform]).astype(data.dtype)


def _decode_members(modes: np.ndarray, values: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Return (sorted distinct member values, sorted keys); sets follow each other in ``values``, ended by NaN."""
    nodes = np.flatnonzero(modes == BranchMode.MEMBER)
    if ((modes < 0) | (modes > BranchMode.MEMBER)).any():
        raise InvalidArgument(
            f"TreeEnsemble: nodes_modes must be 0 to {int(BranchMode.MEMBER)}, got {np.unique(modes)}"
        )
    flat = np.empty(0, np.float32) if values is None else values.reshape(-1)
    ends = np.isnan(flat.astype(np.float64))
    if ends.sum() != len(nodes):
        raise InvalidArgument(
            f"TreeEnsemble: membership_values holds {int(ends.sum())} sets (each ended by NaN) for {len(nodes)} nodes "
            f"of mode BRANCH_MEMBER"
        )
    owner = np.cumsum(ends) - ends
    kept = flat[~ends]
    distinct, place = np.unique(kept, return_inverse=True)
    return distinct, np.unique(nodes[owner[~ends]] * max(len(distinct), 1) + place.reshape(-1))
