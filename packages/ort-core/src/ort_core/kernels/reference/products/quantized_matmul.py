"""MatMulInteger and QLinearMatMul: products of quantized matrices, accumulated exactly."""

from __future__ import annotations

import numpy as np

from ort_core.errors import InvalidArgument
from ort_core.ir.types import DataType
from ort_core.kernels.kernel import kernel
from ort_core.kernels.reference.arrays.element_conversion import convert
from ort_core.kernels.reference.arrays.widening import widen
from ort_core.kernels.reference.products.matrix_products import check_matmul_shapes
from ort_core.kernels.reference.quantization.quantization import saturate
from ort_core.tensors.broadcasting import broadcast_shapes


def wrap_int32(exact: np.ndarray) -> np.ndarray:
    """Return whole float64 numbers as int32, wrapped."""
    return np.asarray(exact.astype(np.int64).astype(np.int32))


def centered(x: np.ndarray, zero_point: np.ndarray | None, *, rows: bool) -> np.ndarray:
    """Return x - zero_point as float64, which holds sums of 8-bit products exactly.

    A vector of zero points stands for rows (input A) or columns (input B) of the matrices.

    Raises:
        InvalidArgument: the zero point does not fit the shape of ``x``.
    """
    real = widen(x).astype(np.float64)
    if zero_point is None:
        return real
    return real - _per_line(widen(zero_point).astype(np.float64), x.shape, rows=rows)


def _per_line(parameter: np.ndarray, shape: tuple[int, ...], *, rows: bool) -> np.ndarray:
    """Return a scale or zero point so that it broadcasts to matrices of ``shape``."""
    if parameter.size == 1:
        return parameter.reshape(())
    shaped = parameter.reshape(-1, 1) if rows and parameter.ndim == 1 else parameter
    try:
        if broadcast_shapes(shaped.shape, shape) == tuple(shape):
            return shaped
    except ValueError:
        pass  # reported below, together with shapes that broadcast beyond the matrix
    raise InvalidArgument(
        f"a quantization parameter of shape {parameter.shape} does not fit matrices of shape {shape}; expected one "
        f"element or one for each {'row' if rows else 'column'}"
    )


@kernel("MatMulInteger", since=10)
def mat_mul_integer(
    a: np.ndarray,
    b: np.ndarray,
    a_zero_point: np.ndarray | None = None,
    b_zero_point: np.ndarray | None = None,
) -> np.ndarray:
    """Return (A - a_zero_point)(B - b_zero_point) as int32."""
    check_matmul_shapes("MatMulInteger", a, b)
    left, right = centered(a, a_zero_point, rows=True), centered(b, b_zero_point, rows=False)
    return wrap_int32(np.matmul(left, right))


@kernel("QLinearMatMul", since=10)
@np.errstate(all="ignore")
def q_linear_mat_mul(
    a: np.ndarray,
    a_scale: np.ndarray,
    a_zero_point: np.ndarray,
    b: np.ndarray,
    b_scale: np.ndarray,
    b_zero_point: np.ndarray,
    y_scale: np.ndarray,
    y_zero_point: np.ndarray,
) -> np.ndarray:
    """Return the product of two quantized matrices, quantized to the type of ``y_zero_point``."""
    check_matmul_shapes("QLinearMatMul", a, b)
    product = np.matmul(centered(a, a_zero_point, rows=True), centered(b, b_zero_point, rows=False))
    ratio = _product_scale(a_scale, b_scale, y_scale, product.shape)
    return requantize(product, ratio, _per_line(y_zero_point, product.shape, rows=True))


def _product_scale(a: np.ndarray, b: np.ndarray, y: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    left = _per_line(widen(a), shape, rows=True)
    return left * _per_line(widen(b), shape, rows=False) / _per_line(widen(y), shape, rows=True)


def requantize(exact: np.ndarray, ratio: np.ndarray, zero_point: np.ndarray) -> np.ndarray:
    """Return exact sums times ``ratio``, rounded once in float32, offset and saturated to ``zero_point``'s type."""
    real = exact.astype(np.float32) * ratio.astype(np.float32)
    target = DataType.from_numpy(zero_point.dtype)
    offset = widen(zero_point)
    if target.is_float:
        return convert(real + offset, target)
    return saturate(np.rint(real).astype(np.float64) + offset, zero_point.dtype)
