"""Projections of attentions in one product: packed queries, keys and values, or packed keys and values.

    MultiHeadAttention(MatMul(x, q), MatMul(x, k), MatMul(x, v))
        ->  MultiHeadAttention(Reshape(MatMul(x, all), (batch, tokens, heads, 3, size)))
    MultiHeadAttention(q, MatMul(x, k), MatMul(x, v))
        ->  MultiHeadAttention(q, Reshape(MatMul(x, both), (batch, tokens, heads, 2, size)))

onnxruntime's kernels for GPUs take these forms, that for CPUs does not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ort_core.plugin import Rejection
from ort_core.plugin.ir import Node, TensorType, Value
from ort_core.plugin.passes import Level, RulePass
from ort_core.plugin.rewrite import GraphPatch, Match, Pattern, RewriteRule, op, var
from ort_transformers.fusing.fixed_constants import constant_array, fixed_constant
from ort_transformers.fusing.skip_group_norms import MICROSOFT


@dataclass(frozen=True, slots=True)
class Projections:
    """What is projected, and the weights of the projections, in the order of the operator's inputs."""

    source: Value
    weights: tuple[Value, ...]
    head_size: int


class PackedProjections(RewriteRule[Projections]):
    """Pack the projections of an attention that has no bias, mask or cache.

    Args:
        count: 3 for queries, keys and values; 2 for keys and values.
    """

    name = "PackedProjections"
    emits = ((MICROSOFT, "MultiHeadAttention"),)

    def __init__(self, count: int) -> None:
        super().__init__()
        self._count = count

    def build_pattern(self) -> Pattern:
        """Return an attention of three inputs."""
        inputs = (var("query"), var("key"), var("value"))
        return op("MultiHeadAttention", *inputs, domain=MICROSOFT, name="attention")

    def check(self, match: Match) -> Projections | Rejection:
        """The projections must be of one value, by constant weights of one size."""
        operands = [match[name] for name in ("query", "key", "value")][3 - self._count :]
        found = [_projection(each) for each in operands]
        heads = match.root.int_attribute("num_heads", 0)
        if any(each is None for each in found) or len({id(each[0]) for each in found if each is not None}) != 1:
            return Rejection("they are not products of one value with constant weights", match.root)
        parts = [each for each in found if each is not None]
        shapes = {constant_array(weights).shape for _, weights in parts}
        if len(shapes) != 1 or heads < 1 or (width := next(iter(shapes))[1]) % heads:
            return Rejection("queries, keys and values do not have heads of one size", match.root)
        source = parts[0][0]
        own = _projection(match["query"]) if self._count == 2 else None
        if own is not None and own[0] is source:
            return Rejection("queries are of the same value: all three are packed, or none", match.root)
        if not isinstance(source.type, TensorType) or source.rank != 3:
            return Rejection("what is projected does not have three axes", match.root)
        return Projections(source, tuple(weights for _, weights in parts), width // heads)

    def rewrite(self, match: Match, bindings: Projections) -> GraphPatch:
        """Put one product, and the attention over its result, there."""
        patch, old = GraphPatch(match.model, match.root), match.root
        heads, source = old.int_attribute("num_heads", 0), bindings.source
        arrays = [constant_array(each) for each in bindings.weights]
        apart = [each.reshape(each.shape[0], heads, 1, bindings.head_size) for each in arrays]
        packed = patch.constant(np.concatenate(apart, axis=2).reshape(len(arrays[0]), -1), "packed_projections")
        assert isinstance(source.type, TensorType)
        assert source.shape is not None
        sizes = (heads, self._count, bindings.head_size)
        rows = TensorType(source.type.dtype, (*source.shape[:2], int(np.prod(sizes))))
        product = patch.op("MatMul", [source, packed], type=rows)
        shape = patch.constant(np.array([0, 0, *sizes], np.int64), "packed_heads")
        five = TensorType(source.type.dtype, (*source.shape[:2], *sizes))
        made = patch.op("Reshape", [product, shape], type=five)
        inputs = [made] if self._count == 3 else [match["query"], made]
        attributes = dict(old.attributes)
        y = patch.op("MultiHeadAttention", inputs, attributes, type=match.output.type, domain=MICROSOFT, name=old.name)
        patch.replace(match.output, y)
        projected = [match[name].producer for name in ("query", "key", "value")[3 - self._count :]]
        patch.remove(old, *(each for each in projected if each is not None))
        return patch


def _projection(value: Value) -> tuple[Value, Value] | None:
    """Return what a product that one attention alone reads is of, and its constant weights."""
    node: Node | None = value.producer
    if node is None or node.op_type != "MatMul" or node.domain != "" or value.use_count != 1 or value.is_graph_output:
        return None
    source, weights = node.inputs
    if source is None or weights is None or weights.rank != 2 or fixed_constant(weights) is None:
        return None
    return source, weights


PACKED_QKV = RulePass("PackedQKVFusion", [PackedProjections(3)], Level.EXTENDED)
PACKED_KV = RulePass("PackedKVFusion", [PackedProjections(2)], Level.EXTENDED)
