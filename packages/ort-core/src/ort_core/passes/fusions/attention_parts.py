"""The parts of an attention, their sizes proven, and the operator that they become."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace

from ort_core.frozen import frozen
from ort_core.ir.constants import Constant
from ort_core.ir.nodes import Node
from ort_core.ir.rejection import Rejection
from ort_core.ir.traversal import depend_on
from ort_core.ir.values import Value
from ort_core.passes.fusions.attention_body import AttentionFacts
from ort_core.passes.fusions.attention_heads import (
    Heads,
    batch_of,
    find_heads,
    find_keys,
    one_head_of,
    peel_scale,
    size_of_heads,
    swapped_head_of,
)
from ort_core.passes.fusions.attention_mask import Mask
from ort_core.passes.fusions.attention_scores import Scores
from ort_core.passes.fusions.attention_targets import STANDARD_OPSET, AttentionTarget, find_groups, why_not_grouped
from ort_core.passes.fusions.operands import dim, dtype_of, fixed_dim, same_dim
from ort_core.rewrite.matcher import Match

_BATCH = -4  # the axis of scores that the sequences of a batch have


@frozen
class AttentionParts:
    """Everything the fused attention needs; rows all of whose scores ``blank`` replaces become zeros.

    ``shown`` are the shares, where somebody reads them beside the product with values.
    """

    query: Heads
    key: Heads
    value: Heads
    masks: tuple[Mask, ...]
    scores: Value
    facts: AttentionFacts
    target: AttentionTarget = AttentionTarget.MULTI_HEAD
    hides_rows: bool = False
    blank: Mask | None = None
    sink: Constant | None = None
    broadcasts_batch: bool = False
    shown: Value | None = None

    @property
    def uses_past(self) -> bool:
        """Whether a cache is appended to."""
        return self.key.joined is not None and self.value.joined is not None


@frozen
class _Place:
    """Where an attention was found, and what is known from there."""

    match: Match
    scores: Scores
    targets: Collection[AttentionTarget]
    scale: float
    read: tuple[Value, ...]
    shows: bool


def find_parts(
    match: Match, scores: Scores, targets: Collection[AttentionTarget], *, shows: bool = False
) -> AttentionParts | Rejection:
    """Return the parts of an attention as one of the targets takes them; ``shows``: its shares are read, too."""
    product, masks = scores.product, scores.masks
    left, right = product.inputs
    assert left is not None
    assert right is not None
    q, q_factor = peel_scale(left)
    keys = find_keys(right)
    query, value = find_heads(q), find_heads(match["v"])
    if keys is None or query is None or value is None:
        stacked, factor = swapped_head_of(right)
        query, value = one_head_of(q), one_head_of(match["v"])
        if stacked is None or query is None or value is None:
            return Rejection(
                "the second factor of the scores is not known to be keys with their last axes swapped", product
            )
        keys = stacked, factor
    if query.joined is not None:
        query = Heads(q, None, None)
    read = (q, *(value for mask in masks for value in mask.read()))
    place = _Place(match, scores, targets, scores.factor * q_factor * keys[1], read, shows)
    is_standard = AttentionTarget.STANDARD in targets and match.opset() >= STANDARD_OPSET and place.scale > 0
    if is_standard and (scores.sink is None or AttentionTarget.GROUPED not in targets):
        return _standard(place, query, keys[0], value)
    if AttentionTarget.GROUPED in targets:
        grouped = _grouped(place, query, keys[0], value)
        if not isinstance(grouped, Rejection):
            return grouped
        if scores.softcap or shows:
            return grouped
    if AttentionTarget.MULTI_HEAD not in targets:
        return Rejection(
            f"the operator asked for needs opset {STANDARD_OPSET} and a positive scale; these are opset "
            f"{match.opset()} and {place.scale}", match.root,
        )  # fmt: skip
    makes_keys = AttentionTarget.MULTI_HEAD_OF_MADE_KEYS in targets
    if scores.softcap or (scores.sink is not None and not makes_keys):
        more = "are capped by Tanh" if scores.softcap else "have sinks beside them"
        return Rejection(f"the scores {more}, for which MultiHeadAttention has no attribute or input", match.root)
    return _multi_head(place, query, keys[0], value)


def _multi_head(place: _Place, query: Heads, key: Heads, value: Heads) -> AttentionParts | Rejection:
    """Return the parts for MultiHeadAttention: one head of keys and values is repeated for all of queries."""
    count = size_of_heads(query)[0] or 0
    is_shared = count > 1 and size_of_heads(key)[0] == size_of_heads(value)[0] == 1
    if is_shared and AttentionTarget.MULTI_HEAD_OF_MADE_KEYS not in place.targets:
        return Rejection(f"one head of keys and values is for all {count} of queries", place.match.root)
    if is_shared or place.scores.sink is not None:
        key, value = _without_cache(key), _without_cache(value)
    key, value = _same_cache(place.match, key, value, place.read)
    return _checked(place, query, key, value, AttentionTarget.MULTI_HEAD)


def _standard(place: _Place, query: Heads, key: Heads, value: Heads) -> AttentionParts | Rejection:
    """Return the parts for the standard's operator: groups where there are some, a cache where both have one."""
    groups = find_groups(key, value, size_of_heads(query)[0] or 0)
    key, value = (key, value) if groups is None else (groups.key, groups.value)
    if place.scores.sink is not None:
        key, value = _without_cache(key), _without_cache(value)
    key, value = _same_cache(place.match, key, value, place.read)
    return _checked(place, query, key, value, AttentionTarget.STANDARD)


