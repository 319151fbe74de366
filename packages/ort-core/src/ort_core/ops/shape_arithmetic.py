"""Shape arithmetic that many inference rules share: broadcasting, windows, products, slices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ort_core.ir import dims
from ort_core.ir.dims import Dim, KnownDim, SymbolicDim, ceil_div, floor_div, maximum, minimum, product
from ort_core.ir.types import Shape
from ort_core.ops.inference_context import InferenceContext
from ort_core.ops.merge_types import knowledge, merge_dims
from ort_core.ops.symbolic_values import is_non_negative

_END_OF_AXIS = 2**31 - 1  # exporters write this, or the largest int64, for "to the end"
_NO_AXIS = 2**40  # elements: more than any memory holds

MAX_RANK = 64  # numpy's limit; a longer "shape" in a hostile model is not believed


def fixed_sizes(shape: Shape | None) -> tuple[int, ...] | None:
    """Return a shape when all its sizes are numbers."""
    if shape is None or not all(isinstance(dim, int) for dim in shape):
        return None
    return shape  # type: ignore[return-value]  # checked just above


def broadcast_dims(ctx: InferenceContext, left: Dim, right: Dim) -> Dim:
    """Return the size that two sizes broadcast to; refuses different numbers above 1."""
    if left is right or left == right:
        return left
    if left == 1 and left is not None:
        return right
    if right == 1 and right is not None:
        return left
    if isinstance(left, int):
        if isinstance(right, int):
            ctx.refuse(f"Incompatible dimensions: {left} and {right} cannot be broadcast")
        return left
    if isinstance(right, int):
        return right
    if left is None or right is None:
        return None
    return dims.broadcast(left, right)


def broadcast(ctx: InferenceContext, shapes: Iterable[Shape | None]) -> Shape | None:
    """Return the shape that shapes broadcast to, ``None`` when a rank is unknown."""
    result: Shape | None = None
    for shape in shapes:
        if shape is None:
            return None
        if result is None or result == shape:
            result = shape
            continue
        short, long = (result, shape) if len(result) <= len(shape) else (shape, result)
        offset = len(long) - len(short)
        result = long[:offset] + tuple(broadcast_dims(ctx, a, b) for a, b in zip(short, long[offset:], strict=True))
    return result


def same_dim(ctx: InferenceContext, left: Dim, right: Dim, what: str) -> Dim:
    """Return what is known of one size that is told twice, by its name rather than as an expression.

    Different numbers are refused.
    """
    if isinstance(left, int) and isinstance(right, int) and left != right:
        ctx.refuse(f"Incompatible dimensions: {what} is {left} here and {right} there")
    if knowledge(left) == knowledge(right) and _is_expression(left) and not _is_expression(right):
        return right
    return merge_dims(left, right)


def _is_expression(dim: Dim) -> bool:
    return isinstance(dim, SymbolicDim) and dim.name is None


def add_dims(*dims: Dim) -> Dim:
    """Return the sum, ``None`` when a part is unknown."""
    total: KnownDim = 0
    for dim in dims:
        if dim is None:
            return None
        total = total + dim
    return total


def scale_dim(dim: Dim, factor: Dim) -> Dim:
    """Return the product, ``None`` when a factor is unknown."""
    return product((dim, factor))


def divide_dim(dim: Dim, divisor: Dim) -> Dim:
    """Return the quotient rounded down, ``None`` when a part is unknown or the divisor may not be used."""
    if dim is None or divisor is None or (isinstance(divisor, int) and divisor <= 0):
        return None
    return floor_div(dim, divisor)


def quotient_of_products(total: Sequence[Dim], known: Sequence[Dim]) -> Dim:
    """Return ``product(total) / product(known)`` for an exact division; equal factors cancel even when unknown."""
    left, right = list(total), []
    for dim in known:
        if dim is not None and dim in left:
            left.remove(dim)
        else:
            right.append(dim)
    numerator, denominator = product(tuple(left)), product(tuple(right))
    if numerator is None or denominator is None or denominator == 0:
        return None
    return floor_div(numerator, denominator)


def slice_dim(
    size: Dim, start: Dim, end: Dim, step: Dim, *, start_is_size: bool = False, end_is_size: bool = False
) -> Dim:
    """Return the number of elements of ``size`` that a slice keeps, by ONNX's clamping rules.

    A bound that is the size of a tensor is not negative, whatever its expression (``holds_sizes``).
    """
    if not isinstance(step, int) or step == 0 or start is None or end is None:
        return None
    if isinstance(size, int) and isinstance(start, int) and isinstance(end, int):
        return len(slice_range(size, start, end, step))
    if size is None:
        return _slice_of_unknown(start, end, step)
    if step < 0:
        whole = start == -1 or (isinstance(start, int) and is_beyond_end(start))
        return ceil_div(size, -step) if whole and isinstance(end, int) and is_before_beginning(end) else None
    first = slice_bound(start, size, is_size=start_is_size)
    last = slice_bound(end, size, is_size=end_is_size)
    if first == 0:
        return ceil_div(last, step)
    return maximum(ceil_div(last - first, step), 0)


def is_beyond_end(bound: int) -> bool:
    """Return whether a bound of Slice stands for "to the end", however long the axis is.

    Exporters write the largest int32 or int64. Of other numbers only those that no axis reaches count: an axis may have
    more than 2**31 elements, and be cut there. Where its size is not known, an axis that is cut at exactly 2**31 - 1 is
    taken to be no longer.
    """
    return bound == _END_OF_AXIS or bound >= _NO_AXIS


def is_before_beginning(bound: int) -> bool:
    """Return whether a negative bound of Slice lies before the first element, as :func:`is_beyond_end` of the end."""
    return -bound in (_END_OF_AXIS, _END_OF_AXIS + 1) or bound <= -_NO_AXIS


def slice_range(size: int, start: int, end: int, step: int) -> range:
    """Return the places of an axis that Slice keeps, in order.

    The specification clamps otherwise than Python: backwards a slice begins with the first element where its start
    lies before it, and no bound stands for "to the end".

        >>> list(slice_range(2, -3, -9, -1)), list(range(*slice(-3, -9, -1).indices(2)))
        ([0], [])

    Args:
        size: of the axis.
        start: a bound; negative ones count from the end.
        end: as ``start``.
        step: any but 0.
    """
    lowest, highest = (0, size) if step > 0 else (-1, size - 1)
    first = min(max(start + size if start < 0 else start, 0), highest)
    last = min(max(end + size if end < 0 else end, lowest), highest)
    return range(first, last, step)


def as_slice(kept: range) -> slice:
    """Return the slice of Python that keeps some places: a stop before the first is none at all."""
    return slice(kept.start, None if kept.stop < 0 else kept.stop, kept.step) if kept else slice(0, 0)


def _slice_of_unknown(start: Dim, end: Dim, step: int) -> Dim:
    return 0 if step > 0 and start == end else None


def slice_bound(index: KnownDim, size: KnownDim, *, is_size: bool = False) -> KnownDim:
    """Return the place in an axis at which a forward slice begins or ends, by ONNX's clamping rules.

    Args:
        index: the bound. Below 0 it counts from the end, also where only a run knows whether it is.
        size: of the axis.
        is_size: whether the bound is the size of a tensor: it is not negative then, whatever its expression.
    """
    if isinstance(index, int):
        if is_beyond_end(index):
            return size
        if is_before_beginning(index):
            return 0
        if index < 0:
            return maximum(size + index, 0)
        return minimum(index, size) if index else 0
    if is_size or is_non_negative(index):
        return minimum(index, size)
    if size + index == 0:
        return 0  # n from the end of n; -0 is the beginning, too
    if is_non_negative(-index - 1):
        return maximum(size + index, 0)
    is_below_0 = minimum(maximum(-index, 0), 1)
    return maximum(minimum(index + size * is_below_0, size), 0)
