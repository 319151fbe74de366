"""What operators compute of a row: softmax, normalizations and reductions, once, for all compilers.

    softmax(x) = e / row_sum(e)      e = exp(x - row_peak(x))

A row is what an operator reduces: its last axis, or any others. Compilers walk each row as ``rows.scheduled`` says, or
make a step of each reduction where rows do not lie in memory as such. The numpy kernels do not read these formulas:
what they say is compared with them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from ort_core.frozen import frozen
from ort_core.ir.types import DataType
from ort_core.loops import polynomials
from ort_core.loops.rows import row_length, row_max, row_mean, row_min, row_peak, row_prod, row_sum
from ort_core.loops.scalar import Scalar, binary, cast, integer_range, lift, maximum, minimum, select, unary

Function = Callable[[Scalar], Scalar]
_INTEGER_SUMS = frozenset({"ReduceSum", "ReduceL1", "ReduceSumSquare"})
_INTEGER_BITS = 32  # of the widest integers that are summed exactly: fewer than 2**31 of them fit 64 bits
_LOW = (1 << _INTEGER_BITS) - 1
_WRAPPED = 2.0**62  # a product that wraps is off by a multiple of 2**64, one that does not by its estimate's rounding


@frozen
class RowFunctions:
    """The elementary functions of a compiler: by default the polynomials, of float32 and float64."""

    exp: Function = polynomials.exp
    log: Function = polynomials.log
    exp_of_negative: Function = polynomials.exp_of_negative


POLYNOMIALS = RowFunctions()


def softmax(x: Scalar, functions: RowFunctions = POLYNOMIALS) -> Scalar:
    """Softmax: what each element is of the sum, as powers of e."""
    e = functions.exp_of_negative(x - row_peak(x))
    return e * (1.0 / row_sum(e))


def log_softmax(x: Scalar, functions: RowFunctions = POLYNOMIALS) -> Scalar:
    """LogSoftmax: the logarithm of softmax, without its roundings to zero."""
    shifted = x - row_peak(x)
    return shifted - functions.log(row_sum(functions.exp_of_negative(shifted)))


def masked_softmax(x: Scalar, functions: RowFunctions = POLYNOMIALS) -> Scalar:
    """Softmax of attention: a row of which every element is masked by minus infinity is zero."""
    largest = row_peak(x)
    e = functions.exp_of_negative(x - select(binary("eq", largest, float("-inf")), 0.0, largest))
    total = row_sum(e)
    return e * select(binary("eq", total, 0.0), 0.0, 1.0 / total)


@frozen
class Normalized:
    """A normalized row: ``result`` of its elements; the ``mean`` and the ``inverse`` of its deviation."""

    result: Scalar
    mean: Scalar | None
    inverse: Scalar


def normalized(
    x: Scalar, epsilon: float, scale: Scalar | None = None, bias: Scalar | None = None, *, is_centered: bool = True
) -> Normalized:
    """Layer, instance and group normalization; where it is not centered, by the root of the mean square.

    Args:
        x: the elements.
        epsilon: added to the variance.
        scale: what the normalized elements are multiplied by, if anything.
        bias: what is added then, if anything.
        is_centered: whether the mean is taken off first.
    """
    mean = row_mean(x) if is_centered else None
    centered = x if mean is None else x - mean
    inverse = 1.0 / unary("sqrt", row_mean(centered * centered) + epsilon)
    result = centered * inverse
    if scale is not None:
        result = result * cast(scale, x.dtype)
    if bias is not None:
        result = result + cast(bias, x.dtype)
    return Normalized(result, mean, inverse)


def mean_variance_normalized(x: Scalar) -> Scalar:
    """MeanVarianceNormalization: over the deviation, kept from zero by 1e-9."""
    centered = x - row_mean(x)
    return centered * (1.0 / (unary("sqrt", row_mean(centered * centered)) + 1e-9))


def lp_normalized(x: Scalar, p: int) -> Scalar:
    """LpNormalization: elements over their norm; nothing stays nothing."""
    norm = reduction_of("ReduceL1" if p == 1 else "ReduceL2", x)
    return select(binary("eq", norm, 0.0), 0.0, x / norm)


def normalizer(x: Scalar, norm: str) -> Scalar:
    """Normalizer of ai.onnx.ml: over the largest element, the sum of magnitudes, or the length; over 0 they stay."""
    found = reduction_of({"MAX": "ReduceMax", "L1": "ReduceL1", "L2": "ReduceL2"}[norm], x)
    return x / select(binary("eq", found, 0.0), 1.0, found)


def value_range(x: Scalar) -> tuple[Scalar, Scalar]:
    """DynamicQuantizeLinear: the least and the largest element, zero included."""
    return minimum(row_min(x), 0.0), maximum(row_max(x), 0.0)


def reduction_of(op_type: str, x: Scalar, functions: RowFunctions = POLYNOMIALS) -> Scalar:
    """Return what a reduction is of a row. Sums of integers stop at the limits of their type."""
    if op_type == "ReduceSum" and x.dtype is DataType.INT64:
        return _long_sum(x)
    if op_type in _INTEGER_SUMS and not x.dtype.is_float and x.dtype.bits <= _INTEGER_BITS:
        return _saturated(row_sum(_summand(op_type, cast(x, DataType.INT64), x.dtype)), x.dtype)
    if x.dtype is DataType.BOOL:
        return binary("ne", _REDUCTIONS[op_type](cast(x, DataType.UINT8)), 0)
    if op_type in _OF_INTEGERS and not x.dtype.is_float:
        return _OF_INTEGERS[op_type](x)
    if op_type == "ReduceLogSumExp":
        return _log_sum_exp(x, functions)
    if op_type == "ReduceLogSum":
        return functions.log(row_sum(x))
    return _REDUCTIONS[op_type](x)


_REDUCTIONS: Mapping[str, Function] = {
    "ReduceSum": row_sum,
    "ReduceMean": lambda x: row_sum(x) / maximum(row_length(x.dtype), 1.0),  # ONNX leaves that of nothing open: 0
    "ReduceMax": row_max,
    "ReduceMin": row_min,
    "ReduceProd": row_prod,
    "ReduceSumSquare": lambda x: row_sum(x * x),
    "ReduceL1": lambda x: row_sum(unary("abs", x)),
    "ReduceL2": lambda x: unary("sqrt", row_sum(x * x)),
}
REDUCTIONS = frozenset({*_REDUCTIONS, "ReduceLogSum", "ReduceLogSumExp"})


def _summand(op_type: str, x: Scalar, dtype: DataType) -> Scalar:
    """Return what is summed, as int64. A square beyond the type's limit counts as the limit: the sum stops there."""
    if op_type == "ReduceSum":
        return x
    magnitude = unary("abs", x)
    if op_type == "ReduceL1":
        return magnitude
    limit = integer_range(dtype)[1]
    bounded = minimum(magnitude, math.isqrt(limit) + 1)  # the square of uint32's largest number is beyond int64
    return minimum(bounded * bounded, limit)


