"""AttentionFusion: softmax(Q K' * scale + mask) V with its splitting and merging of heads, as MultiHeadAttention.

    p = Softmax(Add(Mul(MatMul(q, k'), scale), mask))    y = Reshape(Transpose(MatMul(p, v)))
        ->  y = MultiHeadAttention(query, key, value, , , mask, past_key, past_value) {num_heads, scale}

Covers the exports of BERT, ViT, GPT-2, Whisper, LLaMA and diffusion models: scale on the scores or on either operand;
keys turned by one Transpose or by Reshape, Transpose, Reshape; batch and heads stacked to one axis, as older exports
and nn.MultiheadAttention have them; masks of any shape that broadcasts, or a choice by a causal buffer; sinks beside
the scores, whose shares are dropped; a cache in front of keys and values; PyTorch's replacement of NaN by zero behind
the softmax, which matters only in rows that a mask of -inf hides whole. The projections stay matrix products. Sizes are
proven by inferred types.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from ort_core.ir.dims import SymbolicDim
from ort_core.ir.nodes import Node
from ort_core.ir.rejection import Rejection
from ort_core.ir.types import DataType, TensorType
from ort_core.ir.values import Value
from ort_core.passes.fusions.attention_body import AttentionFacts, build_attention_body
from ort_core.passes.fusions.attention_heads import (
    MERGE_LENGTH_FIRST,
    SPLIT,
    batch_of,
)
from ort_core.passes.fusions.attention_keys import bias_of_sink, repeat_head, with_empty_key
from ort_core.passes.fusions.attention_mask import Mask, broadcast_mask, broadcast_type
from ort_core.passes.fusions.attention_parts import AttentionParts, find_parts
from ort_core.passes.fusions.attention_rows import above_lowest, refuse_hidden_rows, replace_hidden_rows
from ort_core.passes.fusions.attention_scores import (
    find_blanked_scores,
    find_scores,
    find_sunk_scores,
    stacked_behind,
    why_no_scores,
)
from ort_core.passes.fusions.attention_shares import are_shown, find_shown_parts
from ort_core.passes.fusions.attention_targets import (
    SHARES,
    SHOWING,
    AttentionTarget,
    grouped_attention,
    operators_of,
    standard_attention,
)
from ort_core.passes.fusions.dead_nodes import nodes_only_for
from ort_core.passes.fusions.operands import (
    FUSED_FLOATS,
    ONNXRUNTIME,
    dim,
    first_refusal,
    integers_of,
    number_of,
    only_reader,
    refuse_dtype,
    same_dim,
)
from ort_core.rewrite.matcher import Match
from ort_core.rewrite.patch import GraphPatch
from ort_core.rewrite.pattern import Pattern, one_of, op, var
from ort_core.rewrite.rule import RewriteRule

LAST_AXIS_OPSET = 13  # since then Softmax is over the last axis by default


def _is_last_axis(node: Node) -> bool:
    axis = node.attribute("axis")
    rank = node.output.rank
    return axis is None or axis == -1 or (rank is not None and axis == rank - 1)


class AttentionFusion(RewriteRule[AttentionParts]):
    """Fuse an attention to MultiHeadAttention.

    Args:
        allowed: the element types to fuse; a provider without a kernel for one of them had better leave it alone.
        targets: the operators to write. The standard's is preferred where the opset has it, then the grouped one where
            heads share keys or scores are bounded; with ``GROUPED_PAST`` it gets the cache, too.
    """

    name = "AttentionFusion"

    def __init__(
        self,
        allowed: frozenset[DataType] = FUSED_FLOATS,
        targets: Collection[AttentionTarget] = (AttentionTarget.MULTI_HEAD,),
    ) -> None:
        super().__init__()
        self._allowed = allowed
        self._targets = frozenset(targets)
        self.emits = operators_of(self._targets)  # type: ignore[misc]  # rules of one class, for several targets

    def build_pattern(self) -> Pattern:
        """Return the product of weights and values; the rest is walked, as exports differ too much for one pattern."""
        shows = not self._targets.isdisjoint(SHOWING)
        weights = op("Softmax", var("masked_scores"), name="softmax", shared=shows)
        guarded = op("Where", op("IsNaN", weights), var("zero"), weights, name="guard")
        blanked = one_of(
            op("Where", var("hidden"), var("blank_zero"), weights, name="blank"),
            op("Where", var("allowed"), weights, var("blank_zero"), name="blank"),
        )
        stacked = op("Reshape", one_of(guarded, weights, blanked), var("stack_shape"), name="stack")
        cut = op("Slice", weights, name="cut", more_inputs=True)
        return op("MatMul", one_of(guarded, weights, blanked, stacked, cut), var("v"))

    def check(self, match: Match) -> AttentionParts | Rejection:
        """Find the parts and prove their sizes."""
        refusal = refuse_dtype(match["v"], match.root, self._allowed)
        if refusal is not None:
            return refusal
        is_last = _is_last_axis(match.node("softmax"))
        if not is_last or (match.opset() < LAST_AXIS_OPSET and match.node("softmax").attribute("axis") is None):
            return Rejection("the softmax is not over the last axis", match.root)
        if are_shown(match):
            return find_shown_parts(match, self._targets)
        if match.has_node("cut"):
            sunk = find_sunk_scores(match["masked_scores"], match.node("cut"))
            return sunk if isinstance(sunk, Rejection) else find_parts(match, sunk, self._targets)
        if match.has_node("blank"):
            return self._blanked(match)
        found = find_scores(match["masked_scores"])
        if found is not None and match.has_node("stack"):
            found = stacked_behind(found, match.node("stack"))
        if found is None:
            return Rejection(why_no_scores(match["masked_scores"]), match.root)
        masks = found.masks
        if not match.has_node("guard") or (number_of(match["zero"]) == 0 and all(mask.is_finite for mask in masks)):
            return find_parts(match, found, self._targets)
        if number_of(match["zero"]) != 0 or not all(mask.is_bounded for mask in masks):
            return Rejection(
                "NaN is replaced behind the softmax and the mask is not known to be finite or -inf", match.root
            )
        found_parts = find_parts(match, found, self._targets)
        refusals = (refuse_hidden_rows(each, match.root) for mask in masks for each in mask.read()[-1:])
        refusal = first_refusal(*refusals)
        if refusal is not None or isinstance(found_parts, Rejection):
            return found_parts if refusal is None else refusal
        return replace(found_parts, hides_rows=True)

    def _blanked(self, match: Match) -> AttentionParts | Rejection:
        """Return the parts where hidden shares are set to 0 behind the softmax, which changes rows without any key."""
        found = find_blanked_scores(match["masked_scores"], match.node("blank"))
        if isinstance(found, Rejection):
            return found
        blank = found.masks[-1]
        refusal = refuse_hidden_rows(blank.read()[-1], match.root)
        if refusal is not None:
            return refusal
        stacked = stacked_behind(found, match.node("stack")) if match.has_node("stack") else found
        if stacked is None:
            return Rejection("it is not known how batch and heads are stacked behind the softmax", match.root)
        parts = find_parts(match, stacked, self._targets)
        return parts if isinstance(parts, Rejection) else replace(parts, blank=blank)

    def rewrite(self, match: Match, bindings: AttentionParts) -> GraphPatch:
        """Put one MultiHeadAttention there, and its result in the place of the merged heads."""
        patch = GraphPatch(match.model, match.root)
        facts = bindings.facts
        bias = _sum_of(patch, bindings)
        joined = (bindings.key.joined, bindings.value.joined) if bindings.uses_past else ()
        presents = [each.output for each in joined if each is not None]
        node = _put(patch, match.root, bindings, bias, presents)
        shown = dict(zip(presents, node.outputs[1:], strict=False))
        if bindings.shown is not None:
            shown[bindings.shown] = node.outputs[SHARES]
        for old, new in shown.items():
            assert new is not None
            patch.replace(old, new)
        result = node.output
        if bindings.hides_rows and bias is not None:
            result = replace_hidden_rows(patch, result, bias, match.opset())
        if bindings.blank is not None:
            result = _blank_rows(patch, result, bindings.blank, match.opset())
        replaced = replace_product(patch, match.output, result, facts)
        made = [value.producer for value in (replaced, *shown) if value.producer is not None]
        patch.remove(*nodes_only_for(made))
        return patch


def _put(patch: GraphPatch, place: Node, parts: AttentionParts, bias: Value | None, presents: Sequence[Value]) -> Node:
    """Put the operator there that the parts become."""
    facts = parts.facts
    if parts.target is AttentionTarget.MULTI_HEAD:
        inputs = attention_inputs(patch, parts, bias)
        body = build_attention_body(inputs, facts, 1 + len(presents))
        shape = (_batch_of_result(parts), dim(parts.scores, -2), facts.num_heads * facts.value_size)
        types = [TensorType(facts.dtype, shape), *(value.type for value in presents)]
        attributes = {"num_heads": facts.num_heads, "scale": facts.scale}
        return patch.node("MultiHeadAttention", inputs, attributes, outputs=types, domain=ONNXRUNTIME, body=body)
    query, key, value = _flat_operands(patch, parts)
    pasts = (parts.key.past, parts.value.past) if parts.uses_past else (None, None)
    if bias is not None:
        bias = broadcast_mask(patch, bias, parts.scores, lambda: _lengths(patch, parts, query, key))
    if parts.target is AttentionTarget.STANDARD and parts.sink is not None:
        key, value, bias = _with_sinks(patch, parts, query, key, value, bias)
    if parts.target is AttentionTarget.STANDARD:
        if bias is not None and any(mask.is_finite for mask in parts.masks):
            bias = above_lowest(patch, bias, place)
        return standard_attention(patch, (query, key, value, bias, *pasts), facts, presents, parts.shown)
    return grouped_attention(patch, place, (query, key, value, bias, *pasts), facts, parts.sink, parts.shown)


def _blank_rows(patch: GraphPatch, result: Value, blank: Mask, opset: int) -> Value:
    """Return the result with zeros in the rows of which a choice hides every score."""
    low = number_of(blank.value)
    assert low is not None
    addend = blank.as_addend(patch, 1, lambda: result)
    return replace_hidden_rows(patch, result, addend, opset, low / 2 if math.isfinite(low) else None)


def _sum_of(patch: GraphPatch, parts: AttentionParts) -> Value | None:
    """Return what is added to the scores, ``None`` where there is no mask."""
    if not parts.masks:
        return None

    def batch() -> Value:
        return _size(patch, parts.query.as_flat(patch, parts.facts.num_heads * parts.facts.head_size), 0)

    addends = [mask.as_addend(patch, parts.facts.num_heads, batch) for mask in parts.masks]
    total = addends[0]
    for addend in addends[1:]:
        total = patch.op("Add", [total, addend], type=broadcast_type(total, addend))
    return total


def attention_inputs(patch: GraphPatch, parts: AttentionParts, bias: Value | None) -> list[Value | None]:
    """Return the inputs of a MultiHeadAttention, with the nodes that bring them into shape."""
    facts = parts.facts
    is_four = parts.key.four is not None and parts.value.four is not None and parts.key.split is None
    is_four &= not parts.broadcasts_batch and facts.head_size == facts.value_size  # onnxruntime wants one shape
    is_four &= parts.sink is None and facts.num_groups == facts.num_heads
    if parts.uses_past or not is_four:
        query, key, value = _flat_operands(patch, parts)
    else:
        query = parts.query.as_flat(patch, facts.num_heads * facts.head_size)
        assert parts.key.four is not None
        assert parts.value.four is not None
        key, value = parts.key.four, parts.value.four
    inputs: list[Value | None] = [query, key, value]
    if bias is not None:
        bias = broadcast_mask(patch, bias, parts.scores, lambda: _lengths(patch, parts, query, key))
    if parts.sink is not None:
        key, value, bias = _with_sinks(patch, parts, query, key, value, bias)
        inputs[1:] = [key, value]
    if facts.num_groups != facts.num_heads:
        key = repeat_head(patch, key, facts.num_heads, facts.head_size, facts.dtype)
        inputs[1:] = [key, repeat_head(patch, value, facts.num_heads, facts.value_size, facts.dtype)]
    if bias is not None:
        inputs += [None, None, bias]
    if parts.uses_past:
        inputs += [None] * (6 - len(inputs)) + [parts.key.past, parts.value.past]
    return inputs


def _with_sinks(
    patch: GraphPatch, parts: AttentionParts, query: Value, key: Value, value: Value, bias: Value | None
) -> tuple[Value, Value, Value | None]:
    """Return keys and values with one more, and the bias that gives it the score of a sink."""
    facts, sink = parts.facts, parts.sink
    assert sink is not None
    lengths = _lengths(patch, parts, query, key)
    batch = _size(patch, key, 0)
    if bias is not None or sink.array().any():  # the score of an empty key is zero
        bias = bias_of_sink(patch, bias, sink, facts, lengths)
    key = with_empty_key(patch, key, facts.num_groups * facts.head_size, batch, facts.dtype)
    return key, with_empty_key(patch, value, facts.num_groups * facts.value_size, batch, facts.dtype), bias


def _flat_operands(patch: GraphPatch, parts: AttentionParts) -> tuple[Value, Value, Value]:
    """Return query, key and value as (batch, length, heads * size), of one batch."""
    facts = parts.facts
    query = parts.query.as_flat(patch, facts.num_heads * facts.head_size)
    key = parts.key.as_flat(patch, facts.num_groups * facts.head_size)
    value = parts.value.as_flat(patch, facts.num_groups * facts.value_size)
    if not parts.broadcasts_batch:
        return query, key, value
    ones = patch.constant(np.ones(2, np.int64), "same")
    of_query, of_key = (patch.op("Concat", [_size(patch, each, 0), ones], {"axis": 0}) for each in (query, key))
    return tuple(  # type: ignore[return-value]  # three of three
        patch.op("Expand", [each, other], type=_of_batch(each, parts))
        for each, other in ((query, of_key), (key, of_query), (value, of_query))
    )


def _of_batch(value: Value, parts: AttentionParts) -> TensorType:
    return TensorType(parts.facts.dtype, (_batch_of_result(parts), dim(value, 1), dim(value, 2)))


def _batch_of_result(parts: AttentionParts) -> int | SymbolicDim | None:
    return dim(parts.scores, 0) if parts.broadcasts_batch else batch_of(parts.query)


def _lengths(patch: GraphPatch, parts: AttentionParts, query: Value, key: Value) -> list[Value]:
    """Return the number of queries and of keys as vectors of one element."""
    queries = _size(patch, query, 1)
    keys = _size(patch, key, 2 if parts.key.four is key else 1)
    if parts.uses_past and parts.key.past is not None:
        keys = patch.op("Add", [keys, _size(patch, parts.key.past, 2)])
    return [queries, keys]


def _size(patch: GraphPatch, value: Value, axis: int) -> Value:
    size = dim(value, axis)
    if isinstance(size, int):
        return patch.constant(np.array([size], np.int64), "size")
    return patch.op("Gather", [patch.op("Shape", [value]), patch.constant(np.array([axis], np.int64), "axis")])


def replace_product(patch: GraphPatch, product: Value, result: Value, facts: AttentionFacts) -> Value:
    """Replace a product with values by the result, in whatever form it is read; return what was replaced."""
    if product.rank != 3:
        return replace_merged(patch, product, result, facts)
    if facts.num_heads == 1 and same_dim(dim(result, 0), dim(product, 0)):
        patch.replace(product, result)
        return product
    reader = only_reader(product)
    four = None if reader is None or reader.op_type != "Reshape" or reader.domain else reader.output
    if four is not None and four.rank == 4:
        axes = (dim(four, 1), dim(four, 2), dim(four, 3))
        wanted = (facts.num_heads, dim(product, 1), facts.value_size)
        if all(same_dim(axis, size) for axis, size in zip(axes, wanted, strict=True)):
            return replace_merged(patch, four, result, facts)
    sizes = patch.constant(np.array([0, 0, facts.num_heads, facts.value_size], np.int64), "split_heads")
    heads = patch.op("Transpose", [patch.op("Reshape", [result, sizes])], {"perm": SPLIT})
    stack = [patch.constant(np.array([number], np.int64), "stack") for number in (-1, facts.value_size)]
    shape = patch.op("Concat", [stack[0], _size(patch, result, 1), stack[1]], {"axis": 0})
    patch.replace(product, patch.op("Reshape", [heads, shape], type=product.type))
    return product


def replace_merged(patch: GraphPatch, product: Value, result: Value, facts: AttentionFacts) -> Value:
    """Replace the merged heads by the result, else the product by the result split; return what was replaced."""
    width = facts.num_heads * facts.value_size
    length_first = _merged_length_first(product, width)
    if length_first is not None:
        patch.replace(length_first, patch.op("Transpose", [result], {"perm": (1, 0, 2)}, type=length_first.type))
        return length_first
    merged = _find_merge(product)
    reshape = None if merged is None else only_reader(merged)
    if reshape is not None and reshape.op_type == "Reshape" and reshape.domain == "" and reshape.inputs[0] is merged:
        made = reshape.output
        axes = (dim(product, 0), dim(product, 2), width)
        if made.rank == 3 and all(same_dim(dim(made, axis), size) for axis, size in enumerate(axes)):
            patch.replace(made, result)
            return made
        entries = integers_of(reshape.inputs[1])
        if entries is not None and 0 not in entries[2:]:
            patch.replace(made, patch.op("Reshape", [result, reshape.inputs[1]], dict(reshape.attributes)))
            return made
    sizes = patch.constant(np.array([0, 0, facts.num_heads, facts.value_size], np.int64), "split_heads")
    split = patch.op("Reshape", [result, sizes])
    if merged is not None:
        patch.replace(merged, split)
        return merged
    patch.replace(product, patch.op("Transpose", [split], {"perm": SPLIT}))
    return product


def _merged_length_first(product: Value, width: int) -> Value | None:
    """Return (length, batch, heads * size) where the product is only read to become that."""
    turn = only_reader(product)
    if turn is None or turn.op_type != "Transpose" or turn.ints_attribute("perm") != MERGE_LENGTH_FIRST:
        return None
    reshape = only_reader(turn.output)
    if reshape is None or reshape.op_type != "Reshape" or reshape.inputs[0] is not turn.output:
        return None
    made, axes = reshape.output, (dim(product, 2), dim(product, 0), width)
    is_merge = made.rank == 3 and all(same_dim(dim(made, axis), size) for axis, size in enumerate(axes))
    return made if is_merge else None


def _find_merge(product: Value) -> Value | None:
    """Return (batch, length, heads, size) where the product is only read by that transposition."""
    reader = only_reader(product)
    if reader is not None and reader.op_type == "Reshape" and reader.domain == "":  # one that changes nothing
        known = product.shape is not None and None not in product.shape
        if not known or reader.output.shape != product.shape or reader.inputs[0] is not product:
            return None
        reader = only_reader(reader.output)
    if reader is None or reader.op_type != "Transpose" or reader.ints_attribute("perm") != SPLIT:
        return None
    return reader.output