def _grouped(place: _Place, query: Heads, key: Heads, value: Heads) -> AttentionParts | Rejection:
    """Return the parts for GroupQueryAttention, and where nothing asks for it why it is not taken."""
    match = place.match
    groups = find_groups(key, value, size_of_heads(query)[0] or 0)
    takes_past = AttentionTarget.GROUPED_PAST in place.targets
    is_asked = place.scores.softcap or place.scores.sink is not None or takes_past or place.shows
    if groups is None and not is_asked:
        return Rejection("each head of queries has its own keys", match.root)
    key, value = (key, value) if groups is None else (groups.key, groups.value)
    key, value = _same_cache(match, key, value, place.read)
    if key.joined is not None and not takes_past:
        key, value = _without_cache(key), _without_cache(value)
    parts = _checked(place, query, key, value, AttentionTarget.GROUPED)
    if isinstance(parts, Rejection):
        return parts
    refusal = why_not_grouped(query, key, parts.facts, dim(place.scores.product.output, -2), match.root)
    return parts if refusal is None else refusal


def _checked(
    place: _Place, query: Heads, key: Heads, value: Heads, target: AttentionTarget
) -> AttentionParts | Rejection:
    """Return the parts where their sizes fit each other, and the masks them."""
    match, scores = place.match, place.scores
    facts = _facts_of(match, scores.product, (query, key, value), place.scale, target)
    refusal = facts if isinstance(facts, Rejection) else _refuse_masks(match, scores, facts)
    if refusal is not None:
        return refusal
    assert not isinstance(facts, Rejection)
    facts = replace(facts, softcap=scores.softcap)
    if scores.sink is not None and scores.sink.size != facts.num_heads:
        return Rejection(f"there are {scores.sink.size} sinks for {facts.num_heads} heads", match.root)
    return AttentionParts(
        query, key, value, scores.masks, scores.product.output, facts, target, sink=scores.sink,
        broadcasts_batch=not same_dim(batch_of(query), batch_of(key)),
    )  # fmt: skip


def _facts_of(
    match: Match, product: Node, parts: tuple[Heads, ...], scale: float, target: AttentionTarget
) -> AttentionFacts | Rejection:
    """Return the sizes of an attention and its scale, where they are proven and fit each other."""
    query, *others = parts
    sizes = [size_of_heads(heads) for heads in parts]
    (count, head_size), (groups, key_size), (value_groups, value_size) = sizes
    known = any(None in size for size in sizes)
    if known or head_size != key_size or groups != value_groups or not count or not groups:
        return Rejection(f"the (number, size) of the heads of query, key and value are {sizes}", match.root)
    if count != groups and (count % groups or (target is AttentionTarget.MULTI_HEAD and groups != 1)):
        return Rejection(f"the (number, size) of the heads of query, key and value are {sizes}", match.root)
    if not same_dim(batch_of(others[0]), batch_of(others[1])):
        return Rejection("key and value are not known to have the same batch", match.root)
    has_other_form = any(each.joined is not None or each.first is not None for each in parts)
    if not same_dim(batch_of(query), batch_of(others[0])) and (has_other_form or product.output.rank != 4):
        return Rejection("query, key and value are not known to have the same batch", match.root)
    assert head_size is not None
    assert value_size is not None
    if not count * head_size * value_size:
        return Rejection("the heads have no elements", match.root)
    if not math.isfinite(scale) or scale == 0:
        return Rejection(f"the scale is {scale}", match.root)
    return AttentionFacts(count, groups, head_size, value_size, scale, dtype_of(product.output))


def _refuse_masks(match: Match, scores: Scores, facts: AttentionFacts) -> Rejection | None:
    """Return why a mask cannot be added by the fused operator, whose scores have four axes."""
    if len(scores.masks) > 1 and any(mask.is_lowered for mask in scores.masks):
        return Rejection(
            "scores are replaced by a number in which what else is added is not lost: rows without any kept score "
            "would have other shares", match.root,
        )  # fmt: skip
    for mask in scores.masks:
        if mask.rank is None or mask.rank > 4 or dtype_of(mask.value) != facts.dtype:
            return Rejection(
                f"the mask {mask.value.name!r} is not a tensor of up to 4 axes of the element type", match.root
            )
        if mask.windowed is None and _expands(mask, scores):
            return Rejection(f"the mask {mask.value.name!r} has sizes that the scores do not have", match.root)
    for four in scores.fours:
        if fixed_dim(four, 1) != facts.num_heads:
            return Rejection(
                f"{four.name!r} does not have the batch and the heads that the projections have", match.root
            )
    return None


def _expands(mask: Mask, scores: Scores) -> bool:
    """Return whether a mask is known to make scores larger: the sum would have its sizes, the fused operator has not.

    A number for the batch counts where the batch is a name, too: a run may have one sequence.
    """
    added = mask.value if mask.allowed is None else mask.allowed
    whole = scores.product.output if mask.is_stacked or not scores.fours else scores.fours[0]
    for axis in range(-1, -1 - (added.rank or 0), -1):
        size, own = fixed_dim(added, axis), dim(whole, axis)
        if size not in (None, 1, own) and (isinstance(own, int) or axis == _BATCH):
            return True
    return False


def _same_cache(match: Match, key: Heads, value: Heads, read: tuple[Value, ...]) -> tuple[Heads, Heads]:
    """Return keys and values both with a cache or both without, and both as three axes or both as four."""
    if key.joined is not None and value.joined is not None:
        pair = {key.joined, value.joined}
        if len(pair) == 2 and not depend_on(read, pair, match.root):
            return key, value
    key, value = _without_cache(key), _without_cache(value)
    is_flat = key.split is not None and value.split is not None
    if is_flat or key.four is None or value.four is None:
        return key, value
    return Heads(key.four, None, key.flat), Heads(value.four, None, value.flat)


def _without_cache(heads: Heads) -> Heads:
    return heads if heads.joined is None else Heads(heads.joined.output, None, None)
