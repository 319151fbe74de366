"""Operators of ai.onnx.ml: ranks of features, and that there are as many as are asked for."""

from __future__ import annotations

from ort_core.kernels.preconditions.conditions import Conditions


def normalized_rows(c: Conditions) -> None:
    """Normalizer: at most two dimensions."""
    c.rank(0, "X", 1, 2)


def features(c: Conditions) -> None:
    """FeatureVectorizer: at least one dimension of each input."""
    for index in range(len(c.shapes)):
        c.at_least(index, f"X[{index}]", 1)


def columns(c: Conditions) -> None:
    """Imputer and Scaler: the last axis has the features."""
    c.at_least(0, "X", 1)


def trees(c: Conditions) -> None:
    """X [N, F] of as many features as the nodes ask for; up to opset 2 a vector is one row of one feature."""
    x = c.rank(0, "X", *((2,) if c.opset >= 3 else (1, 2)))
    asked = _most_asked_for(c)
    if x is not None and len(x) == 1:
        c.require(asked == 0, f"One path in the graph requests feature {asked} but input tensor has 1 features.")


def split_leaves(c: Conditions) -> None:
    """TreeEnsemble: X [N, F]."""
    c.rank(0, "X", 2)


def _most_asked_for(c: Conditions) -> int:
    """Return the highest feature that an inner node compares."""
    modes, features = c.node.attribute("nodes_modes", ()), c.node.ints_attribute("nodes_featureids") or ()
    if not isinstance(modes, tuple):
        return 0
    return max((feature for mode, feature in zip(modes, features) if mode != "LEAF"), default=0)
