"""The scores of an attention: the product of queries and keys, behind its scale, its masks and its changes of axes.

    Softmax(Reshape(Add(Reshape(Mul(MatMul(q, k'), scale), (b, h, n, m)), mask), (b * h, n, m)))

Batch and heads may be two axes or one; a Reshape that keeps the last two axes goes from one to the other.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ort_core.frozen import frozen
from ort_core.ir.constants import Constant
from ort_core.ir.nodes import Node
from ort_core.ir.rejection import Rejection
from ort_core.ir.types import DataType
from ort_core.ir.values import Value
from ort_core.ops.shape_arithmetic import is_beyond_end
from ort_core.passes.fusions.attention_heads import peel_scale, producer_of, unstack
from ort_core.passes.fusions.attention_mask import LOWEST_EFFECT, SWALLOWS_SCORES, Mask, find_choice, hides_rest
from ort_core.passes.fusions.attention_windows import find_windowed
from ort_core.passes.fusions.operands import dim, dtype_of, fixed_dim, integers_of, number_of, only_reader, same_dim
from ort_core.rewrite.matcher import constant_of

_ON_THE_WAY = ("Add", "Sub", "Where", "Reshape", "Mul", "Div", "Tanh", "Max")
_STEPS = 6  # between a softmax and the product, of the exports that were looked at


@frozen
class Scores:
    """The product of queries and keys, what is done to it, and what says how batch and heads are stacked.

    ``fours`` have (batch, heads, …) of which a Reshape makes (batch * heads, …), or the other way round. With a
    ``softcap`` the scores were ``softcap * Tanh(scores / softcap)`` before masks. A ``sink`` (1, heads, 1, 1) takes
    part in the softmax as one more key of each head, and in nothing else.
    """

    product: Node
    factor: float
    masks: tuple[Mask, ...] = ()
    fours: tuple[Value, ...] = ()
    softcap: float = 0.0
    sink: Constant | None = None

    def masked_by(self, mask: Mask, *fours: Value) -> Scores:
        """Return them with another mask."""
        return replace(self, masks=(*self.masks, mask), fours=(*self.fours, *fours))


def find_scores(masked: Value) -> Scores | None:
    """Return the product of queries and keys behind masks and scale, the masks, and the scale."""
    value, factor = peel_scale(masked)
    node = producer_of(value, "MatMul", "Reshape", "Where", "Add", "Sub", "Tanh", "Max")
    if node is None:
        return None
    if node.op_type == "Max":
        return _find_bounded(node) if value is masked else None
    if node.op_type == "Tanh":
        return _find_capped(node, factor)
    if node.op_type == "MatMul":
        return Scores(node, factor)
    if node.op_type == "Sub":
        return _scaled(_find_subtracted(node), factor)
    if node.op_type == "Reshape":
        windowed = find_windowed(node)
        if windowed is not None:
            found = find_scores(windowed[0].scores) if factor == 1.0 else None
            masks = tuple(Mask(each.mask, windowed=each) for each in windowed)
            return None if found is None else replace(found, masks=(*found.masks, *masks))
        inner = _restacked(value)
        found = None if inner is None else find_scores(inner)
        if found is None or inner is None:
            return None
        four = inner if inner.rank == 4 else value
        if found.softcap and factor != 1.0:
            return None
        return replace(found, factor=found.factor * factor, fours=(*found.fours, four))
    if value is masked:
        return _find_chosen(node) if node.op_type == "Where" else _find_added(node)
    return _scaled(_find_added(node), factor) if node.op_type == "Add" else None


def find_sunk_scores(joined: Value, cut: Node) -> Scores | Rejection:
    """Return the scores beside which each head has one more, its sink, whose share the Slice ``cut`` drops."""
    bounds = [integers_of(each) for each in cut.inputs[1:]]
    is_first = bounds[:1] == [(1,)] and len(bounds) > 1 and bounds[1] is not None and is_beyond_end(bounds[1][0])
    is_cut = is_first or bounds[:2] == [(0,), (-1,)]
    if not is_cut or bounds[2:3] not in ([(3,)], [(-1,)]) or bounds[3:] not in ([], [(1,)]):
        return Rejection("something else than the first or the last share is cut off", cut)
    shifted = producer_of(joined, "Sub")
    if shifted is not None:
        if not _is_shift_by_largest(shifted):
            return Rejection("the scores are not shifted by their largest", shifted)
        joined = shifted.inputs[0] or joined
    padded = producer_of(joined, "Pad")
    if padded is not None:
        return _padded_scores(padded, is_first=is_first)
    concat = producer_of(joined, "Concat")
    if concat is None or len(concat.inputs) != 2 or concat.int_attribute("axis", 0) not in (3, -1):
        return Rejection("the scores are not joined with one of each head", cut)
    inner, sinks = concat.inputs[::-1] if is_first else concat.inputs
    expanded = producer_of(sinks, "Expand")
    sink = constant_of(sinks if expanded is None else expanded.inputs[0])
    if sink is None or len(sink.shape) != 4 or sink.shape[0] != 1 or sink.shape[2:] != (1, 1) or sink.size < 1:
        return Rejection("the scores joined are not one constant of each head", concat)
    found = None if inner is None else find_scores(inner)
    if found is None or inner is None or inner.rank != 4 or found.sink is not None:
        return Rejection(why_no_scores(joined if inner is None else inner), concat)
    return replace(found, sink=sink)


def _padded_scores(padded: Node, *, is_first: bool) -> Scores | Rejection:
    """Return the scores beside which a Pad puts one number for all heads."""
    inner, pads, value = padded.inputs[0], integers_of(padded.input(1)), padded.input(2)
    number = 0.0 if value is None else number_of(value)
    wanted = (0, 0, 0, 1, 0, 0, 0, 0) if is_first else (0, 0, 0, 0, 0, 0, 0, 1)
    mode = padded.attribute("mode") or "constant"
    if pads != wanted or number is None or mode not in ("constant", b"constant") or padded.input(3) is not None:
        return Rejection("the scores are not padded by one constant in the place that is cut off", padded)
    heads = None if inner is None or inner.rank != 4 else fixed_dim(inner, 1)
    found = None if inner is None or heads is None else find_scores(inner)
    if found is None or inner is None or heads is None or found.sink is not None:
        return Rejection(why_no_scores(padded.output if inner is None else inner), padded)
    return replace(found, sink=Constant.of(np.full((1, heads, 1, 1), number, dtype_of(inner).numpy)))


def _scaled(found: Scores | None, factor: float) -> Scores | None:
    """Return scores whose masks were added before the factor; one above 1 could make -inf of a low number."""
    if found is None or factor == 1.0:
        return found
    if found.softcap or not factor > 0 or any(abs(mask.factor * factor) > 1 for mask in found.masks):
        return None
    if any(mask.allowed is not None or mask.is_stacked or mask.windowed is not None for mask in found.masks):
        return None
    masks = tuple(replace(mask, factor=mask.factor * factor) for mask in found.masks)
    return replace(found, factor=found.factor * factor, masks=masks)


def _find_bounded(bounded: Node) -> Scores | None:
    """Return the scores of ``Max(scores + mask, lowest)``, which changes nothing where the mask is finite."""
    if len(bounded.inputs) != 2:
        return None
    for inner, limit in (bounded.inputs, bounded.inputs[::-1]):
        number = number_of(limit)
        if inner is None or limit is None or limit.rank or number is None or only_reader(inner) is not bounded:
            continue
        found = find_scores(inner) if number <= SWALLOWS_SCORES and dtype_of(limit) is DataType.FLOAT else None
        is_finite = found is not None and all(mask.is_finite for mask in found.masks)
        return found if is_finite else None
    return None


def _find_capped(tanh: Node, cap: float) -> Scores | None:
    """Return the scores of ``cap * Tanh(product * scale / cap)``."""
    inner = tanh.inputs[0]
    found = None if inner is None or only_reader(inner) is not tanh else find_scores(inner)
    if found is None or found.masks or found.softcap or not cap > 0:
        return None
    return replace(found, factor=found.factor * cap, softcap=cap)


def _find_chosen(chosen: Node) -> Scores | None:
    choice = find_choice(chosen)
    inner = None if choice is None else chosen.inputs[2 if choice.is_inverted else 1]
    if choice is None or choice.allowed is None or inner is None or not _fits(choice.allowed, inner):
        return None
    found = find_scores(inner)
    return None if found is None else found.masked_by(choice)


def find_blanked_scores(masked: Value, blank: Node) -> Scores | Rejection:
    """Return the scores of which ``blank`` sets to 0 the hidden shares, the choice that hid them last of the masks.

    A row without any key becomes zeros whatever its shares were: the number in the places of hidden scores must only
    be so low that their shares are 0 in all other rows.
    """
    hidden = blank.inputs[0]
    chosen = producer_of(masked, "Where")
    is_inverted = number_of(blank.inputs[1]) is not None
    if number_of(blank.inputs[1 if is_inverted else 2]) != 0:
        return Rejection("something else than 0 replaces shares behind the softmax", blank)
    if chosen is None or chosen.inputs[0] is not hidden or hidden is None:
        return Rejection("shares are replaced behind the softmax, and not those of the scores that are hidden", blank)
    inner, low = chosen.inputs[2 if is_inverted else 1], chosen.inputs[1 if is_inverted else 2]
    number = number_of(low)
    if inner is None or low is None or low.rank != 0 or number is None or number > LOWEST_EFFECT:
        return Rejection("hidden scores are not replaced by a number so low that their shares are 0", chosen)
    found = find_scores(inner) if _fits(hidden, inner) else None
    if found is None:
        return Rejection(why_no_scores(inner), chosen)
    return found.masked_by(Mask(low, hidden, is_inverted=is_inverted))


def _find_subtracted(subtracted: Node) -> Scores | None:
    """Return the scores from which their largest was taken, which changes no share, or a mask."""
    inner, mask = subtracted.inputs
    if inner is None or mask is None:
        return None
    if _is_shift_by_largest(subtracted):
        return find_scores(inner)
    found = find_scores(inner) if only_reader(inner) is subtracted else None
    return found.masked_by(Mask(mask, factor=-1.0)) if found is not None and _fits(mask, inner) else None


def _is_shift_by_largest(subtracted: Node) -> bool:
    """Return whether a Sub takes from each row its largest element."""
    inner, right = subtracted.inputs
    kept = producer_of(right, "Unsqueeze", "Reshape")
    largest = producer_of(right if kept is None else kept.inputs[0], "ReduceMax")
    if inner is None or right is None or largest is None or largest.inputs[0] is not inner:
        return False
    axes = integers_of(largest.input(1)) or largest.ints_attribute("axes")
    rank = inner.rank
    if rank is None or right.rank != rank or dim(right, -1) != 1 or axes not in ((-1,), (rank - 1,)):
        return False
    return kept is None or all(same_dim(dim(right, axis), dim(inner, axis)) for axis in range(rank - 1))


def _find_weighed(added: Node) -> Scores | None:
    """Return the scores of ``scores * keep + number * (1 - keep)``, where ``keep`` is 0 or 1."""
    for weighed, addend in (added.inputs, added.inputs[::-1]):
        node = producer_of(weighed, "Mul")
        if node is None or weighed is None or addend is None or only_reader(weighed) is not added:
            continue
        for inner, keep in (node.inputs, node.inputs[::-1]):
            if inner is None or keep is None or only_reader(inner) is not node or not hides_rest(addend, keep):
                continue
            found = find_scores(inner) if _fits(addend, inner) and inner.rank == weighed.rank else None
            return None if found is None else found.masked_by(Mask(addend))
    return None


def _find_added(added: Node) -> Scores | None:
    left, right = added.inputs
    assert left is not None
    assert right is not None
    weighed = _find_weighed(added)
    if weighed is not None:
        return weighed
    for inner, mask in ((left, right), (right, left)):
        if only_reader(inner) is not added or inner.rank not in (3, 4):
            continue
        found = find_scores(inner)
        if found is None:
            continue
        if _fits(mask, inner):
            return found.masked_by(Mask(mask))
        unstacked = unstack(mask)
        if unstacked is not None:
            return found.masked_by(Mask(unstacked), unstacked)
        if mask.rank == 3 and same_dim(dim(mask, 0), dim(found.product.output, 0)):
            return found.masked_by(Mask(mask, is_stacked=True))
        return None
    return None


def stacked_behind(scores: Scores, stack: Node) -> Scores | None:
    """Return scores whose softmax has four axes and is stacked to three behind, ``None`` where that is not all."""
    four = stack.inputs[0]
    if four is None or four.rank != 4 or stack.output.rank != 3:
        return None
    kept = all(same_dim(dim(four, axis), dim(stack.output, axis)) for axis in (-1, -2))
    return replace(scores, fours=(*scores.fours, four)) if kept else None


def why_no_scores(masked: Value) -> str:
    """Return why no scores are found behind a softmax: the first operator on the way that none of them has."""
    if masked.rank is not None and masked.rank not in (3, 4):
        return f"the scores have {masked.rank} axes: fusions know (batch, heads, queries, keys), and both first as one"
    value, _ = peel_scale(masked)
    for _ in range(_STEPS):
        node = value.producer
        if node is None or node.op_type == "MatMul":
            break
        if node.op_type == "Where" and find_choice(node) is None:
            return (
                f"{node.describe()} replaces scores, and adding to them is not known to equal that: rows without any "
                "kept score would have other shares"
            )
        if node.op_type not in _ON_THE_WAY:
            return f"the softmax is not of a product with keys: {node.describe()} is on the way"
        inner = next((each for each in node.present_inputs() if producer_of(each, "MatMul", *_ON_THE_WAY)), None)
        if inner is None:
            break
        value, _ = peel_scale(inner)
    return "the softmax is not of a product with keys that nothing else reads"


def _fits(mask: Value, scores: Value) -> bool:
    """Return whether a mask means the same beside scores of four axes as beside these."""
    if scores.rank == 4:
        return True
    return mask.rank is not None and (mask.rank < 3 or (mask.rank == 3 and dim(mask, 0) == 1))


def _restacked(value: Value) -> Value | None:
    """Return scores of which batch and heads were stacked, or pulled apart, by a Reshape that alone reads them."""
    node = producer_of(value, "Reshape")
    inner = None if node is None else node.inputs[0]
    if inner is None or only_reader(inner) is not node or {inner.rank, value.rank} != {3, 4}:
        return None
    return inner if all(same_dim(dim(inner, axis), dim(value, axis)) for axis in (-1, -2)) else None
