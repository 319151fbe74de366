"""A decoded tree ensemble and its evaluation: all rows walk all trees at once, one level per step.

Nodes 0..n-1 are inner nodes, nodes n.. are leaves; a leaf holds any number of (target, weight) entries, stored
one leaf after the other. A step moves every (row, tree) pair that stands on an inner node to one of its children.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator

import numpy as np

from ort_core.errors import InvalidArgument
from ort_core.frozen import frozen
from ort_core.kernels.kernel import RunGuard

PAIRS_PER_BLOCK = 1 << 20  # (row, tree) pairs walked at once: about 50 MB of temporaries; larger gains nothing


class BranchMode(enum.IntEnum):
    """How an inner node compares, numbered as in TreeEnsemble-5."""

    LEQ = 0
    LT = 1
    GTE = 2
    GT = 3
    EQ = 4
    NEQ = 5
    MEMBER = 6


COMPARISONS = {
    BranchMode.LEQ: np.less_equal,
    BranchMode.LT: np.less,
    BranchMode.GTE: np.greater_equal,
    BranchMode.GT: np.greater,
    BranchMode.EQ: np.equal,
    BranchMode.NEQ: np.not_equal,
}


@frozen
class TreeEnsemble:
    """Trees as flat arrays; see the module's first lines for the numbering of nodes.

    ``members`` holds the sorted keys ``node * len(member_values) + position in member_values`` of all sets.
    """

    features: np.ndarray
    modes: np.ndarray
    thresholds: np.ndarray
    true_children: np.ndarray
    false_children: np.ndarray
    missing_to_true: np.ndarray
    roots: np.ndarray
    leaf_starts: np.ndarray
    entry_targets: np.ndarray
    entry_weights: np.ndarray
    target_count: int
    member_values: np.ndarray
    members: np.ndarray

    def check(self, *, shared_nodes: bool = False) -> TreeEnsemble:
        """Return self, or raise when an index leaves its range or a walk could fail to end.

        Args:
            shared_nodes: an inner node may have several parents (chains of BRANCH_EQ are written that way).

        Raises:
            InvalidArgument: the attributes do not describe trees.
        """
        inner, leaves = len(self.features), len(self.leaf_starts) - 1
        children = np.concatenate([self.true_children, self.false_children])
        for name, values in (("nodes", children), ("tree_roots", self.roots)):
            if ((values < 0) | (values >= inner + leaves)).any():
                raise InvalidArgument(f"tree ensemble: {name} refer to a node that does not exist")
        if (self.features < 0).any():
            at = int((self.features < 0).argmax())
            raise InvalidArgument(f"nodes_featureids[{at}]={self.features[at]} must be in [0, number of features)")
        check_targets(self.entry_targets, self.target_count)
        if shared_nodes:
            self._check_depth()
        else:
            self._check_parents(children)
        return self

    def _check_parents(self, children: np.ndarray) -> None:
        # Where no inner node has two parents, a walk ends unless it starts on a cycle: then it comes back to its root.
        inner = len(self.features)
        parents = np.bincount(children[children < inner], minlength=inner)
        roots = np.unique(self.roots[self.roots < inner])
        wrong = np.flatnonzero(parents > 1)
        if not wrong.size and parents[roots].any():
            wrong = roots[self._is_on_cycle(roots)]
        if wrong.size:
            raise InvalidArgument(f"tree ensemble contains a cycle or shared internal node at index {int(wrong[0])}")

    def _is_on_cycle(self, roots: np.ndarray) -> np.ndarray:
        """Return for each root whether its only chain of parents leads back to it."""
        inner = len(self.features)
        parent = np.full(inner, -1)
        for below in (self.true_children, self.false_children):
            parent[below[below < inner]] = np.flatnonzero(below < inner)
        above, returns = parent[roots], np.zeros(len(roots), np.bool_)
        for _ in range(inner):
            returns |= above == roots
            if returns.all() or (above < 0).all():
                break
            above = np.where(above < 0, -1, parent[above])
        return returns

    def _check_depth(self) -> None:
        # A walk along distinct nodes is shorter than their number: nodes left after that many levels are on a cycle.
        inner = len(self.features)
        level = np.arange(inner)
        for _ in range(inner):
            if not level.size:
                return
            level = np.unique(np.concatenate([self.true_children[level], self.false_children[level]]))
            level = level[level < inner]
        if level.size:
            kind = " while folding categorical nodes" if (self.modes[level] == BranchMode.EQ).all() else ""
            raise InvalidArgument(f"Cycle detected{kind}: tree ensemble node {int(level[0])} leads back to itself")

    def leaves(self, rows: np.ndarray, guard: RunGuard) -> np.ndarray:
        """Return the leaf number that each row reaches in each tree, [rows, trees]."""
        inner, trees = len(self.features), len(self.roots)
        if inner and rows.shape[1] <= int(self.features.max()):
            raise InvalidArgument(
                f"nodes_featureids asks for feature {int(self.features.max())}; the input has {rows.shape[1]} columns, "
                f"so it must be in [0,{rows.shape[1]})"
            )
        place = np.tile(self.roots, len(rows))
        walking = np.flatnonzero(place < inner)
        while walking.size:
            guard.check()
            node = place[walking]
            value = rows[walking // trees, self.features[node]]
            place[walking] = np.where(self._goes_true(node, value), self.true_children[node], self.false_children[node])
            walking = walking[place[walking] < inner]
        return (place - inner).reshape(len(rows), trees)

    def _goes_true(self, node: np.ndarray, value: np.ndarray) -> np.ndarray:
        mode = self.modes[node]
        threshold = self.thresholds[node]
        answer = np.isnan(value) & self.missing_to_true[node]
        for present in np.unique(mode).tolist():
            if present == BranchMode.MEMBER:
                result = self._is_member(node, value)
            else:
                result = COMPARISONS[BranchMode(present)](value, threshold)
            answer |= result & (mode == present)
        return answer

    def _is_member(self, node: np.ndarray, value: np.ndarray) -> np.ndarray:
        if not self.member_values.size:
            return np.zeros(len(node), np.bool_)
        position = np.searchsorted(self.member_values, value).clip(max=len(self.member_values) - 1)
        key = node * len(self.member_values) + position
        return (self.member_values[position] == value) & np.isin(key, self.members)

    def aggregate(self, rows: np.ndarray, function: str, guard: RunGuard) -> np.ndarray:
        """Return scores [rows, targets] in double precision; 0 for a target that no reached leaf scores."""
        if function not in ("SUM", "AVERAGE", "MIN", "MAX"):
            raise InvalidArgument(f"unknown aggregate_function {function!r}; known: SUM, AVERAGE, MIN, MAX")
        guard.check_allocation(len(rows) * self.target_count * 8, "scores of a tree ensemble")
        scores = np.zeros((len(rows), self.target_count))
        for block in _blocks(len(rows), len(self.roots)):
            scores[block] = self._aggregate_block(rows[block], function, guard)
        return scores

    def _aggregate_block(self, rows: np.ndarray, function: str, guard: RunGuard) -> np.ndarray:
        cell, weight = self._contributions(self.leaves(rows, guard))
        cells = len(rows) * self.target_count
        if function in ("SUM", "AVERAGE"):
            divisor = max(len(self.roots), 1) if function == "AVERAGE" else 1
            total = np.bincount(cell, weights=weight, minlength=cells) / divisor
        else:
            total = np.full(cells, np.inf if function == "MIN" else -np.inf)
            (np.minimum if function == "MIN" else np.maximum).at(total, cell, weight)
            total[np.bincount(cell, minlength=cells) == 0] = 0.0
        return total.reshape(len(rows), self.target_count)

    def _contributions(self, leaves: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (row * targets + target, weight) of every entry of every reached leaf."""
        flat = leaves.reshape(-1)
        starts = self.leaf_starts[flat]
        counts = self.leaf_starts[flat + 1] - starts
        row = np.repeat(np.arange(len(leaves)), leaves.shape[1])
        if (counts != 1).any():
            first = np.cumsum(counts) - counts
            row = np.repeat(row, counts)
            starts = np.arange(counts.sum()) + np.repeat(starts - first, counts)
        return row * self.target_count + self.entry_targets[starts], self.entry_weights[starts]


