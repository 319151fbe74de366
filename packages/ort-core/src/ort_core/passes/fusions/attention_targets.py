"""The operators that an attention can become, and what each of them asks for.

    com.microsoft MultiHeadAttention     as many heads of keys and values as of queries, nothing bounds the scores
    com.microsoft GroupQueryAttention    groups of queries share heads, scores may be bounded; keys of the same tokens
    ai.onnx Attention (opset 23)         all of this, and keys of other tokens

GroupQueryAttention masks by lengths and by place. Here it gets ``causal`` 0, lengths that let all keys count, and the
model's own mask as a bias: so it means what the model says, whatever the mask hides.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import Enum

import numpy as np

from ort_core.frozen import frozen
from ort_core.ir.constants import Constant
from ort_core.ir.dims import SymbolicDim
from ort_core.ir.nodes import Node
from ort_core.ir.rejection import Rejection
from ort_core.ir.types import DataType, TensorType, ValueType
from ort_core.ir.values import Value
from ort_core.passes.fusions.attention_body import AttentionFacts
from ort_core.passes.fusions.attention_heads import Heads, find_heads, producer_of, size_of_heads
from ort_core.passes.fusions.operands import ONNXRUNTIME, dim, fixed_dim, same_dim, stands_before
from ort_core.rewrite.patch import GraphPatch

GROUPED_FLOATS = frozenset({DataType.FLOAT, DataType.FLOAT16})  # that onnxruntime's CPU has it for
SIZE_STEP = 8  # onnxruntime's kernels want heads of a multiple of as many elements
STANDARD_OPSET = 23
SHARES = 3  # the output that shows the shares of those operators that have it
Size = int | SymbolicDim | None
Operands = tuple[
    Value, Value, Value, Value | None, Value | None, Value | None
]  # query key value bias past_key past_value


class AttentionTarget(Enum):
    """An operator that an attention may become."""

    MULTI_HEAD = "MultiHeadAttention"
    MULTI_HEAD_OF_MADE_KEYS = "MultiHeadAttention of keys that are repeated or made for it"
    GROUPED = "GroupQueryAttention"
    GROUPED_PAST = "GroupQueryAttention with a past"
    STANDARD = "Attention"


SHOWING = frozenset({AttentionTarget.GROUPED, AttentionTarget.STANDARD})  # those that give the shares, too


def operators_of(targets: Collection[AttentionTarget]) -> tuple[tuple[str, str], ...]:
    """Return the (domain, op_type) that attentions become where these are the targets."""
    found = {("" if each is AttentionTarget.STANDARD else ONNXRUNTIME, each.value.split()[0]) for each in targets}
    return tuple(sorted(found))


@frozen
class Groups:
    """Keys and values before they were repeated for each query head of a group."""

    key: Heads
    value: Heads
    count: int


def find_groups(key: Heads, value: Heads, num_heads: int) -> Groups | None:
    """Return the heads that keys and values were repeated from, or that broadcast; ``None`` where each has its own."""
    found = [_before_repeats(each, num_heads) for each in (key, value)]
    before_key, before_value = found
    if before_key is None or before_value is None:
        return None
    counts = {size_of_heads(each)[0] for each in (before_key, before_value)}
    count = counts.pop() if len(counts) == 1 else None
    return Groups(before_key, before_value, count) if count and num_heads % count == 0 else None


def _before_repeats(heads: Heads, num_heads: int) -> Heads | None:
    """Return (batch, groups, length, size) of which each head was repeated in place, or is one for all."""
    four = heads.four
    if heads.joined is None and size_of_heads(heads)[0] == 1 and num_heads > 1:
        return heads
    if four is None or heads.joined is not None:
        return None
    merged = producer_of(four, "Reshape")
    wide = None if merged is None else merged.inputs[0]
    if wide is None or wide.rank != 5 or fixed_dim(four, 1) != num_heads:
        return None
    repeat = producer_of(wide, "Expand", "Tile", "Concat")
    five = None if repeat is None else repeat.inputs[0]
    if repeat is None or five is None or five.rank != 5 or dim(five, 2) != 1:
        return None
    if repeat.op_type == "Concat" and (
        repeat.int_attribute("axis", 0) not in (2, -3) or any(each is not five for each in repeat.inputs)
    ):
        return None
    lifted = producer_of(five, "Unsqueeze", "Reshape")
    inner = None if lifted is None else lifted.inputs[0]
    if inner is None or inner.rank != 4:
        return None
    kept = all(same_dim(dim(inner, axis), dim(five, at)) for axis, at in ((0, 0), (1, 1), (2, 3), (3, 4)))
    wide_kept = all(same_dim(dim(inner, axis), dim(wide, at)) for axis, at in ((0, 0), (1, 1), (2, 3), (3, 4)))
    four_kept = all(same_dim(dim(inner, axis), dim(four, axis)) for axis in (0, 2, 3))
    return find_heads(inner) if kept and wide_kept and four_kept else None


def why_not_grouped(query: Heads, key: Heads, facts: AttentionFacts, length: Size, node: Node) -> Rejection | None:
    """Return why GroupQueryAttention cannot be written, ``None`` where it can."""
    if facts.dtype not in GROUPED_FLOATS:
        return Rejection(f"GroupQueryAttention has no kernel for {facts.dtype.text}", node)
    if facts.head_size != facts.value_size or facts.head_size % SIZE_STEP:
        return Rejection(
            f"GroupQueryAttention wants heads of keys and values of one size that {SIZE_STEP} divides, these have "
            f"{facts.head_size} and {facts.value_size}", node,
        )  # fmt: skip
    key_length = _length_of(key)
    if not same_dim(length, key_length) or query.first is not None:
        return Rejection(f"GroupQueryAttention wants keys of its {length} queries, there are {key_length}", node)
    return None


def _length_of(heads: Heads) -> Size:
    """Return how many new keys there are."""
    if heads.four is not None:
        return dim(heads.four, 2)
    if heads.swapped is not None:
        return dim(heads.swapped, -1)
    if heads.alone is not None:
        return dim(heads.alone, 1)
    return None if heads.split is None else dim(heads.split, 1)


def grouped_attention(
    patch: GraphPatch, place: Node, given: Operands, facts: AttentionFacts, sink: Constant | None = None,
    shares: Value | None = None,
) -> Node:  # fmt: skip
    """Put a GroupQueryAttention there that sees what the bias lets it see; it always shows keys and values."""
    query, key, value, bias, *pasts = given
    lengths = _existing_lengths(place, query, pasts[0]) or _make_lengths(patch, query, pasts[0])
    inputs: list[Value | None] = [query, key, value, *pasts, *lengths]
    if bias is not None or sink is not None:
        inputs += [None, None, None, bias]
    if sink is not None:
        inputs.append(patch.constant(sink.array().reshape(-1), "sinks"))
    attributes: dict[str, object] = {
        "num_heads": facts.num_heads, "kv_num_heads": facts.num_groups, "scale": facts.scale, "causal": 0,
    }  # fmt: skip
    if facts.softcap:
        attributes["softcap"] = facts.softcap
    total = dim(query, 1) if pasts[0] is None else None
    present = TensorType(facts.dtype, (dim(query, 0), facts.num_groups, total, facts.head_size))
    result = TensorType(facts.dtype, (dim(query, 0), dim(query, 1), facts.num_heads * facts.value_size))
    types: list[ValueType | None] = [result, present, present]
    if shares is not None:
        attributes["qk_output"] = 2  # behind the softmax
        types.append(shares.type)
    return patch.node("GroupQueryAttention", inputs, attributes, outputs=types, domain=ONNXRUNTIME)


def _existing_lengths(place: Node, query: Value, past: Value | None) -> list[Value] | None:
    """Return the lengths that an earlier attention of the same sizes reads."""
    if past is not None or place.graph is None:
        return None
    for node in place.graph:
        if node.op_type != "GroupQueryAttention" or node.input(3) is not None:
            continue
        other, lengths = node.inputs[0], [each for each in node.inputs[5:7] if each is not None]
        if other is None or not all(same_dim(dim(other, axis), dim(query, axis)) for axis in (0, 1)):
            continue
        if len(lengths) == 2 and all(stands_before(each, place) for each in lengths):
            return lengths
    return None


def _make_lengths(patch: GraphPatch, query: Value, past: Value | None) -> list[Value]:
    """Return the number of keys less one for each entry of the batch, and the number of keys, as int32."""
    shape = patch.op("Shape", [query])
    batch, total = (patch.op("Gather", [shape, patch.constant(np.array([axis], np.int64), "axis")]) for axis in (0, 1))
    if past is not None:
        axis = patch.constant(np.array([2], np.int64), "axis")
        total = patch.op("Add", [total, patch.op("Gather", [patch.op("Shape", [past]), axis])])
    keys = patch.op("Cast", [total], {"to": int(DataType.INT32)}, type=TensorType(DataType.INT32, (1,)))
    last = patch.op("Sub", [keys, patch.constant(np.ones(1, np.int32), "one")], type=TensorType(DataType.INT32, (1,)))
    lasts = patch.op("Expand", [last, batch], type=TensorType(DataType.INT32, (dim(query, 0),)))
    return [lasts, keys]


def standard_attention(
    patch: GraphPatch, given: Operands, facts: AttentionFacts, presents: Sequence[Value], shares: Value | None = None
) -> Node:
    """Put an Attention of the standard there; it shows the keys and values that stand for ``presents``."""
    query = given[0]
    inputs = list(given)
    while inputs[-1] is None:
        inputs.pop()
    attributes: dict[str, object] = {
        "q_num_heads": facts.num_heads,
        "kv_num_heads": facts.num_groups,
        "scale": facts.scale,
    }
    if facts.softcap:
        attributes["softcap"] = facts.softcap
    result = TensorType(facts.dtype, (dim(query, 0), dim(query, 1), facts.num_heads * facts.value_size))
    types: list[ValueType | None] = [result, *(each.type for each in presents)]
    if shares is not None:
        attributes["qk_matmul_output_mode"] = 3  # behind the softmax
        key, value = (
            TensorType(facts.dtype, (dim(query, 0), facts.num_groups, None, size))
            for size in (facts.head_size, facts.value_size)
        )
        types = [*types, key, value][:SHARES]
        types.append(shares.type)
    return patch.node("Attention", inputs, attributes, outputs=types)