def _long_sum(x: Scalar) -> Scalar:
    """Return the sum of int64, of fewer than 2**31: halves of 32 bits are summed apart, so that neither sum wraps."""
    low = row_sum(binary("and", x, _LOW))
    high = row_sum(binary("ashr", x, _INTEGER_BITS)) + binary("lshr", low, _INTEGER_BITS)
    whole = binary("or", binary("shl", high, _INTEGER_BITS), binary("and", low, _LOW))
    least, most = integer_range(DataType.INT64)
    bounded = select(binary("gt", high, most >> _INTEGER_BITS), most, whole, DataType.INT64)
    return select(binary("lt", high, least >> _INTEGER_BITS), least, bounded, DataType.INT64)


def _integer_mean(x: Scalar) -> Scalar:
    """Return the mean of integers, truncated towards zero; of int64 exact even where the sum has more bits.

    A sum of int64 is ``high * 2**32 + low``. Where ``high = q * n + r``, the mean is ``q * 2**32`` and
    ``(r * 2**32 + low) / n``.
    """
    count = maximum(row_length(DataType.INT64), 1)
    if x.dtype.bits <= _INTEGER_BITS:
        return cast(row_sum(cast(x, DataType.INT64)) / count, x.dtype)
    low = row_sum(binary("and", x, _LOW))
    high = row_sum(binary("ashr", x, _INTEGER_BITS)) + binary("lshr", low, _INTEGER_BITS)
    quotient, rest = _floor_divided(high, count)
    below = binary("shl", rest, _INTEGER_BITS) + binary("and", low, _LOW)
    whole = binary("shl", quotient, _INTEGER_BITS) + below / count
    is_cut = binary("ne", below - below / count * count, 0)
    return whole + select(binary("lt", whole, 0), select(is_cut, 1, 0, DataType.INT64), 0, DataType.INT64)


def _integer_product(x: Scalar) -> Scalar:
    """Return the product of integers, which stops at the limits of their type.

    What has wrapped, in 64 bits, is far from what it is in float64; where both are near, it is exact.
    """
    wide = DataType.UINT64 if x.dtype.text.startswith("u") else DataType.INT64
    exact, estimate = row_prod(cast(x, wide)), row_prod(cast(x, DataType.DOUBLE))
    least, most = integer_range(wide)
    is_wrapped = binary("gt", unary("abs", estimate - cast(exact, DataType.DOUBLE)), _WRAPPED)
    end = select(binary("gt", estimate, 0.0), most, least, wide)
    low, high = integer_range(x.dtype)
    return cast(minimum(maximum(select(is_wrapped, end, exact), low), high), x.dtype)


def _integer_norm(x: Scalar) -> Scalar:
    """Return the root of a sum of squares, in float64, truncated; it stops at the limit of the type."""
    wide = cast(x, DataType.DOUBLE)
    whole = cast(unary("sqrt", row_sum(wide * wide)), DataType.INT64)  # the nearest number where that is none
    return cast(minimum(whole, integer_range(x.dtype)[1]), x.dtype)


_OF_INTEGERS: Mapping[str, Function] = {
    "ReduceMean": _integer_mean, "ReduceProd": _integer_product, "ReduceL2": _integer_norm,
}  # fmt: skip


def _floor_divided(x: Scalar, y: Scalar) -> tuple[Scalar, Scalar]:
    """Return quotient and remainder of int64 over a positive number, the remainder not negative."""
    quotient = x / y
    rest = x - quotient * y
    is_below = binary("lt", rest, 0)
    return quotient - select(is_below, 1, 0, DataType.INT64), rest + select(is_below, y, 0, DataType.INT64)


def _saturated(total: Scalar, dtype: DataType) -> Scalar:
    low, high = integer_range(dtype)
    limited = select(binary("gt", total, high), high, select(binary("lt", total, low), low, total), DataType.INT64)
    return cast(limited, dtype)


def _log_sum_exp(x: Scalar, functions: RowFunctions) -> Scalar:
    """An infinite maximum is taken as 0: infinity less itself would be NaN."""
    largest = row_peak(x)
    shift = select(binary("eq", unary("abs", largest), float("inf")), lift(0.0, x.dtype), largest)
    return functions.log(row_sum(functions.exp(x - shift))) + shift