@frozen
class TreeShares:
    """How many inner nodes, leaves and trees each of several ensembles has whose trees lie in one, in order."""

    inner: np.ndarray
    leaves: np.ndarray
    trees: np.ndarray

    @staticmethod
    def whole(ensemble: TreeEnsemble) -> TreeShares:
        """Return the shares of one that is all there is."""
        counts = (len(ensemble.features), len(ensemble.leaf_starts) - 1, len(ensemble.roots))
        return TreeShares(*(np.array([count]) for count in counts))


def starts_of(counts: np.ndarray) -> np.ndarray:
    """Return where each of several runs starts that lie one behind the other, and where the last one ends."""
    return np.concatenate([[0], np.cumsum(counts)])


def _blocks(rows: int, trees: int) -> Iterator[slice]:
    size = max(1, PAIRS_PER_BLOCK // max(trees, 1))
    for start in range(0, rows, size):
        yield slice(start, start + size)


def check_targets(targets: np.ndarray, count: int) -> None:
    """Raise InvalidArgument unless every target is one of ``count``."""
    if not targets.size:
        return
    if targets.min() < 0:
        raise InvalidArgument(f"target/class ids cannot have negative values ({targets.min()})")
    if targets.max() >= count:
        raise InvalidArgument(
            f"At least one value ({targets.max()}) in target/class ids is greater or equal to the target/class count "
            f"({count})"
        )
