"""Attentions whose shares are read beside their product with values, as models give them with output_attentions.

GroupQueryAttention and the standard's Attention have an output for them; MultiHeadAttention has none.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from ort_core.ir.rejection import Rejection
from ort_core.passes.fusions.attention_parts import AttentionParts, find_parts
from ort_core.passes.fusions.attention_scores import find_scores, why_no_scores
from ort_core.passes.fusions.attention_targets import SHOWING, AttentionTarget
from ort_core.rewrite.matcher import Match

_AXES = 4  # batch, heads, queries, keys: of the output that shows shares
_BETWEEN = ("guard", "blank", "stack", "cut")  # what may stand between a softmax and the product with values


def are_shown(match: Match) -> bool:
    """Return whether something outside the match reads the result of the softmax."""
    shares, members = match.node("softmax").output, set(match.nodes)
    return shares.is_graph_output or any(reader not in members for reader, _ in shares.uses)


def find_shown_parts(match: Match, targets: Collection[AttentionTarget]) -> AttentionParts | Rejection:
    """Return the parts of an attention that gives its shares, too."""
    shares, members = match.node("softmax").output, set(match.nodes)
    if any(match.has_node(name) for name in _BETWEEN) or shares.rank != _AXES:
        return _refused("they are not (batch, heads, queries, keys) as the product takes them", match)
    if any(reader.op_type == "MatMul" and reader not in members for reader, _ in shares.uses):
        return _refused("they are a factor of another product", match)
    found = find_scores(match["masked_scores"])
    if found is None:
        return Rejection(why_no_scores(match["masked_scores"]), match.root)
    if found.sink is not None:
        return _refused("a sink has a share beside them", match)
    parts = find_parts(match, found, SHOWING.intersection(targets), shows=True)
    if isinstance(parts, Rejection):
        return _refused(parts.reason, match)
    return replace(parts, shown=shares)


def _refused(reason: str, match: Match) -> Rejection:
    return Rejection(f"the shares are read beside their product with values, and {reason}", match.root)
