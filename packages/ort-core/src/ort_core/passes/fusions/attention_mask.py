"""What is added to the scores of an attention, brought to the four axes that the fused operator wants."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import ml_dtypes
import numpy as np

from ort_core.frozen import frozen
from ort_core.ir.dims import SymbolicDim
from ort_core.ir.nodes import Node
from ort_core.ir.types import DataType, TensorType
from ort_core.ir.values import Value
from ort_core.passes.fusions.attention_windows import Windowed, windows_in_batch
from ort_core.passes.fusions.operands import dim, dtype_of, integers_of, number_of, same_dim
from ort_core.rewrite.matcher import constant_of
from ort_core.rewrite.patch import GraphPatch

Size = int | SymbolicDim | None
_MOVES = frozenset({"Expand", "Unsqueeze", "Squeeze", "Reshape", "Slice", "Transpose", "Identity", "Gather"})


_BOUNDED = frozenset({"Where", "Add", "Min"})
_LARGE = 1e4  # in float16, too, a few of these have a finite sum
_DEPTH = 8  # of choices within choices; exports have two or three
SWALLOWS_SCORES = -1e37  # the next number of float32 is 1e30 away: scores below half of that change nothing
_WIDE_RANGE = frozenset({DataType.FLOAT, DataType.BFLOAT16})
LOWEST_EFFECT = -1e4  # what GPT-2 puts in the place of a masked score: its share after the softmax is 0 in float32


@frozen
class Mask:
    """What is added to the scores; with ``allowed``, the number that replaces scores where that is false.

    One that ``is_inverted`` replaces them where ``allowed`` is true. One that ``is_stacked`` has the shape
    (batch * heads, queries or 1, keys), one that is ``windowed`` is of windows. ``factor`` multiplied it:
    behind its sum with the scores, or -1 in a difference. One that ``is_lowered`` adds the lowest finite number in the
    place of its own, in which scores would not be lost.
    """

    value: Value
    allowed: Value | None = None
    is_stacked: bool = False
    is_inverted: bool = False
    factor: float = 1.0
    windowed: Windowed | None = None
    is_lowered: bool = False

    @property
    def rank(self) -> int | None:
        """The rank of what is added."""
        if self.windowed is not None:
            return 4
        return self.value.rank if self.allowed is None else self.allowed.rank

    @property
    def is_finite(self) -> bool:
        """Whether it is known to be finite."""
        return is_finite(self.value)

    @property
    def is_bounded(self) -> bool:
        """Whether it is known to have neither NaN nor large numbers above zero: it may be -inf."""
        return self.factor > 0 and is_bounded(self.value)

    def read(self) -> tuple[Value, ...]:
        """Return the values that it is made of."""
        return (self.value,) if self.allowed is None else (self.value, self.allowed)

    def as_addend(self, patch: GraphPatch, num_heads: int, batch: Callable[[], Value]) -> Value:
        """Return it as a tensor to add to scores of four axes; ``batch`` makes a vector of the size of their first."""
        if self.is_stacked:
            return self._pulled_apart(patch, num_heads)
        if self.windowed is not None:
            return windows_in_batch(patch, self.windowed, batch())
        if self.allowed is None and self.factor != 1.0:
            factor = patch.constant(np.array(self.factor, dtype_of(self.value).numpy), "scale")
            return patch.op("Mul", [self.value, factor], type=self.value.type)
        if self.allowed is None:
            return self.value
        dtype = dtype_of(self.value)
        zero = patch.constant(np.zeros((), dtype.numpy), "allowed")
        low = patch.constant(np.array(ml_dtypes.finfo(dtype.numpy).min), "hidden") if self.is_lowered else self.value
        choices = [low, zero] if self.is_inverted else [zero, low]
        return patch.op("Where", [self.allowed, *choices], type=TensorType(dtype, self.allowed.shape))

    def _pulled_apart(self, patch: GraphPatch, num_heads: int) -> Value:
        """Return (batch, heads, queries or 1, keys); a 0 in the shape keeps an axis, so there must be four before."""
        dtype = dtype_of(self.value)
        four = patch.op("Expand", [self.value, patch.constant(np.ones(4, np.int64), "four_axes")])
        shape = patch.constant(np.array([-1, num_heads, 0, 0], np.int64), "heads_apart")
        made = (None, num_heads, dim(self.value, 1), dim(self.value, 2))
        return patch.op("Reshape", [four, shape], type=TensorType(dtype, made))


def find_choice(chosen: Node) -> Mask | None:
    """Return the mask of ``Where(allowed, scores, low)``, or ``Where(hidden, low, scores)``, that equals one to add.

    Replacing a score and adding to it come to the same when the number is so low that the share is 0 either way, and
    when each row has a score that is kept. The latter is known of a constant whose first column is true, cut as
    exporters cut it: by slices that keep the first column. Near the lowest number of float32 every score is lost in the
    sum, so that rows without any kept score have equal shares either way: there that number is added in the place of
    another low one, unless more is added to the scores, which would tell the hidden ones apart.
    """
    allowed, first, second = chosen.inputs
    is_inverted = number_of(first) is not None
    low = first if is_inverted else second
    number = number_of(low)
    if allowed is None or low is None or low.rank != 0 or number is None or number > LOWEST_EFFECT:
        return None
    if number <= SWALLOWS_SCORES and dtype_of(low) in _WIDE_RANGE:
        return Mask(low, allowed, is_inverted=is_inverted)
    if not is_inverted and _keeps_first(allowed):
        return Mask(low, allowed)
    return Mask(low, allowed, is_inverted=is_inverted, is_lowered=True) if dtype_of(low) in _WIDE_RANGE else None


def _keeps_first(allowed: Value) -> bool:
    """Return whether each row is known to keep its first score."""
    value: Value | None = allowed
    while value is not None and value.producer is not None:
        node = value.producer
        if node.op_type != "Cast" and not (node.op_type == "Slice" and _keeps_first_column(node)):
            return False
        value = node.inputs[0]
    buffer = constant_of(value)
    return buffer is not None and len(buffer.shape) >= 2 and bool((buffer.array()[..., 0] != 0).all())


def hides_rest(addend: Value, keep: Value) -> bool:
    """Return whether an addend is a low number where ``keep`` is 0, and 0 where it is 1.

    The number must do to scores what ``find_choice`` asks of one that replaces them.
    """
    node = addend.producer
    if node is None or node.op_type != "Mul" or node.domain != "":
        return False
    for hidden, low in (node.inputs, node.inputs[::-1]):
        number = number_of(low)
        if hidden is None or low is None or number is None or number > LOWEST_EFFECT or not np.isfinite(number):
            continue
        if not _is_rest(hidden, keep):
            return False
        return (number <= SWALLOWS_SCORES and dtype_of(low) in _WIDE_RANGE) or _keeps_first(keep)
    return False


def _is_rest(hidden: Value, keep: Value) -> bool:
    """Return whether ``keep`` is 0 or 1 everywhere, and ``hidden`` is 1 - ``keep``."""
    node, cast = hidden.producer, keep.producer
    if node is None or node.domain != "":
        return False
    if node.op_type == "Sub":
        return node.inputs[1] is keep and number_of(node.inputs[0]) == 1 and _is_zero_or_one(keep)
    if node.op_type != "Cast" or cast is None or cast.op_type != "Cast" or node.inputs[0] is None:
        return False
    inverse = node.inputs[0].producer
    return inverse is not None and inverse.op_type == "Not" and inverse.inputs[0] is cast.inputs[0]


def _is_zero_or_one(value: Value) -> bool:
    value = _before_moves(value)
    node = value.producer
    if node is not None:
        return node.op_type == "Cast" and node.domain == "" and dtype_of(node.inputs[0]) is DataType.BOOL
    found = constant_of(value)
    return found is not None and bool(np.isin(found.array().astype(np.float64), (0.0, 1.0)).all())


def _keeps_first_column(node: Node) -> bool:
    starts, axes, steps = (integers_of(node.input(index)) for index in (1, 3, 4))
    rank = node.output.rank
    if axes is None or len(axes) != 1 or rank is None or (node.input(4) is not None and steps != (1,)):
        return False
    return axes[0] % rank != rank - 1 or starts == (0,)


def _before_moves(value: Value) -> Value:
    """Return what a value was before nodes that only move its elements about."""
    node = value.producer
    while node is not None and node.op_type in _MOVES and node.domain == "":
        first = node.input(0)
        if first is None:
            break
        value, node = first, first.producer
    return value


def is_finite(value: Value) -> bool:
    """Return whether a mask is known to be finite: a choice between finite constants, moved about."""
    value = _before_moves(value)
    node = value.producer
    if node is None:
        return _is_finite_constant(value)
    return (
        node.domain == ""
        and node.op_type == "Where"
        and all(_is_finite_constant(choice) for choice in node.inputs[1:3])
    )


def is_bounded(value: Value, depth: int = 0) -> bool:
    """Return whether a mask is known to be -inf, or finite and not large, everywhere: choices and sums of such."""
    value = _before_moves(value)
    node = value.producer
    if node is None:
        return _is_bounded_constant(value)
    if node.domain != "" or node.op_type not in _BOUNDED or depth > _DEPTH:
        return False
    parts = node.inputs[1:3] if node.op_type == "Where" else node.inputs
    return all(part is not None and is_bounded(part, depth + 1) for part in parts)


def _is_bounded_constant(value: Value) -> bool:
    found = constant_of(value)
    if found is None or not found.dtype.is_float:
        return False
    return bool((found.array().astype(np.float64) <= _LARGE).all())  # not so for NaN


def _is_finite_constant(value: Value | None) -> bool:
    found = constant_of(value)
    return found is not None and found.dtype.is_float and bool(np.isfinite(found.array().astype(np.float64)).all())


def broadcast_type(left: Value, right: Value) -> TensorType | None:
    """Return the type of the sum of two masks, as far as their sizes say."""
    if not isinstance(left.type, TensorType) or left.shape is None or right.shape is None:
        return None
    rank = max(len(left.shape), len(right.shape))
    padded = [(*[1] * (rank - len(shape)), *shape) for shape in (left.shape, right.shape)]
    sizes = [b if a == 1 else a if b in (1, a) else None for a, b in zip(*padded, strict=True)]
    return TensorType(left.type.dtype, tuple(sizes))


def broadcast_mask(patch: GraphPatch, mask: Value, scores: Value, lengths: Callable[[], Sequence[Value]]) -> Value:
    """Return the mask with the last two axes of the scores.

    ``lengths`` makes one-element vectors with the number of queries and of keys. A mask that is known to have
    those sizes is returned as it is; an equal expansion that the graph has already is used again.
    """
    has_sizes = mask.rank == 4 and all(same_dim(dim(mask, axis), dim(scores, axis)) for axis in (-2, -1))
    if has_sizes:
        return mask
    wanted = (dim(scores, -2), dim(scores, -1))
    for reader in mask.consumers():
        if reader.op_type == "Expand" and _gives(reader, mask, wanted):
            return reader.output
    sizes = [patch.constant(np.ones(2, np.int64), "mask_axes"), *lengths()]
    shape = patch.op("Concat", sizes, {"axis": 0})
    expanded = patch.node("Expand", [mask, shape], outputs=(_expanded_type(mask, wanted),))
    return expanded.output


def _expanded_type(mask: Value, wanted: tuple[Size, Size]) -> TensorType | None:
    if not isinstance(mask.type, TensorType):
        return None
    if mask.rank != 4:
        return TensorType(mask.type.dtype, None)
    return TensorType(mask.type.dtype, (dim(mask, 0), dim(mask, 1), *wanted))


def _gives(reader: Node, mask: Value, wanted: tuple[Size, Size]) -> bool:
    made = reader.output
    if made.rank != 4 or None in wanted or mask.rank != 4 or made.graph is not mask.graph:
        return False
    if not any(node.op_type == "MultiHeadAttention" for node in made.consumers()):
        return False  # another one may stand behind the place where this is needed
    kept = all(same_dim(dim(made, axis), dim(mask, axis)) for axis in (0, 1))
    return kept and (dim(made, 2), dim(made, 3)) == wanted
