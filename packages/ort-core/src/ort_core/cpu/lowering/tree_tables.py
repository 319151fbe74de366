"""Tree ensembles as tables for machine code: every branch is ``x <= threshold``, children lie side by side.

    x < t    is  x <= the number before t
    x >= t   is  not (x < t): the children change places, and NaN is sent where it went before
    x == t   is  x <= t, then not x <= the number before t
    x in S   is  a search over the numbers of S and those before them

A record is 16 bytes for float32 (threshold, feature, child, leaf) and 24 for float64. ``child`` is the offset in bytes
of the child for "not <="; the one for "<=" follows it. A leaf is its own child and its threshold is NaN, so that a walk
that has arrived stays where it is. The sign bit of ``feature`` says that NaN counts as "<=".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ort_core.cpu.lowering.steps import NotLowered
from ort_core.plugin import frozen
from ort_core.plugin.kernels import BranchMode, TreeEnsemble, TreeShares, starts_of

GROUP = 8  # walks that advance together: as many loads in flight hide what a cache takes to answer
NAN_BIT = np.int64(1) << 31


@frozen
class TreeTables:
    """An ensemble laid out.

    ``trees`` has a row per tree, filled up to a multiple of ``GROUP`` with trees that score nothing: the root's
    offset, levels to walk without looking, the greatest number of levels. ``real`` counts the trees given.
    """

    records: np.ndarray
    trees: np.ndarray
    real: int
    columns: int  # features that are looked at
    has_nan_bits: bool


@dataclass(slots=True)
class _Branches:
    """Inner nodes that all compare by "<="; children are node numbers, or ``~leaf``."""

    features: np.ndarray
    thresholds: np.ndarray  # float64
    true_children: np.ndarray
    false_children: np.ndarray
    nan_is_true: np.ndarray

    def append(self, more: _Branches) -> None:
        for name in ("features", "thresholds", "true_children", "false_children", "nan_is_true"):
            setattr(self, name, np.concatenate([getattr(self, name), getattr(more, name)]))


def record_type(dtype: np.dtype) -> np.dtype:
    """Return the layout of a record for thresholds of a type."""
    fields = [("threshold", dtype), ("feature", np.uint32), ("child", np.int32), ("leaf", np.int32)]
    return np.dtype(fields if dtype == np.float32 else [*fields, ("", np.int32)])


def tree_tables(ensemble: TreeEnsemble, dtype: np.dtype) -> TreeTables:
    """Lay an ensemble out for features of a type.

    Raises:
        NotLowered: the trees take more than offsets of 31 bits reach.
    """
    return tables_of(ensemble, TreeShares.whole(ensemble), dtype)[0]


def tables_of(joined: TreeEnsemble, shares: TreeShares, dtype: np.dtype) -> list[TreeTables]:
    """Lay the ensembles out of which a joined one is made; each has offsets and numbers of leaves of its own.

    Raises:
        NotLowered: the trees of one take more than offsets of 31 bits reach.
    """
    branches, kind, count = _branches(joined), record_type(dtype), len(shares.trees)
    roots = _signed(joined.roots, len(joined.features))
    nodes, tree_of, first_child = _place(branches, roots)
    owner_of_tree = np.arange(count).repeat(shares.trees)
    owner = owner_of_tree[tree_of]  # of each record
    lengths = np.bincount(owner, minlength=count)
    if (int(lengths.max()) + 1) * kind.itemsize >= 2**31:
        raise NotLowered(f"{lengths.max()} nodes of trees take more than 2 GiB")
    order = np.argsort(tree_of, kind="stable")
    position = np.empty(len(order), np.int64)  # among its ensemble's records
    position[order] = np.arange(len(order)) - starts_of(lengths)[owner[order]]
    firsts = starts_of(lengths + 1)  # behind the records of each ensemble lies one that scores nothing
    at, is_inner = position + firsts[owner], nodes >= 0
    inner = nodes[is_inner]
    records = np.zeros(int(firsts[-1]), kind)
    records["threshold"] = np.nan
    records["threshold"][at[is_inner]] = _rounded_down(branches.thresholds[inner], dtype)
    nan_bits = branches.nan_is_true[inner].astype(np.int64) * NAN_BIT
    records["feature"][at[is_inner]] = branches.features[inner] | nan_bits
    records["child"] = (np.arange(len(records)) - firsts[:-1].repeat(lengths + 1)) * kind.itemsize
    records["child"][at[is_inner]] = position[first_child[is_inner]] * kind.itemsize
    records["leaf"][at[~is_inner]] = ~nodes[~is_inner] - starts_of(shares.leaves)[owner[~is_inner]]
    records["leaf"][firsts[1:] - 1] = shares.leaves
    rows, first_rows = _tree_rows(
        branches, roots, position[: len(roots)] * kind.itemsize, shares, lengths * kind.itemsize
    )
    columns, nan_counts = _asked_features(joined, branches, shares)
    return [
        TreeTables(records[r:s], rows[t:u], real, asked, nans > 0)
        for r, s, t, u, real, asked, nans in zip(
            firsts[:-1].tolist(), firsts[1:].tolist(), first_rows[:-1].tolist(), first_rows[1:].tolist(),
            shares.trees.tolist(), columns.tolist(), nan_counts.tolist(),
        )
    ]  # fmt: skip


def _asked_features(
    joined: TreeEnsemble, branches: _Branches, shares: TreeShares
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Return how many features each ensemble needs, and how many of its branches send NaN to where they are true."""
    owner = np.arange(len(shares.inner)).repeat(shares.inner)
    columns = np.zeros(len(shares.inner), np.int64)
    np.maximum.at(columns, owner, joined.features + 1)
    nans = owner[branches.nan_is_true[: len(owner)]]  # those that were added send none
    return columns, np.bincount(nans, minlength=len(columns))


