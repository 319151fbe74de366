"""Cosines and sines by which heads are turned, known by what they are made of: each number stands there twice.

    HALVES: (a, b, c, a, b, c)    TWINS: (a, a, b, b, c, c)

A factor repeats its pairs along the last axis because of a Concat of one value with itself (of HALVES) or of several
that repeat (of TWINS), of an Expand that a Reshape merges, or of a constant that is so; operators that keep the last
axis do not change that.
"""

from __future__ import annotations

from enum import Enum

import numpy as np

from ort_core.frozen import frozen
from ort_core.ir.nodes import Node
from ort_core.ir.types import DataType, TensorType
from ort_core.ir.values import Value
from ort_core.passes.fusions.attention_heads import producer_of
from ort_core.passes.fusions.operands import dim, fixed_dim, integers_of, same_dim, stands_before
from ort_core.rewrite.matcher import constant_of
from ort_core.rewrite.patch import GraphPatch

_DEPTH = 24  # operators between a factor and what repeats in it; exports have up to a dozen
_UNARY = frozenset({"Cos", "Sin", "Cast", "Neg", "Identity", "Sqrt", "Reciprocal", "Exp"})
_BINARY = frozenset({"Mul", "Add", "Sub", "Div"})
_KEEPS_ROWS = frozenset(
    {"Reshape", "Unsqueeze", "Squeeze", "Expand", "Slice", "Gather", "GatherND", "Transpose", "Split", "Tile"}
)


_SHAPES = ("Reshape", "Expand")  # between a factor and the table of an operator


class Pairing(Enum):
    """How a head's elements form pairs, and a factor's with them."""

    HALVES = "element i goes with element i + pairs"
    TWINS = "element 2i goes with element 2i + 1"


@frozen
class Factors:
    """Cosines and sines that broadcast to heads of four axes.

    Attributes:
        cos: the factor of the heads.
        sin: the factor of the heads turned.
        pairs: how many there are in each row.
        pairing: how they stand there; ``None``: once each.
        has_batch: whether each entry of the batch has its own.
    """

    cos: Value
    sin: Value
    pairs: int
    pairing: Pairing | None
    has_batch: bool


def repeats(value: Value | None, pairing: Pairing, depth: int = 0) -> bool:
    """Return whether the last axis of a value is known to have each number twice, in the order of ``pairing``."""
    if value is None or depth > _DEPTH:
        return False
    found = constant_of(value)
    if found is not None:
        return _is_repeated(found.array(), pairing)
    node = value.producer
    if node is None or node.domain != "":
        return False
    if node.op_type in _UNARY:
        return repeats(node.input(0), pairing, depth + 1)
    if node.op_type in _BINARY:
        return _any_repeats(node, pairing, depth)
    if node.op_type == "MatMul":  # each column of the result comes from one of the second factor
        return node.inputs[1] is not None and node.inputs[1].rank != 1 and repeats(node.inputs[1], pairing, depth + 1)
    if node.op_type == "Concat":
        return _concat_repeats(node, pairing, depth)
    if node.op_type == "Reshape" and _merges(node, pairing):
        return True
    if node.op_type in _KEEPS_ROWS and _keeps_rows(node):
        return repeats(node.input(0), pairing, depth + 1)
    return False


def _is_repeated(array: np.ndarray, pairing: Pairing) -> bool:
    if array.ndim == 0 or array.shape[-1] % 2:
        return False
    half = array.shape[-1] // 2
    left, right = (array[..., :half], array[..., half:]) if pairing is Pairing.HALVES else (
        array[..., 0::2], array[..., 1::2]
    )  # fmt: skip
    return bool((left == right).all())


def _any_repeats(node: Node, pairing: Pairing, depth: int) -> bool:
    """Return whether one operand repeats and the other does, too, or is one number for the whole row."""
    wide = [each for each in node.present_inputs() if each.rank != 0 and dim(each, -1) != 1]
    return bool(wide) and all(repeats(each, pairing, depth + 1) for each in wide)


def _concat_repeats(node: Node, pairing: Pairing, depth: int) -> bool:
    if _is_last(node.int_attribute("axis", 0), node.output):
        both = node.inputs
        if pairing is Pairing.TWINS:  # of several axes, as images and films have them: each has whole pairs
            return all(repeats(each, pairing, depth + 1) for each in both)
        return len(both) == 2 and both[0] is both[1]
    return all(repeats(each, pairing, depth + 1) for each in node.inputs)


