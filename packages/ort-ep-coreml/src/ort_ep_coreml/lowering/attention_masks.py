"""What forbids an Attention of ai.onnx keys: masks, causality, windows, padding; each as something that is added."""

from __future__ import annotations

from functools import reduce

import numpy as np

from ort_core.plugin.ir import Node
from ort_core.plugin.ops import AttentionRecord, Lengths
from ort_ep_coreml.lowering.conditions import lies_within, looked_at
from ort_ep_coreml.lowering.emission import EmissionState
from ort_ep_coreml.lowering.lowering_context import LoweringContext, rank_of, sizes_of
from ort_ep_coreml.lowering.terms import Term, chosen, term

MASKED = -np.inf
_INT32 = np.dtype(np.int32)


def attention_bias(to: EmissionState, node: Node, record: AttentionRecord, like: Term) -> Term | None:
    """Return all that is added to the scores in their type, ``None`` where nothing is."""
    parts = (
        _padding(to, node, record, like), _frontier(to, node, record, like), _mask(to, node, record, like)
    )  # fmt: skip
    found = [each for each in parts if each is not None]
    return reduce(Term.__add__, found) if found else None


def may_forbid_all(record: AttentionRecord) -> bool:
    """Return whether a query may see nothing; one that is causal alone sees itself."""
    return record.mask is not None or record.lengths is not None or record.left is not None


def _mask(to: EmissionState, node: Node, record: AttentionRecord, like: Term) -> Term | None:
    """Return the mask: of booleans, those that are true are seen; nobody sees keys behind its end."""
    value = None if record.mask is None else node.input(record.mask)
    if value is None:
        return None
    found = term(to, value)
    if found.dtype == np.bool_:
        found = chosen(found, 0, MASKED, like)
    last, total = sizes_of(value)[-1], record.total
    if not record.is_mask_padded or last == total or not isinstance(last, int) or not isinstance(total, int):
        return found
    pads = np.array([0] * (2 * rank_of(value) - 1) + [total - last], np.int32)
    return found.do("pad", pad=pads, mode="constant", constant_val=like.number(MASKED))


def _frontier(to: EmissionState, node: Node, record: AttentionRecord, like: Term) -> Term | None:
    """Return what forbids keys behind the query (causal), or outside of its window; ``None`` where nothing does."""
    left, right = record.left, record.ahead
    if left is None and right is None:
        return None
    length, total = record.query.length, record.total
    assert isinstance(length, int), "forbids_as_lowered was asked"
    assert isinstance(total, int), "forbids_as_lowered was asked"
    ahead = np.arange(total) - np.arange(length)[:, None]
    if record.lengths is None:
        past = record.cache.rows if record.has_past and record.cache is not None else 0
        assert isinstance(past, int), "forbids_as_lowered was asked"
        places = ahead - past
        seen = np.ones(places.shape, np.bool_) if left is None else places >= -left
        seen = seen if right is None else seen & (places <= right)
        return Term(to, np.where(seen, 0, MASKED).astype(like.dtype), like.dtype)
    moved = Term(to, ahead.astype(np.int32), _INT32) - (_key_lengths(to, node, record.lengths, total) - length)
    sides = [("greater_equal", left and -left), ("less_equal", right)]
    flags = [moved.with_(kind, side) for kind, side in sides if side is not None]
    return chosen(reduce(lambda a, b: a.with_("logical_and", b), flags), 0, MASKED, like)


def _key_lengths(to: EmissionState, node: Node, lengths: Lengths, total: int) -> Term:
    """Return how many keys are not padding, as [batch, 1, 1, 1]; inputs of the claim are looked at before each run."""
    value = node.input(lengths.input)
    assert value is not None, "present"
    to.count_on(looked_at(value), 0, total)
    return term(to, value).reshaped(-1, 1, 1, 1)


def _padding(to: EmissionState, node: Node, record: AttentionRecord, like: Term) -> Term | None:
    """Return what forbids the keys that are padding, ``None`` where nobody says how many are."""
    if record.lengths is None:
        return None
    total = record.total
    assert isinstance(total, int), "forbids_as_lowered was asked"
    return chosen(_key_lengths(to, node, record.lengths, total).with_("greater", np.arange(total)), 0, MASKED, like)


def forbids_as_lowered(context: LoweringContext, node: Node, record: AttentionRecord) -> str | None:
    """Return why what forbids keys cannot be lowered, or ``None``."""
    total, is_bounded = record.total, (record.left, record.ahead) != (None, None)
    if (record.lengths is not None or is_bounded) and not (
        isinstance(total, int) and isinstance(record.query.length, int)
    ):
        return (
            "Attention that is causal, in windows or over padded keys is lowered of lengths that are known beforehand"
        )
    key_lengths = None if record.lengths is None else node.input(record.lengths.input)
    if key_lengths is not None and isinstance(total, int) and not lies_within(context, key_lengths, 0, total):
        return "nothing proves that nonpad_kv_seqlen lies within the keys"
    if record.mask is None:
        return None
    last = sizes_of(node.inputs[record.mask])[-1]  # type: ignore[arg-type]  # present
    if isinstance(last, int) == isinstance(total, int):
        return None
    return "Attention with a mask of which nothing says whether it is as long as the keys is not lowered"
