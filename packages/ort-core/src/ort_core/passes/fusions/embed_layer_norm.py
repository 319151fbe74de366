"""EmbedLayerNormFusion: the sum of looked-up embeddings and its layer norm, as BERT and GPT-2 begin.

    s = Add(Add(Gather(words, ids), Gather(segments, segment_ids)), Gather(positions, position_ids))
    y = LayerNormalization(s, scale, bias)
        ->  y, _, s = EmbedLayerNormalization(ids, segment_ids, words, positions, segments, scale, bias, , position_ids)

Segments may be absent. Indices become int32, as the fused operator takes no others. Gather counts a negative index
from the end, which the fused operator refuses.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from typing import ClassVar

import numpy as np

from ort_core.frozen import frozen
from ort_core.ir.dims import Call, SymbolicDim
from ort_core.ir.graph import Graph
from ort_core.ir.nodes import Node
from ort_core.ir.rejection import Rejection
from ort_core.ir.types import DataType, TensorType
from ort_core.ir.values import Value
from ort_core.passes.fusions.attention_heads import producer_of
from ort_core.passes.fusions.operands import ONNXRUNTIME, dim, dtype_of, has_equal_shapes, refuse_dtype, same_dim
from ort_core.rewrite.fuse import build_fused_body
from ort_core.rewrite.matcher import Match, constant_of
from ort_core.rewrite.patch import GraphPatch
from ort_core.rewrite.pattern import Pattern, op, var
from ort_core.rewrite.rule import RewriteRule


@frozen
class LookUp:
    """A Gather of rows from a constant table."""

    node: Node
    table: Value
    indices: Value


@frozen
class Embeddings:
    """The look-ups by their role, and the additions between them."""

    words: LookUp
    positions: LookUp
    segments: LookUp | None
    additions: tuple[Node, ...]
    total: Value


class EmbedLayerNormFusion(RewriteRule[Embeddings]):
    """Fuse two or three embeddings and the normalization."""

    name = "EmbedLayerNormFusion"
    emits: ClassVar[tuple[tuple[str, str], ...]] = ((ONNXRUNTIME, "EmbedLayerNormalization"),)

    def build_pattern(self) -> Pattern:
        """Return the normalization of a sum."""
        total = op("Add", var("a"), var("b"), name="total", shared=True)
        return op("LayerNormalization", total, var("scale"), var("bias"))

    def check(self, match: Match) -> Embeddings | Rejection:
        """Find the look-ups and give them roles by the shapes of their indices."""
        total = match.node("total")
        refusal = refuse_dtype(total.output, match.root)
        if refusal is not None:
            return refusal
        if match.root.int_attribute("axis", -1) not in (-1, 2) or len(match.root.outputs) > 1:
            return Rejection("the normalization is not over the last axis alone", match.root)
        found = _look_ups(total)
        if found is None or len(found[0]) not in (2, 3):
            return Rejection("the sum is not one of two or three embeddings", match.root)
        roles = next(filter(_fits, permutations(found[0])), None)
        if roles is None:
            return Rejection("the shapes of the indices are not known to be those of ids and positions", match.root)
        return Embeddings(roles[0], roles[1], roles[2] if len(roles) == 3 else None, found[1], total.output)

    def rewrite(self, match: Match, bindings: Embeddings) -> GraphPatch:
        """Put the fused operator there; the sum is its third output."""
        patch = GraphPatch(match.model, match.root)
        segments = bindings.segments
        given: list[Value | None] = [
            bindings.words.indices,
            None if segments is None else segments.indices,
            bindings.words.table,
            bindings.positions.table,
            None if segments is None else segments.table,
            match["scale"],
            match["bias"],
            None,
            bindings.positions.indices,
        ]
        look_ups = [each for each in (bindings.words, bindings.positions, segments) if each is not None]
        nodes = (*(each.node for each in look_ups), *bindings.additions, match.root)
        is_read = bindings.total.use_count > 1 or bindings.total.is_graph_output
        outputs = (match.output, None, bindings.total) if is_read else (match.output, None)
        body = build_fused_body(nodes, given, [value or match.output for value in outputs])
        body.set_outputs([body.outputs[0], _counts(body), *body.outputs[2:]])
        inputs = list(given)
        for index in (0, 1, 8):
            inputs[index] = _as_int32(patch, given, index)
            if inputs[index] is not None:
                body.inputs[index].type = _int32_type(given[index])
        epsilon = {"epsilon": match.root.float_attribute("epsilon", 1e-5)}
        counts = TensorType(DataType.INT32, (dim(bindings.words.indices, 0),))
        types = [counts if value is None else value.type for value in outputs]
        node = patch.node("EmbedLayerNormalization", inputs, epsilon, outputs=types, domain=ONNXRUNTIME, body=body)
        for index, old in enumerate(outputs):
            new = node.outputs[index]
            assert new is not None
            if old is not None:  # nobody reads the second, which onnxruntime wants to be there
                patch.replace(old, new)
        patch.remove(*nodes)
        return patch


def _look_ups(total: Node) -> tuple[tuple[LookUp, ...], tuple[Node, ...]] | None:
    """Return the look-ups that an addition sums up, and the additions."""
    found: list[LookUp] = []
    additions = [total]
    for value in total.present_inputs():
        gather = producer_of(value, "Gather")
        if gather is not None:
            table, indices = gather.inputs[:2]
            if table is None or indices is None or gather.int_attribute("axis", 0) != 0 or constant_of(table) is None:
                return None
            found.append(LookUp(gather, table, indices))
            continue
        inner = producer_of(value, "Add")
        deeper = None if inner is None or len(additions) > 1 or value.use_count > 1 else _look_ups(inner)
        if deeper is None:
            return None
        found.extend(deeper[0])
        additions = [*deeper[1], *additions]
    return tuple(found), tuple(additions)


def _fits(roles: Sequence[LookUp]) -> bool:
    """Return whether look-ups in the order words, positions, segments have indices of the shapes that are taken."""
    words, positions, *segments = roles
    if words.indices.rank != 2 or positions.indices.rank != 2 or len({id(each.node) for each in roles}) != len(roles):
        return False
    if any(each.table.rank != 2 or dim(each.table, 1) != dim(words.table, 1) for each in roles):
        return False
    if any(dtype_of(each.indices) not in (DataType.INT32, DataType.INT64) for each in roles):
        return False
    batch, length = dim(positions.indices, 0), dim(positions.indices, 1)
    is_row = _is_length(length, dim(words.indices, 1)) and (batch == 1 or same_dim(batch, dim(words.indices, 0)))
    return is_row and all(has_equal_shapes(each.indices, words.indices) for each in segments)


def _is_length(found: int | SymbolicDim | None, length: int | SymbolicDim | None) -> bool:
    """Return whether positions have the length of the ids, also as the first so many of a longer table of positions.

    Those have the length min(n, length); were that less, adding their embeddings would have failed.
    """
    if same_dim(found, length):
        return True
    if length is None or not isinstance(found, SymbolicDim) or not found.is_atom:
        return False
    atom = found.terms[0][0][0][0]
    if not isinstance(atom, Call) or atom.function != "min" or length not in atom.arguments:
        return False
    return all(each == length or (isinstance(each, int) and each > 1) for each in atom.arguments)


def _counts(body: Graph) -> Value:
    """Return zeros, one for each row of ids: what the fused operator counts where there is no mask."""
    shape = body.new_node("Shape", [body.inputs[0]]).output
    batch = body.new_node("Gather", [shape, body.new_constant(np.array([0], np.int64), "batch")]).output
    return body.new_node("ConstantOfShape", [batch], {"value": np.zeros(1, np.int32)}).output


def _int32_type(value: Value | None) -> TensorType:
    return TensorType(DataType.INT32, None if value is None else value.shape)


def _as_int32(patch: GraphPatch, given: Sequence[Value | None], index: int) -> Value | None:
    value = given[index]
    if value is None or dtype_of(value) is DataType.INT32:
        return value
    return patch.op("Cast", [value], {"to": int(DataType.INT32)}, type=_int32_type(value))
