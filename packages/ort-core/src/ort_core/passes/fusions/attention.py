"""AttentionFusion: softmax(Q K' * scale + mask) V with its splitting and merging of heads, as MultiHeadAttention.

    p = Softmax(Add(Mul(MatMul(q, k'), scale), mask))    y = Reshape(Transpose(MatMul(p, v)))
        ->  y = MultiHeadAttention(query, key, value, , , mask, past_key, past_value) {num_heads, scale}

Covers the exports of BERT, ViT, GPT-2, Whisper, LLaMA and diffusion models: scale on the scores or on either operand;
keys turned by one Transpose or by Reshape, Transpose, Reshape; batch and heads stacked to one axis, as older exports
and nn.MultiheadAttention have them; masks of any shape that broadcasts, or a choice by a causal buffer; a cache in
front of keys and values; PyTorch's replacement of NaN by zero behind the softmax, which matters only in rows that a
mask of -inf hides whole. The projections stay matrix products. Sizes are proven by inferred types.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from ort_core.ir.nodes import Node
from ort_core.ir.rejection import Rejection
from ort_core.ir.traversal import ancestors
from ort_core.ir.types import DataType, TensorType
from ort_core.ir.values import Value
from ort_core.passes.fusions.attention_body import AttentionFacts, build_attention_body
from ort_core.passes.fusions.attention_heads import (
    SPLIT,
    Heads,
    batch_of,
    find_heads,
    find_keys,
    peel_scale,
    size_of_heads,
)
from ort_core.passes.fusions.attention_mask import (
    Mask,
    broadcast_mask,
    broadcast_type,
)
from ort_core.passes.fusions.attention_rows import refuse_hidden_rows, replace_hidden_rows
from ort_core.passes.fusions.attention_scores import Scores, find_scores, stacked_behind, why_no_scores
from ort_core.passes.fusions.dead_nodes import nodes_only_for
from ort_core.passes.fusions.operands import (
    FUSED_FLOATS,
    ONNXRUNTIME,
    dim,
    dtype_of,
    first_refusal,
    fixed_dim,
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


@dataclass(frozen=True, slots=True)
class AttentionParts:
    """Everything the fused attention needs."""

    query: Heads
    key: Heads
    value: Heads
    masks: tuple[Mask, ...]
    scores: Value
    facts: AttentionFacts
    hides_rows: bool = False

    @property
    def uses_past(self) -> bool:
        """Whether a cache is appended to."""
        return self.key.joined is not None and self.value.joined is not None


def _is_last_axis(node: Node) -> bool:
    axis = node.attribute("axis")
    rank = node.output.rank
    return axis is None or axis == -1 or (rank is not None and axis == rank - 1)


class AttentionFusion(RewriteRule[AttentionParts]):
    """Fuse an attention to MultiHeadAttention.

    Args:
        allowed: the element types to fuse; a provider without a kernel for one of them had better leave it alone.
    """

    name = "AttentionFusion"
    emits: ClassVar[tuple[tuple[str, str], ...]] = ((ONNXRUNTIME, "MultiHeadAttention"),)

    def __init__(self, allowed: frozenset[DataType] = FUSED_FLOATS) -> None:
        super().__init__()
        self._allowed = allowed

    def build_pattern(self) -> Pattern:
        """Return the product of weights and values; the rest is walked, as exports differ too much for one pattern."""
        weights = op("Softmax", var("masked_scores"), name="softmax")
        guarded = op("Where", op("IsNaN", weights), var("zero"), weights, name="guard")
        stacked = op("Reshape", one_of(guarded, weights), var("stack_shape"), name="stack")
        return op("MatMul", one_of(guarded, weights, stacked), var("v"))

    def check(self, match: Match) -> AttentionParts | Rejection:
        """Find the parts and prove their sizes."""
        refusal = refuse_dtype(match["v"], match.root, self._allowed)
        if refusal is not None:
            return refusal
        is_last = _is_last_axis(match.node("softmax"))
        if not is_last or (match.opset() < LAST_AXIS_OPSET and match.node("softmax").attribute("axis") is None):
            return Rejection("the softmax is not over the last axis", match.root)
        found = find_scores(match["masked_scores"])
        if found is not None and match.has_node("stack"):
            found = stacked_behind(found, match.node("stack"))
        if found is None:
            return Rejection(why_no_scores(match["masked_scores"]), match.root)
        masks = found.masks
        if not match.has_node("guard") or (number_of(match["zero"]) == 0 and all(mask.is_finite for mask in masks)):
            return _find_parts(match, found)
        if number_of(match["zero"]) != 0 or not all(mask.is_bounded for mask in masks):
            return Rejection(
                "NaN is replaced behind the softmax and the mask is not known to be finite or -inf", match.root
            )
        found_parts = _find_parts(match, found)
        refusals = (refuse_hidden_rows(each, match.root) for mask in masks for each in mask.read()[-1:])
        refusal = first_refusal(*refusals)
        if refusal is not None or isinstance(found_parts, Rejection):
            return found_parts if refusal is None else refusal
        return replace(found_parts, hides_rows=True)

    def rewrite(self, match: Match, bindings: AttentionParts) -> GraphPatch:
        """Put one MultiHeadAttention there, and its result in the place of the merged heads."""
        patch = GraphPatch(match.model, match.root)
        facts = bindings.facts
        bias = _sum_of(patch, bindings.masks, bindings.facts.num_heads)
        inputs = attention_inputs(patch, bindings, bias)
        joined = (bindings.key.joined, bindings.value.joined) if bindings.uses_past else ()
        presents = [node.output for node in joined if node is not None]
        body = build_attention_body(inputs, facts, 1 + len(presents))
        batch = batch_of(bindings.query)
        q_shape = (batch, dim(bindings.scores, -2), facts.num_heads * facts.value_size)
        types = [TensorType(facts.dtype, q_shape), *(value.type for value in presents)]
        attributes = {"num_heads": facts.num_heads, "scale": facts.scale}
        node = patch.node("MultiHeadAttention", inputs, attributes, outputs=types, domain=ONNXRUNTIME, body=body)
        for old, new in zip(presents, node.outputs[1:], strict=True):
            assert new is not None
            patch.replace(old, new)
        result = node.output
        if bindings.hides_rows and bias is not None:
            result = replace_hidden_rows(patch, result, bias, match.opset())
        replaced = replace_product(patch, match.output, result, facts)
        made = [value.producer for value in (replaced, *presents) if value.producer is not None]
        patch.remove(*nodes_only_for(made))
        return patch


def _find_parts(match: Match, scores: Scores) -> AttentionParts | Rejection:
    product, masks = scores.product, scores.masks
    left, right = product.inputs
    assert left is not None
    assert right is not None
    q, q_factor = peel_scale(left)
    keys = find_keys(right)
    if keys is None:
        return Rejection(
            "the second factor of the scores is not known to be keys with their last axes swapped", product
        )
    query, value = find_heads(q), find_heads(match["v"])
    if query is None or value is None:
        return Rejection("batch and heads of queries or values are stacked, it is not known of what", product)
    if query.joined is not None:
        query = Heads(q, None, None)
    key, value = _same_cache(match, keys[0], value, (q, *(value for mask in masks for value in mask.read())))
    facts = _facts_of(match, product, (query, key, value), scores.factor * q_factor * keys[1])
    refusal = facts if isinstance(facts, Rejection) else _refuse_masks(match, scores, facts)
    if refusal is not None:
        return refusal
    assert not isinstance(facts, Rejection)
    return AttentionParts(query, key, value, masks, product.output, facts)


def _facts_of(match: Match, product: Node, parts: tuple[Heads, ...], scale: float) -> AttentionFacts | Rejection:
    """Return the sizes of an attention and its scale, where they are proven and fit each other."""
    query, *others = parts
    sizes = [size_of_heads(heads) for heads in parts]
    numbers = {count for count, _ in sizes}
    if len(numbers) != 1 or any(None in size for size in sizes) or sizes[0][1] != sizes[1][1]:
        return Rejection(f"the (number, size) of the heads of query, key and value are {sizes}", match.root)
    if not all(same_dim(batch_of(query), batch_of(heads)) for heads in others):
        return Rejection("query, key and value are not known to have the same batch", match.root)
    (count, head_size), value_size = sizes[0], sizes[2][1]
    assert count is not None
    assert head_size is not None
    assert value_size is not None
    if not count * head_size * value_size:
        return Rejection("the heads have no elements", match.root)
    if not math.isfinite(scale) or scale == 0:
        return Rejection(f"the scale is {scale}", match.root)
    return AttentionFacts(count, head_size, value_size, scale, dtype_of(product.output))


def _refuse_masks(match: Match, scores: Scores, facts: AttentionFacts) -> Rejection | None:
    """Return why a mask cannot be added by the fused operator, whose scores have four axes."""
    for mask in scores.masks:
        if mask.rank is None or mask.rank > 4 or dtype_of(mask.value) != facts.dtype:
            return Rejection(
                f"the mask {mask.value.name!r} is no tensor of up to 4 axes of the element type", match.root
            )
    for four in scores.fours:
        if fixed_dim(four, 1) != facts.num_heads:
            return Rejection(
                f"{four.name!r} does not have the batch and the heads that the projections have", match.root
            )
    return None


def _same_cache(match: Match, key: Heads, value: Heads, read: tuple[Value, ...]) -> tuple[Heads, Heads]:
    """Return keys and values both with a cache or both without, and both as three axes or both as four."""
    if key.joined is not None and value.joined is not None:
        pair = {key.joined, value.joined}
        if len(pair) == 2 and not pair & ancestors(read, match.graph):
            return key, value
    key, value = _without_cache(key), _without_cache(value)
    is_flat = key.split is not None and value.split is not None
    if is_flat or key.four is None or value.four is None:
        return key, value
    return Heads(key.four, None, None), Heads(value.four, None, None)


def _without_cache(heads: Heads) -> Heads:
    return heads if heads.joined is None else Heads(heads.joined.output, None, None)


def _sum_of(patch: GraphPatch, masks: tuple[Mask, ...], num_heads: int) -> Value | None:
    """Return what is added to the scores, ``None`` where there is no mask."""
    if not masks:
        return None
    total = masks[0].as_addend(patch, num_heads)
    for mask in masks[1:]:
        addend = mask.as_addend(patch, num_heads)
        total = patch.op("Add", [total, addend], type=broadcast_type(total, addend))
    return total


def attention_inputs(patch: GraphPatch, parts: AttentionParts, bias: Value | None) -> list[Value | None]:
    """Return the inputs of a MultiHeadAttention, with the nodes that bring them into shape."""
    facts = parts.facts
    width, value_width = facts.num_heads * facts.head_size, facts.num_heads * facts.value_size
    query = parts.query.as_flat(patch, width)
    if parts.uses_past or parts.key.four is None or parts.key.split is not None or parts.value.four is None:
        key, value = parts.key.as_flat(patch, width), parts.value.as_flat(patch, value_width)
    else:
        assert parts.key.four is not None
        assert parts.value.four is not None
        key, value = parts.key.four, parts.value.four
    inputs: list[Value | None] = [query, key, value]
    if bias is not None:
        inputs += [None, None, broadcast_mask(patch, bias, parts.scores, lambda: _lengths(patch, parts, query, key))]
    if parts.uses_past:
        inputs += [None] * (6 - len(inputs)) + [parts.key.past, parts.value.past]
    return inputs


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
