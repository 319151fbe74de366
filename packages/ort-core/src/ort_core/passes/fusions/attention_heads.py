"""Where the heads of an attention come from: walks from (batch, heads, length, size) back to a projection.

Exporters split a projection (batch, length, heads * size) by Reshape and Transpose, turn keys for the product in one
of several ways, scale either operand, and append to a cache. Every walk goes over pure operators only, and what it
claims about sizes is proven by inferred types.
"""

from __future__ import annotations

import numpy as np

from ort_core.frozen import frozen
from ort_core.ir.dims import SymbolicDim
from ort_core.ir.nodes import Node
from ort_core.ir.values import Value
from ort_core.passes.fusions.operands import dim, fixed_dim, number_of, same_dim
from ort_core.rewrite.patch import GraphPatch

SPLIT = (0, 2, 1, 3)  # (batch, length, heads, size) <-> (batch, heads, length, size)
SPLIT_LENGTH_FIRST = (1, 2, 0, 3)  # (length, batch, heads, size) -> (batch, heads, length, size)
MERGE_LENGTH_FIRST = (2, 0, 1, 3)  # and back
SWAPPED_TO_SPLIT = (0, 3, 1, 2)  # (batch, heads, size, length) -> (batch, length, heads, size)


@frozen
class Heads:
    """Heads as four axes, and where they come from.

    ``four`` is (batch, heads, length, size); ``split`` the same before its transposition, ``flat`` before it was
    split into heads: each ``None`` where it does not exist. ``past`` and ``joined``: ``four`` of a cache, and the
    Concat that appends these heads to it. ``first`` is (length, batch, heads * size), in place of all the others, with
    ``size`` of each head: nn.MultiheadAttention has the length first. ``swapped`` is (batch, heads, size, length), or
    (batch, size, length) of one head, in place of all the others, where it is not known to be a transposition.
    ``alone`` is (batch, length, size) of one head, which may be several heads that were stacked with the batch.
    """

    four: Value | None
    split: Value | None
    flat: Value | None
    past: Value | None = None
    joined: Node | None = None
    first: Value | None = None
    size: int = 0
    swapped: Value | None = None
    alone: Value | None = None

    def as_flat(self, patch: GraphPatch, width: int) -> Value:
        """Return (batch, length, heads * size), with new nodes where the model has no such value."""
        if self.flat is not None:
            return self.flat
        if self.first is not None:
            return patch.op("Transpose", [self.first], {"perm": (1, 0, 2)})
        if self.alone is not None:
            return self.alone
        split = self.split
        if self.swapped is not None and self.swapped.rank == 3:
            return patch.op("Transpose", [self.swapped], {"perm": (0, 2, 1)})
        if self.swapped is not None:
            split = patch.op("Transpose", [self.swapped], {"perm": SWAPPED_TO_SPLIT})
        if split is None:
            assert self.four is not None
            split = patch.op("Transpose", [self.four], {"perm": SPLIT})
        return patch.op("Reshape", [split, patch.constant(np.array([0, 0, width], np.int64), "merged_heads")])


def producer_of(value: Value | None, *op_types: str) -> Node | None:
    """Return the producer of a value when it is one of the operators of the standard."""
    node = None if value is None else value.producer
    return node if node is not None and node.domain == "" and node.op_type in op_types else None


def peel_scale(value: Value) -> tuple[Value, float]:
    """Return what a value is a constant multiple of, and the factor."""
    node = producer_of(value, "Mul", "Div")
    if node is None:
        return value, 1.0
    left, right = node.inputs[:2]
    assert left is not None
    assert right is not None
    pairs = [(left, right)] if node.op_type == "Div" else [(left, right), (right, left)]
    for inner, factor in pairs:
        number = number_of(factor)
        if number and inner.rank == value.rank:
            peeled, more = peel_scale(inner)
            return peeled, more / number if node.op_type == "Div" else more * number
    return value, 1.0


