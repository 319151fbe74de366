"""RotaryEmbeddingFusion: the rotation of pairs of features by angles that grow with the position.

    y = Add(Mul(x, cos), Mul(Concat(Neg(high half of x), low half of x), sin))             LLaMA and most others
    y = Add(Mul(x, cos), Mul(Reshape(Concat(-odd elements of x, even ones)), sin))         GPT-J, GLM, Cohere
    y = Concat(Sub(Mul(low, cos), Mul(high, sin)), Add(Mul(high, cos), Mul(low, sin)))     gpt-oss, and by hand
    y = Concat(one of these of the first features of x, the other features of x)           GPT-NeoX, Phi, StableLM
        ->  y = RotaryEmbedding(x, rows, cos_table, sin_table)

x is (batch, heads, length, size) or (batch, length, heads, size). The operator wants tables with each pair once and the
row of each token: the factors of all tokens, one after the other, are such tables. They are made once for all that
rotate by the same factors. Where x was split into heads the split comes after the rotation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, product
from typing import ClassVar

import numpy as np

from ort_core.frozen import frozen
from ort_core.ir.dims import SymbolicDim, is_same_beside
from ort_core.ir.nodes import Node
from ort_core.ir.rejection import Rejection
from ort_core.ir.types import TensorType
from ort_core.ir.values import Value
from ort_core.passes.fusions.attention_heads import SPLIT, find_flat, producer_of
from ort_core.passes.fusions.dead_nodes import nodes_only_for
from ort_core.passes.fusions.gather_slice_to_split import find_piece
from ort_core.passes.fusions.operands import (
    ONNXRUNTIME,
    dim,
    fixed_dim,
    integers_of,
    only_reader,
    refuse_dtype,
    same_dim,
)
from ort_core.passes.fusions.rotary_factors import (
    Factors,
    Pairing,
    existing_tables,
    make_standard_tables,
    make_tables,
    repeats,
)
from ort_core.rewrite.matcher import Match
from ort_core.rewrite.patch import GraphPatch
from ort_core.rewrite.pattern import OpPattern, Pattern, one_of, op, var
from ort_core.rewrite.rule import RewriteRule

RANGE_OPSET = 11  # Range counts rows
STANDARD_OPSET = 23


@frozen
class Rotation:
    """What is turned, by what, and what it is called in the end.

    Attributes:
        x: heads of four axes.
        heads_axis: 1 or 2.
        num_heads: along that axis.
        size: of a head.
        turned: the first so many features of each head; the others stay.
        factors: cosines and sines.
        is_interleaved: whether neighbors are pairs.
        made: what the fused operator makes.
    """

    x: Value
    heads_axis: int
    num_heads: int
    size: int
    turned: int
    factors: Factors
    is_interleaved: bool
    made: Value


@frozen
class _Turn:
    """Heads, what their pairs are, and the factors."""

    x: Value
    pairing: Pairing
    cos: Value
    sin: Value


class RotaryEmbeddingFusion(RewriteRule[Rotation]):
    """Fuse a rotation to RotaryEmbedding.

    Args:
        is_standard: write the operator of the standard, which opset 23 brought, in place of onnxruntime's.
    """

    name = "RotaryEmbeddingFusion"
    emits: ClassVar[tuple[tuple[str, str], ...]] = ((ONNXRUNTIME, "RotaryEmbedding"),)

    def __init__(self, *, is_standard: bool = False) -> None:
        super().__init__()
        self._is_standard = is_standard

    def build_pattern(self) -> Pattern:
        """Return the sum of both products, or both halves of the result; what pairs and factors are is walked."""
        left, right = (op("Mul", var(), var(), name=side) for side in ("left", "right"))
        whole = op("Add", left, right, name="sum")
        low, high, cos, sin = var("low"), var("high"), var("cos"), var("sin")
        first = op("Sub", op("Mul", low, cos), op("Mul", high, sin))
        second = op("Add", op("Mul", high, cos), op("Mul", low, sin))
        halves = op("Concat", first, second, name="halves")
        twins = op("Reshape", _stacked(first, second), var("shape"), name="twins")
        return one_of(whole, halves, twins)

    def check(self, match: Match) -> Rotation | Rejection:
        """The pairs must be those of x, and the factors one for each token and pair."""
        is_whole = match.has_node("sum")
        turn = _turned_whole(match) if is_whole else _turned_apart(match)
        if turn is None and match.output.rank not in (None, 4):
            return Rejection(f"what would be turned has {match.output.rank} axes, heads have 4", match.root)
        if turn is None:
            return Rejection("the two products are not those of pairs of the same heads", match.root)
        refusal = refuse_dtype(turn.x, match.root)
        if refusal is not None:
            return refusal
        if match.opset() < (STANDARD_OPSET if self._is_standard else RANGE_OPSET):
            return Rejection(f"opset {match.opset()} does not have the operators for it", match.root)
        if is_whole and not (repeats(turn.cos, turn.pairing) and repeats(turn.sin, turn.pairing)):
            return Rejection("the factors are not known to be the same for both elements of each pair", match.root)
        found = _rotation_of(turn, match.output, is_whole=is_whole)
        return found or Rejection("the factors are not known to be one for each token and pair", match.root)

    def rewrite(self, match: Match, bindings: Rotation) -> GraphPatch:
        """Put the operator there, before the split into heads where there is one."""
        patch = GraphPatch(match.model, match.root)
        tables = self._tables(patch, match, bindings)
        attributes: dict[str, object] = {"num_heads": bindings.num_heads}
        if bindings.is_interleaved:
            attributes["interleaved"] = 1
        if bindings.turned != bindings.size:
            attributes["rotary_embedding_dim"] = bindings.turned
        flat = _flat_of(patch, bindings)
        source = bindings.x if flat is None else flat
        if flat is None and bindings.turned == bindings.size:
            del attributes["num_heads"]
        domain = "" if self._is_standard else ONNXRUNTIME
        rotated = patch.op("RotaryEmbedding", [source, *tables], attributes, type=source.type, domain=domain)
        if flat is not None:
            rotated = _split(patch, rotated, bindings)
        patch.replace(bindings.made, rotated)
        assert bindings.made.producer is not None
        patch.remove(*nodes_only_for([bindings.made.producer]))
        return patch

    def _tables(self, patch: GraphPatch, match: Match, rotation: Rotation) -> list[Value]:
        """Return what the operator reads beside the heads."""
        factors = rotation.factors
        if not self._is_standard:
            return existing_tables(factors, match.root, ONNXRUNTIME, rotation.x) or make_tables(patch, factors)
        return existing_tables(factors, match.root, "", rotation.x) or make_standard_tables(patch, factors, rotation.x)


def _stacked(first: OpPattern, second: OpPattern) -> OpPattern:
    """Return both halves of a result as neighbors."""
    axes = var("axes")
    return op("Concat", op("Unsqueeze", first, axes), op("Unsqueeze", second, axes), name="stack")


def _turned_whole(match: Match) -> _Turn | None:
    """Return what turns in a sum of two products, whichever operand of whichever product is the quarter turn."""
    left, right = match.node("left").inputs, match.node("right").inputs
    for (x, cos), (other, sin) in chain(_orders(left, right), _orders(right, left)):
        pairing = _quarter_turn(other, x)
        if pairing is not None:
            return _Turn(x, pairing, cos, sin)
    return None


def _orders(
    left: Sequence[Value | None], right: Sequence[Value | None]
) -> Iterator[tuple[tuple[Value, Value], tuple[Value, Value]]]:
    a, b = (value for value in left if value is not None)
    c, d = (value for value in right if value is not None)
    return product(((a, b), (b, a)), ((c, d), (d, c)))


def _rotation_of(turn: _Turn, made: Value, *, is_whole: bool) -> Rotation | None:
    """Return the rotation where the factors are proven to be one for each token and pair."""
    x, turned = turn.x, fixed_dim(turn.x, 3)
    if turned is None:
        return None
    pairs = turned // 2
    for axis in (1, 2):
        count = fixed_dim(x, axis)
        has_batch, same = (
            _is_for_tokens(each, x, axis, turned if is_whole else pairs) for each in (turn.cos, turn.sin)
        )
        if count is None or has_batch is None or has_batch is not same:
            continue
        factors = Factors(turn.cos, turn.sin, pairs, turn.pairing if is_whole else None, has_batch)
        return _with_rest(Rotation(x, axis, count, turned, turned, factors, turn.pairing is Pairing.TWINS, made))
    return None


def _quarter_turn(other: Value, x: Value) -> Pairing | None:
    """Return what pairs a value is the quarter turn of: of (a, b) it has (-b, a)."""
    size = fixed_dim(x, -1)
    if size is None or size % 2 or x.rank != 4:
        return None
    joined = producer_of(other, "Concat")
    if joined is not None and len(joined.inputs) == 2 and joined.int_attribute("axis", 0) in (-1, 3):
        negated, low = producer_of(joined.inputs[0], "Neg"), joined.inputs[1]
        high = None if negated is None else negated.inputs[0]
        if _is_piece(low, x, 0, size // 2) and _is_piece(high, x, size // 2, size):
            return Pairing.HALVES
    merged = producer_of(other, "Reshape")
    stack = None if merged is None else producer_of(merged.inputs[0], "Concat")
    if merged is None or stack is None or not _is_stack(stack, merged.output, size):
        return None
    odd, even = _below_negation(stack.inputs[0]), _below_unsqueeze(stack.inputs[1])
    return Pairing.TWINS if _is_every_other(even, x, 0) and _is_every_other(odd, x, 1) else None


def _turned_apart(match: Match) -> _Turn | None:
    """Return what turns where both halves of the pairs are computed by themselves.

    The formula is the same with the halves of heads and the factors exchanged, so both are tried.
    """
    halves, factors = (match["low"], match["high"]), (match["cos"], match["sin"])
    for (low, high), (cos, sin) in ((halves, factors), (factors, halves)):
        found = _pairs_of(match, low, high)
        if found is not None:
            return _Turn(*found, cos, sin)
    return None


def _pairs_of(match: Match, low: Value, high: Value) -> tuple[Value, Pairing] | None:
    """Return the heads of which two values are the first and the second elements of all pairs."""
    piece = producer_of(low, "Slice", "Split")
    x = None if piece is None else piece.inputs[0]
    size = None if x is None else fixed_dim(x, -1)
    if x is None or size is None or size % 2 or x.rank != 4:
        return None
    if match.has_node("halves"):
        is_last = match.node("halves").int_attribute("axis", 0) in (-1, 3)
        fits = is_last and _is_piece(low, x, 0, size // 2) and _is_piece(high, x, size // 2, size)
        return (x, Pairing.HALVES) if fits else None
    fits = _is_stack(match.node("stack"), match.output, size)
    return (x, Pairing.TWINS) if fits and _is_every_other(low, x, 0) and _is_every_other(high, x, 1) else None


def _is_stack(stack: Node, merged: Value, size: int) -> bool:
    """Return whether (…, pairs, 1) and (…, pairs, 1) are joined and merged to (…, size)."""
    made = stack.output
    if len(stack.inputs) != 2 or made.rank != 5 or stack.int_attribute("axis", 0) not in (-1, 4):
        return False
    is_pairs = fixed_dim(made, 3) == size // 2 and fixed_dim(made, 4) == 2
    return is_pairs and merged.rank == 4 and fixed_dim(merged, 3) == size


def _below_unsqueeze(value: Value | None) -> Value | None:
    """Return what got another last axis."""
    node = producer_of(value, "Unsqueeze", "Reshape")
    inner = None if node is None else node.inputs[0]
    if value is None or inner is None or inner.rank != 4 or value.rank != 5 or dim(value, 4) != 1:
        return None
    return inner if same_dim(dim(inner, 3), dim(value, 3)) else None


def _below_negation(value: Value | None) -> Value | None:
    """Return what was negated and got another last axis, in either order."""
    outer = producer_of(value, "Neg")
    if outer is not None:
        return _below_unsqueeze(outer.inputs[0])
    inner = producer_of(_below_unsqueeze(value), "Neg")
    return None if inner is None else inner.inputs[0]


def _is_piece(value: Value | None, x: Value, start: int, end: int) -> bool:
    """Return whether ``value`` is the slice from ``start`` to ``end`` of the last axis of ``x``."""
    node = producer_of(value, "Slice", "Split")
    if node is None or value is None or node.inputs[0] is not x:
        return False
    if node.op_type == "Slice":
        piece = find_piece(node)
        return piece is not None and (piece.start, piece.end, piece.axis) == (start, end, 3)
    if node.int_attribute("axis", 0) not in (-1, 3):
        return False
    sizes = [fixed_dim(made, 3) for made in node.present_outputs()]
    if None in sizes or len(sizes) != len(node.outputs):
        return False
    before = sum(size for size in sizes[: value.output_index] if size is not None)
    return (before, before + (sizes[value.output_index] or 0)) == (start, end)


def _is_every_other(value: Value | None, x: Value, start: int) -> bool:
    """Return whether ``value`` has every second element of the last axis of ``x``."""
    node = producer_of(value, "Slice")
    if node is None or node.inputs[0] is not x:
        return False
    starts, ends, axes, steps = (integers_of(node.input(index)) for index in (1, 2, 3, 4))
    size = fixed_dim(x, 3)
    if starts is None or ends is None or axes is None or size is None or len(axes) != 1:
        return False
    return starts == (start,) and ends[0] >= size and axes[0] in (-1, 3) and steps == (2,)


def _is_for_tokens(factor: Value, x: Value, heads_axis: int, width: int) -> bool | None:
    """Return whether factors are of each entry of the batch (or for all), ``None``: not one for each token and pair."""
    shape = factor.shape
    if shape is None or len(shape) > 4 or len(shape) < 2:
        return None
    padded: list[int | SymbolicDim | None] = [1] * (4 - len(shape))
    padded.extend(shape)
    batch, *middle, last = padded
    length_axis = 3 - heads_axis
    if last != width or middle[heads_axis - 1] != 1 or not is_same_beside(middle[length_axis - 1], dim(x, length_axis)):
        return None
    if batch == 1:
        return False
    return True if len(shape) == 4 and same_dim(batch, dim(x, 0)) else None


def _with_rest(rotation: Rotation) -> Rotation:
    """Return a rotation of whole heads where only their first features are turned and the others follow."""
    reader, x = only_reader(rotation.made), rotation.x
    piece = producer_of(x, "Slice", "Split")
    whole = None if piece is None else piece.inputs[0]
    if reader is None or reader.op_type != "Concat" or whole is None or whole.rank != 4 or len(reader.inputs) != 2:
        return rotation
    first, rest = reader.inputs
    size = fixed_dim(whole, 3)
    if first is not rotation.made or reader.int_attribute("axis", 0) not in (-1, 3) or size is None:
        return rotation
    turned = rotation.turned
    if not _is_piece(x, whole, 0, turned) or not _is_piece(rest, whole, turned, size):
        return rotation
    return Rotation(
        whole, rotation.heads_axis, rotation.num_heads, size, turned, rotation.factors, rotation.is_interleaved,
        reader.output,
    )  # fmt: skip


def _flat_of(patch: GraphPatch, rotation: Rotation) -> Value | None:
    """Return the heads as (batch, length, heads * size), ``None`` where that would need their elements moved."""
    split: Value | None = rotation.x
    if rotation.heads_axis == 1:
        turned = producer_of(rotation.x, "Transpose")
        if turned is None or turned.ints_attribute("perm") != SPLIT:
            return None
        split = turned.inputs[0]
    flat = find_flat(split)
    if flat is not None or split is None:
        return flat
    width = rotation.num_heads * rotation.size
    sizes = patch.constant(np.array([0, 0, width], np.int64), "merged_heads")
    return patch.op("Reshape", [split, sizes], type=_typed(split, (dim(split, 0), dim(split, 1), width)))


def _split(patch: GraphPatch, rotated: Value, rotation: Rotation) -> Value:
    """Return heads as they were before."""
    x = rotation.x
    sizes = patch.constant(np.array([0, 0, rotation.num_heads, rotation.size], np.int64), "heads")
    length = dim(x, 3 - rotation.heads_axis)
    shape = (dim(x, 0), length, rotation.num_heads, rotation.size)
    split = patch.op("Reshape", [rotated, sizes], type=_typed(rotated, shape))
    return split if rotation.heads_axis == 2 else patch.op("Transpose", [split], {"perm": SPLIT}, type=x.type)


def _typed(value: Value, shape: tuple[object, ...]) -> TensorType | None:
    return TensorType(value.type.dtype, shape) if isinstance(value.type, TensorType) else None  # type: ignore[arg-type]  # sizes