def _is_last(axis: int, value: Value) -> bool:
    return axis == -1 or (value.rank is not None and axis == value.rank - 1)


def _merges(node: Node, pairing: Pairing) -> bool:
    """Return whether a Reshape joins two last axes of which one repeats the other: (…, n, 2) or (…, 2, n)."""
    inner, made = node.inputs[0], node.output
    if inner is None or inner.rank is None or inner.rank < 2 or made.rank is None:
        return False
    first, last, width = fixed_dim(inner, -2), fixed_dim(inner, -1), fixed_dim(made, -1)
    if first is None or last is None or width != first * last:
        return False
    if pairing is Pairing.TWINS:
        return last == 2 and _is_same_along(inner, -1)
    return first == 2 and _is_same_along(inner, -2)


def _is_same_along(value: Value, axis: int) -> bool:
    """Return whether a value is one and the same at both places of an axis."""
    node = value.producer
    if node is None or node.domain != "":
        return False
    if node.op_type == "Concat":
        both = node.inputs
        rank = value.rank or 0
        return len(both) == 2 and both[0] is both[1] and node.int_attribute("axis", 0) % rank == axis % rank
    first = node.inputs[0]
    return node.op_type in ("Expand", "Tile") and first is not None and first.rank == value.rank and (
        dim(first, axis) == 1
    )  # fmt: skip


def _keeps_rows(node: Node) -> bool:
    """Return whether an operator that moves elements keeps the rows of the last axis whole."""
    inner, made = node.input(0), node.output
    if inner is None or not same_dim(dim(inner, -1), dim(made, -1)) or inner.rank is None or made.rank is None:
        return False
    if node.op_type == "Unsqueeze":
        return dim(made, -1) != 1
    if node.op_type == "Slice":  # one that keeps the size of the last axis could still turn it round
        steps = node.input(4)
        return steps is None or all(step > 0 for step in integers_of(steps) or (-1,))
    if node.op_type == "Gather":
        axis = node.int_attribute("axis", 0)
        return axis % inner.rank != inner.rank - 1
    if node.op_type == "GatherND":  # as indexing by a tensor is exported
        indices = node.inputs[1]
        depth = None if indices is None else fixed_dim(indices, -1)
        return depth is not None and depth + node.int_attribute("batch_dims", 0) < inner.rank
    if node.op_type == "Transpose":
        perm = node.ints_attribute("perm")
        return perm is not None and perm[-1] == inner.rank - 1
    if node.op_type == "Split":
        axis = node.int_attribute("axis", 0)
        return axis % inner.rank != inner.rank - 1
    return True


def existing_tables(factors: Factors, place: Node, domain: str, batch: Value) -> list[Value] | None:
    """Return the rows and tables that an earlier rotation by the same factors reads, if they stand before ``place``.

    The standard's operator has tables for each entry of the batch, which ``batch`` has in front.
    """
    narrowed = _narrowed(factors.cos, factors)
    shaped = [each for narrow in narrowed for each in narrow.consumers() if each.op_type in _SHAPES]
    shaped += [each for flat in shaped for each in flat.output.consumers() if each.op_type in _SHAPES]
    for table, reader in ((each.output, reader) for each in shaped for reader in each.output.consumers()):
        if reader.op_type != "RotaryEmbedding" or reader.domain != domain:
            continue
        tables = [each for each in reader.inputs[1:4] if each is not None]
        cosines, sines = tables[-2:]
        source = _before_shapes(sines)
        is_same = cosines is table and any(source is each for each in _narrowed(factors.sin, factors))
        is_repeated = factors.has_batch or same_dim(dim(cosines, 0), dim(batch, 0))
        has_rows = _is_row_of_all(tables[0], factors) if domain else is_repeated
        fits = has_rows and all(dim(each, -1) == factors.pairs for each in (cosines, sines))
        if is_same and fits and all(stands_before(each, place) for each in tables):
            return tables
    return None


def _is_row_of_all(rows: Value, factors: Factors) -> bool:
    """Return whether row numbers are those that ``make_tables`` makes; a model's own operator may have others."""
    counted = producer_of(rows, "Reshape")
    if factors.has_batch:
        return counted is not None and producer_of(counted.inputs[0], "Range") is not None
    return integers_of(rows) == (0,)


def _before_shapes(table: Value) -> Value:
    """Return the factor with each pair once of which a table was made."""
    node = producer_of(table, *_SHAPES)
    while node is not None and node.inputs[0] is not None:
        table = node.inputs[0]
        node = producer_of(table, *_SHAPES)
    return table