def find_heads(four: Value) -> Heads | None:
    """Return the origin of heads of four axes, or of three where batch and heads are stacked.

    ``None``: they are stacked, and it is not known of what.
    """
    if four.rank == 3:
        unstacked = unstack(four)
        return find_length_first(four) if unstacked is None else find_heads(unstacked)
    one = lifted_head(four)
    if one is not None:
        return Heads(four, None, one)
    joined = producer_of(four, "Concat")
    if joined is not None and len(joined.inputs) == 2 and joined.int_attribute("axis", 0) in (2, -2):
        past, new = joined.inputs
        if past is not None and new is not None:
            origin = find_heads(new)
            if origin is not None and origin.joined is None:
                return Heads(new, origin.split, origin.flat, past, joined)
    turned = producer_of(four, "Transpose")
    perm = None if turned is None else turned.ints_attribute("perm")
    if turned is not None and perm == SPLIT:
        split = turned.inputs[0]
        return Heads(four, split, find_flat(split))
    if turned is not None and perm == SPLIT_LENGTH_FIRST:
        return _split_length_first(turned.inputs[0]) or Heads(four, None, None)
    return Heads(four, None, None)


def _split_length_first(split: Value | None) -> Heads | None:
    """Return the (length, batch, width) that was split to (length, batch, heads, size)."""
    first, size = find_flat(split), None if split is None else fixed_dim(split, 3)
    width = None if first is None else fixed_dim(first, 2)
    if first is None or not width or not size or width % size:
        return None
    return Heads(None, None, None, first=first, size=size)


def find_flat(split: Value | None) -> Value | None:
    """Return the (batch, length, width) that a Reshape split into heads, where that is proven to be all it did."""
    node = producer_of(split, "Reshape")
    if node is None or split is None:
        return None
    flat = node.inputs[0]
    if (
        flat is None
        or flat.rank != 3
        or not (same_dim(dim(flat, 0), dim(split, 0)) and same_dim(dim(flat, 1), dim(split, 1)))
    ):
        return None
    return flat


def lifted_head(four: Value) -> Value | None:
    """Return the (batch, m, n) that became (batch, 1, m, n): one head for all heads of queries."""
    node = producer_of(four, "Unsqueeze", "Reshape")
    three = None if node is None else node.inputs[0]
    if three is None or three.rank != 3 or four.rank != 4 or dim(four, 1) != 1:
        return None
    return three if all(same_dim(dim(three, a), dim(four, b)) for a, b in ((0, 0), (1, 2), (2, 3))) else None


def unstack(three: Value) -> Value | None:
    """Return (batch, heads, m, n) of which (batch * heads, m, n) was made by a Reshape."""
    node = producer_of(three, "Reshape")
    four = None if node is None else node.inputs[0]
    if four is None or four.rank != 4 or three.rank != 3:
        return None
    return four if all(same_dim(dim(four, axis), dim(three, axis)) for axis in (-1, -2)) else None


def find_length_first(stacked: Value, *, is_swapped: bool = False) -> Heads | None:
    """Return the (length, batch, width) of which (batch * heads, length, size) was made, as nn.MultiheadAttention does.

    With ``is_swapped`` it has its last two axes swapped, as keys have for the product.
    """
    node = producer_of(stacked, "Transpose")
    if node is None or node.ints_attribute("perm") != ((1, 2, 0) if is_swapped else (1, 0, 2)):
        return None
    split = producer_of(node.inputs[0], "Reshape")
    first = None if split is None else split.inputs[0]
    if first is None or first.rank != 3 or split is None or split.output.rank != 3:
        return None
    width, size = fixed_dim(first, 2), fixed_dim(split.output, 2)
    if not width or not size or width % size or not same_dim(dim(first, 0), dim(split.output, 0)):
        return None
    return Heads(None, None, None, first=first, size=size)