def _tree_rows(
    branches: _Branches, roots: np.ndarray, first: np.ndarray, shares: TreeShares, null: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return (root's offset, sure levels, greatest level) of each tree, and of empty ones up to a multiple of GROUP.

    Also where the rows of each ensemble start.
    """
    deepest, usual = _levels(branches, roots)
    padded = -(-np.maximum(shares.trees, 1) // GROUP) * GROUP
    starts = starts_of(padded)
    trees = np.zeros((int(starts[-1]), 3), np.int64)
    trees[:, 0] = null.repeat(padded)
    at = np.arange(len(roots)) + (starts - starts_of(shares.trees))[:-1].repeat(shares.trees)
    trees[at] = np.stack([first, np.minimum(deepest, usual), deepest], axis=1)
    return trees, starts


def _levels(branches: _Branches, roots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the length of each tree's longest walk, and the mean over its leaves, rounded up."""
    deepest = np.zeros(len(roots), np.int64)
    leaves, total = np.zeros(len(roots)), np.zeros(len(roots))
    count = max(len(branches.features), 1)
    nodes, trees, level = roots, np.arange(len(roots)), 0
    while len(nodes):
        deepest[trees] = level
        is_inner = nodes >= 0
        ended = np.bincount(trees[~is_inner], minlength=len(roots))
        leaves += ended
        total += ended * level
        pairs = np.unique(trees[is_inner] * count + nodes[is_inner])  # a node that is reached on two ways counts once
        inner = pairs % count
        trees = (pairs // count).repeat(2)
        nodes = _side_by_side(branches.false_children[inner], branches.true_children[inner])
        level += 1
    return deepest, np.ceil(total / np.maximum(leaves, 1)).astype(np.int64)


def _place(branches: _Branches, roots: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return all records, level by level: their nodes, their trees, and the record of their first child.

    A node reached on two ways has one pair of children: shared branches do not multiply.
    """
    pair_of = np.full(len(branches.features), -1, np.int64)
    nodes, trees, count = [roots], [np.arange(len(roots))], len(roots)
    while True:
        inner = nodes[-1] >= 0
        new, index = np.unique(nodes[-1][inner], return_index=True)
        owners = trees[-1][inner][index]
        fresh = pair_of[new] < 0
        new, owners = new[fresh], owners[fresh]
        if not len(new):
            break
        pair_of[new] = count + 2 * np.arange(len(new))
        nodes.append(_side_by_side(branches.false_children[new], branches.true_children[new]))
        trees.append(owners.repeat(2))
        count += 2 * len(new)
    every = np.concatenate(nodes)
    first_child = np.full(len(every), -1, np.int64)
    first_child[every >= 0] = pair_of[every[every >= 0]]
    return every, np.concatenate(trees), first_child


def _side_by_side(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return an element of the first, then one of the second, and so on."""
    found = np.empty(2 * len(first), np.int64)
    found[::2], found[1::2] = first, second
    return found


def _signed(numbers: np.ndarray, inner: int) -> np.ndarray:
    return np.where(numbers < inner, numbers, ~(numbers - inner))


def _branches(ensemble: TreeEnsemble) -> _Branches:
    inner = len(ensemble.features)
    found = _Branches(
        ensemble.features.astype(np.int64),
        ensemble.thresholds.astype(np.float64),
        _signed(ensemble.true_children, inner),
        _signed(ensemble.false_children, inner),
        ensemble.missing_to_true.copy(),
    )
    modes = ensemble.modes
    _turn(found, modes)
    is_equal = (modes == BranchMode.EQ) | (modes == BranchMode.NEQ)
    if is_equal.any():
        _split_equal(found, np.flatnonzero(is_equal))
    for node in np.flatnonzero(modes == BranchMode.MEMBER).tolist():
        _split_member(found, node, _set_of(ensemble, node))
    return found


def _turn(found: _Branches, modes: np.ndarray) -> None:
    """Exchange the children of ``>=``, ``>`` and ``!=``, and move the thresholds of ``<`` and ``>=``."""
    has_number = ~np.isnan(found.thresholds)
    greater = ((modes == BranchMode.GTE) | (modes == BranchMode.GT)) & has_number
    unequal = modes == BranchMode.NEQ
    turned = greater | unequal
    swapped = np.where(turned, found.false_children, found.true_children)
    found.false_children = np.where(turned, found.true_children, found.false_children)
    found.true_children = swapped
    found.nan_is_true = np.where(greater, ~found.nan_is_true, found.nan_is_true & ~unequal)
    strict = (modes == BranchMode.LT) | (modes == BranchMode.GTE)
    found.thresholds = np.where(strict, _before(found.thresholds), found.thresholds)


def _before(values: np.ndarray) -> np.ndarray:
    """Return the greatest number below each value; NaN, which nothing is ``<=``, where there is none."""
    return np.where(values == -np.inf, np.nan, np.nextafter(values + 0.0, -np.inf))


def _split_equal(found: _Branches, nodes: np.ndarray) -> None:
    """Make ``==`` two branches: the second asks whether x lies before the threshold."""
    second = len(found.features) + np.arange(len(nodes))
    found.append(
        _Branches(
            found.features[nodes], _before(found.thresholds[nodes]), found.false_children[nodes],
            found.true_children[nodes], np.zeros(len(nodes), np.bool_),
        )
    )  # fmt: skip
    found.true_children[nodes] = second


def _set_of(ensemble: TreeEnsemble, node: int) -> np.ndarray:
    count = max(len(ensemble.member_values), 1)
    keys = ensemble.members[(ensemble.members >= node * count) & (ensemble.members < (node + 1) * count)]
    return ensemble.member_values[keys - node * count].astype(np.float64)


def _split_member(found: _Branches, node: int, values: np.ndarray) -> None:
    """Make "is in the set" a balanced search over the set's numbers and those before them."""
    if not len(values):
        found.thresholds[node] = np.nan
        return
    bounds = np.stack([_before(values), values], axis=1).reshape(-1)
    inside, outside = int(found.true_children[node]), int(found.false_children[node])
    features = int(found.features[node])
    rows: list[list[float]] = []
    first = len(found.features)

    def grow(low: int, high: int) -> int:
        """Return the node that tells regions ``low`` to ``high`` apart; region k ends at bound k."""
        if low == high:
            return inside if low % 2 else outside
        middle = ((low + high) // 2) | 1 if high - low > 1 else low
        middle = min(middle, high - 1)
        at = len(rows)
        rows.append([bounds[middle], 0, 0])
        rows[at][1], rows[at][2] = grow(low, middle), grow(middle + 1, high)
        return first + at

    root = grow(0, len(bounds))
    table = np.array(rows, np.float64)
    found.append(
        _Branches(
            np.full(len(rows), features), table[:, 0], table[:, 1].astype(np.int64), table[:, 2].astype(np.int64),
            np.zeros(len(rows), np.bool_),
        )
    )  # fmt: skip
    # NaN of a node that tracks it goes left once, then right to the end: into a region of the set, for an odd bound.
    for name in ("thresholds", "true_children", "false_children"):
        getattr(found, name)[node] = getattr(found, name)[root]


def _rounded_down(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return the greatest numbers of a type that are not above the values: ``x <= v`` stays what it was."""
    with np.errstate(over="ignore"):
        near = values.astype(dtype)
    return np.where(near.astype(np.float64) > values, np.nextafter(near, dtype.type(-np.inf)), near)