def _narrowed(factor: Value, factors: Factors) -> list[Value]:
    """Return the values that have each pair of a factor once, as earlier rotations made them."""
    bounds = _bounds(factors)
    if bounds is None:
        return [factor]
    pieces = [each for each in factor.consumers() if each.op_type == "Slice" and not each.domain]
    wanted = [(number,) for number in bounds]
    return [each.output for each in pieces if [integers_of(each.input(place)) for place in range(1, 5)] == wanted]


def make_tables(patch: GraphPatch, factors: Factors) -> list[Value]:
    """Return the rows and tables for RotaryEmbedding, with the nodes that make them."""
    width = patch.constant(np.array([-1, factors.pairs], np.int64), "table_shape")
    narrow = [_narrow(patch, each, factors) for each in (factors.cos, factors.sin)]
    tables = [
        patch.op("Reshape", [each, width], type=_typed(each, (None, factors.pairs))) for each in narrow
    ]  # fmt: skip
    if not factors.has_batch:  # token i of each sentence has row i
        return [patch.constant(np.zeros(1, np.int64), "first_row"), *tables]
    return [_count_rows(patch, factors.cos), *tables]


def make_standard_tables(patch: GraphPatch, factors: Factors, batch: Value) -> list[Value]:
    """Return the tables (batch, length, pairs) for the standard's RotaryEmbedding; ``batch`` has its size in front."""
    width = patch.constant(np.array([0 if factors.has_batch else 1, -1, factors.pairs], np.int64), "table_shape")
    narrow = [_narrow(patch, each, factors) for each in (factors.cos, factors.sin)]
    tables = [patch.op("Reshape", [each, width], type=_typed(each, (None, None, factors.pairs))) for each in narrow]
    if factors.has_batch:
        return tables
    first = patch.op("Gather", [patch.op("Shape", [batch]), patch.constant(np.zeros(1, np.int64), "axis")])
    ones = patch.constant(np.ones(2, np.int64), "ones")
    sizes = patch.op("Concat", [first, ones], {"axis": 0})
    types = [_typed(each, (dim(batch, 0), None, factors.pairs)) for each in tables]
    return [patch.op("Expand", [each, sizes], type=made) for each, made in zip(tables, types, strict=True)]


def _typed(value: Value, shape: tuple[object, ...]) -> TensorType | None:
    return TensorType(value.type.dtype, shape) if isinstance(value.type, TensorType) else None  # type: ignore[arg-type]  # sizes


def _narrow(patch: GraphPatch, factor: Value, factors: Factors) -> Value:
    """Return a factor with each pair once."""
    bounds = _bounds(factors)
    if bounds is None:
        return factor
    inputs = [patch.constant(np.array([number], np.int64), "bound") for number in bounds]
    shape = None if factor.shape is None else (*factor.shape[:-1], factors.pairs)
    return patch.op("Slice", [factor, *inputs], type=None if shape is None else _typed(factor, shape))


def _bounds(factors: Factors) -> tuple[int, int, int, int] | None:
    """Return where a slice of each pair once begins and ends, its axis and step; ``None`` where that is the factor."""
    if factors.pairing is None:
        return None
    return (0, 2 * factors.pairs, -1, 2) if factors.pairing is Pairing.TWINS else (0, factors.pairs, -1, 1)


def _count_rows(patch: GraphPatch, factor: Value) -> Value:
    """Return (batch, length) counted through: the tables have all tokens one behind the other."""
    shape, rank = patch.op("Shape", [factor]), factor.rank
    assert rank is not None
    lengths = [axis for axis in range(1, rank - 1) if dim(factor, axis) != 1]
    axes = (0, lengths[0] if lengths else rank - 2)
    batch, length = (patch.op("Gather", [shape, patch.constant(np.array([axis], np.int64), "axis")]) for axis in axes)
    zero, one = (patch.constant(np.array(number, np.int64), "number") for number in (0, 1))
    total = patch.op("Reshape", [patch.op("Mul", [batch, length]), patch.constant(np.zeros(0, np.int64), "scalar")])
    tokens = patch.op("Range", [zero, total, one])
    sizes = patch.op("Concat", [batch, length], {"axis": 0})
    return patch.op("Reshape", [tokens, sizes], type=TensorType(DataType.INT64, (dim(factor, 0), dim(factor, axes[1]))))
