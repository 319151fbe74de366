"""RotaryEmbeddingFusion: the rotation of pairs of features by angles that grow with the position, as LLaMA exports it.

    e = Concat(angles, angles)    cos = Unsqueeze(Cos(e), [1])    sin = Unsqueeze(Sin(e), [1])
    y = Add(Mul(x, cos), Mul(Concat(Neg(high half of x), low half of x), sin))
        ->  y = RotaryEmbedding(x, rows, cos_cache, sin_cache)

x is (batch, heads, length, size), angles (batch, length, size / 2). The operator wants tables of cosines and sines and
the row of each token: the angles of all tokens, one after the other, are such tables, and the rows are counted. They
are made once for all that rotate by the same angles. Where x was split into heads the split comes after the rotation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ort_core.ir.graph import Graph
from ort_core.ir.rejection import Rejection
from ort_core.ir.types import DataType, TensorType
from ort_core.ir.values import Value
from ort_core.passes.fusions.attention_heads import SPLIT, find_heads, producer_of
from ort_core.passes.fusions.dead_nodes import nodes_only_for
from ort_core.passes.fusions.gather_slice_to_split import find_piece
from ort_core.passes.fusions.operands import ONNXRUNTIME, dim, fixed_dim, integers_of, refuse_dtype, same_dim
from ort_core.rewrite.matcher import Match
from ort_core.rewrite.patch import GraphPatch
from ort_core.rewrite.pattern import Pattern, op, var
from ort_core.rewrite.rule import RewriteRule


@dataclass(frozen=True, slots=True)
class Rotation:
    """The angles (batch, length, size / 2), the number of heads and the size of each."""

    angles: Value
    num_heads: int
    size: int


class RotaryEmbeddingFusion(RewriteRule[Rotation]):
    """Fuse a rotation to RotaryEmbedding."""

    name = "RotaryEmbeddingFusion"
    emits: ClassVar[tuple[tuple[str, str], ...]] = ((ONNXRUNTIME, "RotaryEmbedding"),)

    def build_pattern(self) -> Pattern:
        """Return the sum of both products; what the halves and angles are is walked."""
        x = var("x")
        turned = op("Concat", op("Neg", var("high")), var("low"), name="turned")
        return op("Add", op("Mul", x, var("cos")), op("Mul", turned, var("sin")))

    def check(self, match: Match) -> Rotation | Rejection:
        """The halves must be those of x, and cosines and sines those of the same angles."""
        x = match["x"]
        count, size = fixed_dim(x, 1), fixed_dim(x, 3)
        if x.rank != 4 or count is None or size is None or size % 2:
            return Rejection(f"{x.name!r} is not known to be heads of an even size", match.root)
        if match.node("turned").int_attribute("axis", 0) not in (-1, 3):
            return Rejection("the halves are not joined along the last axis", match.root)
        if not _is_piece(match["low"], x, 0, size // 2) or not _is_piece(match["high"], x, size // 2, size):
            return Rejection("the joined values are not the two halves", match.root)
        cos, sin = _angles_of(match["cos"], "Cos"), _angles_of(match["sin"], "Sin")
        if cos is None or cos is not sin:
            return Rejection("the factors are not cosine and sine of the same doubled angles", match.root)
        fits = all(same_dim(dim(cos, axis), dim(x, at)) for axis, at in ((0, 0), (1, 2)))
        if cos.rank != 3 or fixed_dim(cos, 2) != size // 2 or not fits:
            return Rejection("the angles are not known to be one for each token and pair", match.root)
        refusal = refuse_dtype(x, match.root)
        return Rotation(cos, count, size) if refusal is None else refusal

    def rewrite(self, match: Match, bindings: Rotation) -> GraphPatch:
        """Put the operator there, before the split into heads where there is one."""
        patch = GraphPatch(match.model, match.root)
        x = match["x"]
        origin = find_heads(x)
        flat = None if origin is None else origin.flat
        source = x if flat is None else flat
        tables = _existing_tables(bindings.angles) or _make_tables(patch, bindings)
        body = _build_body(source, tables, bindings)
        attributes = {"num_heads": bindings.num_heads} if flat is not None else {}
        rotated = patch.op(
            "RotaryEmbedding", [source, *tables], attributes, type=source.type, domain=ONNXRUNTIME, body=body
        )
        if flat is not None:
            sizes = patch.constant(np.array([0, 0, bindings.num_heads, bindings.size], np.int64), "heads")
            shape = (dim(x, 0), dim(x, 2), bindings.num_heads, bindings.size)
            split = patch.op("Reshape", [rotated, sizes], type=_typed(source, shape))
            rotated = patch.op("Transpose", [split], {"perm": SPLIT}, type=x.type)
        patch.replace(match.output, rotated)
        patch.remove(*nodes_only_for([match.root]))
        return patch


def _typed(value: Value, shape: tuple[object, ...]) -> TensorType | None:
    return TensorType(value.type.dtype, shape) if isinstance(value.type, TensorType) else None  # type: ignore[arg-type]  # sizes


def _is_piece(value: Value, x: Value, start: int, end: int) -> bool:
    """Return whether ``value`` is the slice from ``start`` to ``end`` of the last axis of ``x``."""
    node = producer_of(value, "Slice", "Split")
    if node is None or node.inputs[0] is not x:
        return False
    if node.op_type == "Slice":
        piece = find_piece(node)
        return piece is not None and (piece.start, piece.end, piece.axis) == (start, end, 3)
    sizes = [fixed_dim(made, 3) for made in node.present_outputs()]
    is_halved = node.int_attribute("axis", 0) in (-1, 3) and sizes == [end - start] * 2
    return is_halved and value.output_index == (0 if start == 0 else 1)


def _angles_of(value: Value, function: str) -> Value | None:
    """Return the angles of which ``value`` is a function, doubled and with an axis for the heads."""
    node = producer_of(value, "Unsqueeze")
    if node is None:
        return None
    axes = node.ints_attribute("axes") or integers_of(node.input(1))
    applied = producer_of(node.inputs[0], function)
    doubled = None if applied is None else producer_of(applied.inputs[0], "Concat")
    if axes not in ((1,), (-3,)) or doubled is None or doubled.int_attribute("axis", 0) not in (-1, 2):
        return None
    parts = doubled.inputs
    return parts[0] if len(parts) == 2 and parts[0] is parts[1] else None


def _existing_tables(angles: Value) -> list[Value] | None:
    """Return the rows and tables that a rotation by the same angles reads already."""
    for function in angles.consumers():
        for flat in function.output.consumers() if function.op_type == "Cos" else ():
            for reader in flat.output.consumers() if flat.op_type == "Reshape" else ():
                if reader.op_type == "RotaryEmbedding" and reader.graph is angles.graph:
                    return list(reader.present_inputs())[1:]
    return None


def _make_tables(patch: GraphPatch, rotation: Rotation) -> list[Value]:
    angles, half = rotation.angles, rotation.size // 2
    width = patch.constant(np.array([-1, half], np.int64), "table_shape")
    tables = [patch.op("Reshape", [patch.op(name, [angles], type=angles.type), width]) for name in ("Cos", "Sin")]
    shape = patch.op("Shape", [angles])
    batch, length = (patch.op("Gather", [shape, patch.constant(np.array([axis], np.int64), "axis")]) for axis in (0, 1))
    zero, one = (patch.constant(np.array(number, np.int64), "number") for number in (0, 1))
    scalar = patch.constant(np.zeros(0, np.int64), "scalar")
    total = patch.op("Reshape", [patch.op("Mul", [batch, length]), scalar])
    tokens = patch.op("Range", [zero, total, one])
    sizes = patch.op("Concat", [batch, length], {"axis": 0})
    rows = patch.op("Reshape", [tokens, sizes], type=TensorType(DataType.INT64, (dim(angles, 0), dim(angles, 1))))
    return [rows, *tables]


def _build_body(source: Value, tables: list[Value], rotation: Rotation) -> Graph:
    """Return the operator in terms of the standard: rows of the tables, halves of the heads, products."""
    graph = Graph("rotary")
    formal = [Value(f"in_{index}", value.type) for index, value in enumerate([source, *tables])]
    for value in formal:
        graph.add_input(value)
    x, rows, *caches = formal
    is_flat = source.rank == 3
    heads_axis = 2 if is_flat else 1
    pick = [graph.new_node("Gather", [table, rows]).output for table in caches]
    cos, sin = (_with_heads_axis(graph, table, rotation, heads_axis) for table in pick)
    if is_flat:
        x = _reshape(graph, x, [0, 0, rotation.num_heads, rotation.size])
    low, high = (
        graph.new_node(
            "Gather", [x, graph.new_constant(np.arange(start, start + rotation.size // 2))], {"axis": 3}
        ).output
        for start in (0, rotation.size // 2)
    )

    def product(left: Value, right: Value) -> Value:
        return graph.new_node("Mul", [left, right]).output

    new_low = graph.new_node("Sub", [product(low, cos), product(high, sin)]).output
    new_high = graph.new_node("Add", [product(low, sin), product(high, cos)]).output
    result = graph.new_node("Concat", [new_low, new_high], {"axis": 3}).output
    if is_flat:
        result = _reshape(graph, result, [0, 0, rotation.num_heads * rotation.size])
    graph.set_outputs([result])
    return graph


def _with_heads_axis(graph: Graph, table: Value, rotation: Rotation, axis: int) -> Value:
    """Return (batch, length, pairs) with an axis of size 1 for the heads."""
    split = _reshape(graph, table, [0, 0, 1, rotation.size // 2])
    return split if axis == 2 else graph.new_node("Transpose", [split], {"perm": SPLIT}).output


def _reshape(graph: Graph, value: Value, shape: list[int]) -> Value:
    return graph.new_node("Reshape", [value, graph.new_constant(np.array(shape, np.int64))]).output
