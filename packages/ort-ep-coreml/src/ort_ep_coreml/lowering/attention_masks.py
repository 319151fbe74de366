"""What forbids an Attention of ai.onnx keys: masks, causality, windows, padding; each as something that is added."""

from __future__ import annotations

from functools import reduce

import numpy as np

from ort_core.plugin.ir import Node
from ort_ep_coreml.lowering.asked import Asked, rank_of, sizes_of
from ort_ep_coreml.lowering.conditions import lies_within
from ort_ep_coreml.lowering.emission import EmissionState
from ort_ep_coreml.lowering.terms import Term, chosen, term
from ort_ep_coreml.mil import Size

MASKED = -np.inf
_MASK, _PAST, _KEY_LENGTHS = 3, 4, 6  # inputs
_INT32 = np.dtype(np.int32)


def attention_bias(to: EmissionState, node: Node, like: Term) -> Term | None:
    """Return all that is added to the scores in their type, ``None`` where nothing is."""
    parts = (_padding(to, node, like), _frontier(to, node, like), _mask(to, node, like))
    found = [each for each in parts if each is not None]
    return reduce(Term.__add__, found) if found else None


def may_forbid_all(node: Node) -> bool:
    """Return whether a query may see nothing; one that is causal alone sees itself."""
    return node.input(_MASK) is not None or node.input(_KEY_LENGTHS) is not None or _window(node)[0] is not None


def _mask(to: EmissionState, node: Node, like: Term) -> Term | None:
    """Return the mask: of booleans, those that are true are seen; nobody sees keys behind its end."""
    value = node.input(_MASK)
    if value is None:
        return None
    found = term(to, value)
    if found.dtype == np.bool_:
        found = chosen(found, 0, MASKED, like)
    last, total = sizes_of(value)[-1], lengths(node)[1]
    if last == total or not isinstance(last, int) or not isinstance(total, int):
        return found
    pads = np.array([0] * (2 * rank_of(value) - 1) + [total - last], np.int32)
    return found.do("pad", pad=pads, mode="constant", constant_val=like.number(MASKED))


def _frontier(to: EmissionState, node: Node, like: Term) -> Term | None:
    """Return what forbids keys behind the query (causal), or outside of its window; ``None`` where nothing does."""
    left, right = _window(node)
    if left is None and right is None:
        return None
    length, total = lengths(node)
    assert isinstance(length, int), "_lengths_are_known was asked"
    assert isinstance(total, int), "_lengths_are_known was asked"
    ahead = np.arange(total) - np.arange(length)[:, None]
    if node.input(_KEY_LENGTHS) is None:
        places = ahead - _past_length(node)
        seen = np.ones(places.shape, np.bool_) if left is None else places >= -left
        seen = seen if right is None else seen & (places <= right)
        return Term(to, np.where(seen, 0, MASKED).astype(like.dtype), like.dtype)
    moved = Term(to, ahead.astype(np.int32), _INT32) - (_key_lengths(to, node, total) - length)
    sides = [("greater_equal", left and -left), ("less_equal", right)]
    flags = [moved.with_(kind, side) for kind, side in sides if side is not None]
    return chosen(reduce(lambda a, b: a.with_("logical_and", b), flags), 0, MASKED, like)


def _window(node: Node) -> tuple[int | None, int | None]:
    """Return how many keys before and behind its own place a query sees; ``None``: all."""
    left, right = node.int_attribute("left_window_size", -1), node.int_attribute("right_window_size", -1)
    right = 0 if node.int_attribute("is_causal", 0) else right
    return (None if left < 0 else left), (None if right < 0 else right)


def _key_lengths(to: EmissionState, node: Node, total: int) -> Term:
    """Return how many keys are no padding, as [batch, 1, 1, 1]; inputs of the claim are looked at before each run."""
    value = node.input(_KEY_LENGTHS)
    assert value is not None, "present"
    to.count_on(value, 0, total)
    return term(to, value).reshaped(-1, 1, 1, 1)


def _padding(to: EmissionState, node: Node, like: Term) -> Term | None:
    """Return what forbids the keys that are padding, ``None`` where nobody says how many are."""
    if node.input(_KEY_LENGTHS) is None:
        return None
    total = lengths(node)[1]
    assert isinstance(total, int), "_lengths_are_known was asked"
    return chosen(_key_lengths(to, node, total).with_("greater", np.arange(total)), 0, MASKED, like)


def lengths(node: Node) -> tuple[Size, Size]:
    """Return the lengths of queries, and of keys with the past; "?" where the sum has no number."""
    q, k = sizes_of(node.inputs[0]), sizes_of(node.inputs[1])  # type: ignore[arg-type]  # required
    past = sizes_of(node.inputs[_PAST])[2] if node.input(_PAST) is not None else 0  # type: ignore[arg-type]  # present
    new = k[-2]
    return q[-2], new + past if isinstance(new, int) and isinstance(past, int) else "?"


def _past_length(node: Node) -> int:
    past = sizes_of(node.inputs[_PAST])[2] if node.input(_PAST) is not None else 0  # type: ignore[arg-type]  # present
    return past if isinstance(past, int) else 0


def forbids_as_lowered(asked: Asked, node: Node) -> str | None:
    """Return why what forbids keys cannot be lowered, or ``None``."""
    needs_lengths = node.input(_KEY_LENGTHS) is not None or _window(node) != (None, None)
    if needs_lengths and any(not isinstance(each, int) for each in lengths(node)):
        return (
            "Attention that is causal, in windows or over padded keys is lowered of lengths that are known beforehand"
        )
    key_lengths, total = node.input(_KEY_LENGTHS), lengths(node)[1]
    if key_lengths is not None and isinstance(total, int) and not lies_within(asked, key_lengths, 0, total):
        return "nothing proves that nonpad_kv_seqlen lies within the keys"
    if node.input(_MASK) is None:
        return None
    last = sizes_of(node.inputs[_MASK])[-1]  # type: ignore[arg-type]  # present
    if isinstance(last, int) == isinstance(total, int):
        return None
    return "Attention with a mask of which nothing says whether it is as long as the keys is not lowered"