def find_keys(turned: Value) -> tuple[Heads, float] | None:
    """Return the keys whose last two axes were swapped for the product, and the factor on the way."""
    value, factor = peel_scale(turned)
    if value.rank == 3:
        found, more = _find_stacked_keys(value)
        return None if found is None else (found, factor * more)
    node = producer_of(value, "Transpose")
    if node is not None and node.ints_attribute("perm") == (0, 2, 3, 1):
        return Heads(None, node.inputs[0], find_flat(node.inputs[0])), factor
    if node is not None and node.ints_attribute("perm") == (1, 2, 3, 0) and node.inputs[0] is not None:
        split, more = peel_scale(node.inputs[0])
        first = _split_length_first(split)
        if first is not None:
            return first, factor * more
    one = lifted_head(value)
    if one is not None:
        alone, more = swapped_head_of(one)
        return None if alone is None else (alone, factor * more)
    four = _before_swap(value)
    if four is None:
        return (Heads(None, None, None, swapped=value), factor) if value.rank == 4 else None
    inner, more = peel_scale(four)
    heads = find_heads(inner)
    return None if heads is None else (heads, factor * more)


def _find_stacked_keys(value: Value) -> tuple[Heads | None, float]:
    four = unstack(value)
    if four is not None:
        return find_keys(four) or (None, 1.0)
    node = producer_of(value, "Transpose")
    if node is not None and node.ints_attribute("perm") == (0, 2, 1) and node.inputs[0] is not None:
        inner, factor = peel_scale(node.inputs[0])
        return find_heads(inner), factor
    return find_length_first(value, is_swapped=True), 1.0


def one_head_of(three: Value | None) -> Heads | None:
    """Return (batch, length, size) as one head."""
    return None if three is None or three.rank != 3 else Heads(None, None, None, alone=three)


def swapped_head_of(three: Value) -> tuple[Heads | None, float]:
    """Return the keys of one head, (batch, size, length) or what it was before a swap, and the factor on the way."""
    value, factor = peel_scale(three)
    node = producer_of(value, "Transpose")
    if node is None or node.ints_attribute("perm") != (0, 2, 1):
        return (Heads(None, None, None, swapped=value) if value.rank == 3 else None), factor
    return one_head_of(node.inputs[0]), factor


def _before_swap(value: Value) -> Value | None:
    """Return the heads of which ``value`` has the last two axes swapped, directly or as a stack of matrices."""
    node = producer_of(value, "Transpose")
    if node is not None:
        return node.inputs[0] if node.ints_attribute("perm") == (0, 1, 3, 2) else None
    node = producer_of(value, "Reshape")
    swap = None if node is None else producer_of(node.inputs[0], "Transpose")
    if swap is None or swap.ints_attribute("perm") != (0, 2, 1):
        return None
    stack = producer_of(swap.inputs[0], "Reshape")
    four = None if stack is None else stack.inputs[0]
    if four is None or four.rank != 4 or stack is None:
        return None
    size, length = dim(four, 3), dim(four, 2)
    is_stack = same_dim(dim(stack.output, 1), length) and same_dim(dim(stack.output, 2), size)
    is_same = value.rank == 4 and all(same_dim(dim(value, axis), dim(four, axis)) for axis in (0, 1))
    is_swapped = value.rank == 4 and same_dim(dim(value, 2), size) and same_dim(dim(value, 3), length)
    return four if is_stack and is_same and is_swapped else None


def size_of_heads(heads: Heads) -> tuple[int | None, int | None]:
    """Return the number of heads and the size of each, where they are numbers."""
    if heads.first is not None:
        width = fixed_dim(heads.first, 2)
        return (None if width is None else width // heads.size), heads.size
    if heads.alone is not None:
        return 1, fixed_dim(heads.alone, 2)
    if heads.swapped is not None:
        axes = (1, fixed_dim(heads.swapped, 1)) if heads.swapped.rank == 3 else ()
        return axes or (fixed_dim(heads.swapped, 1), fixed_dim(heads.swapped, 2))
    if heads.split is not None and heads.split.rank == 4:
        return fixed_dim(heads.split, 2), fixed_dim(heads.split, 3)
    if heads.four is None or heads.four.rank != 4:
        return None, None
    return fixed_dim(heads.four, 1), fixed_dim(heads.four, 3)


def batch_of(heads: Heads) -> int | SymbolicDim | None:
    """Return the size of the batch."""
    if heads.first is not None:
        return dim(heads.first, 1)
    places = (heads.four, heads.split, heads.swapped, heads.alone)
    value = next((each for each in places if each is not None), None)
    return None if value is None else dim(value, 0)
