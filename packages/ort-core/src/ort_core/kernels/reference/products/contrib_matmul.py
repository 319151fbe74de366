"""Matrix products with something folded in: transposes, a scale, an activation."""

from __future__ import annotations

import numpy as np

from ort_core import errors
from ort_core.kernels.kernel import kernel
from ort_core.kernels.reference.arrays.gates import fast_gelu
from ort_core.kernels.reference.arrays.named_activations import find_activation
from ort_core.kernels.reference.arrays.widening import narrow, widen
from ort_core.kernels.reference.products.matrix_products import check_matmul_shapes
from ort_core.tensors.sparse import SparseArray


def _oriented(matrix: np.ndarray, transpose: int, transpose_batch: int) -> np.ndarray:
    """Bring one operand into (batch..., rows, columns): first the batch rotation, then the last two axes."""
    if transpose_batch:
        matrix = np.moveaxis(matrix, 0, -2)
    if transpose and matrix.ndim > 1:
        matrix = np.swapaxes(matrix, -1, -2)
    return matrix


def _scaled_product(
    op_type: str, a: np.ndarray, b: np.ndarray, alpha: float, transposes: tuple[int, int], batches: tuple[int, int]
) -> np.ndarray:
    """Return alpha * op(A) @ op(B) in the type that sums are made in.

    Args:
        op_type: the operator, for errors.
        a: the left operand.
        b: the right operand.
        alpha: the factor.
        transposes: whether the last two axes of A, and of B, change places.
        batches: whether axis 0 of A, and of B, moves next to the last.

    Raises:
        InvalidArgument: the operands cannot be multiplied so.
    """
    a, b = _oriented(a, transposes[0], batches[0]), _oriented(b, transposes[1], batches[1])
    check_matmul_shapes(op_type, a, b)
    product = np.matmul(widen(a), widen(b))
    return product if alpha == 1.0 else product * product.dtype.type(alpha)


@kernel("FusedMatMul", domain="com.microsoft")
def fused_matmul(
    a: np.ndarray,
    b: np.ndarray,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    transBatchA: int = 0,
    transBatchB: int = 0,
) -> np.ndarray:
    """Y = alpha * op(A) @ op(B); a batch transpose moves axis 0 next to the last axis."""
    batches = (transBatchA, transBatchB)
    return narrow(_scaled_product("FusedMatMul", a, b, alpha, (transA, transB), batches), a.dtype)


@kernel("TransposeMatMul", domain="com.microsoft")
def transpose_matmul(
    a: np.ndarray, b: np.ndarray, *, alpha: float = 1.0, transA: int = 0, transB: int = 0
) -> np.ndarray:
    """Y = alpha * op(A) @ op(B)."""
    return fused_matmul(a, b, alpha=alpha, transA=transA, transB=transB)


@kernel("FusedMatMulActivation", domain="com.microsoft")
def fused_matmul_activation(
    a: np.ndarray,
    b: np.ndarray,
    *,
    activation: str,
    activation_alpha: float | None = None,
    activation_beta: float | None = None,
    activation_gamma: float | None = None,
    activation_axis: int | None = None,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    transBatchA: int = 0,
    transBatchB: int = 0,
) -> np.ndarray:
    """Y = activation(alpha * op(A) @ op(B)); only Softmax uses ``activation_axis``, nothing uses the gamma."""
    batches = (transBatchA, transBatchB)
    product = _scaled_product("FusedMatMulActivation", a, b, alpha, (transA, transB), batches)
    if activation == "Softmax":
        axis = -1 if activation_axis is None else activation_axis
        weights = np.exp(product - product.max(axis=axis, keepdims=True))
        return narrow(weights / weights.sum(axis=axis, keepdims=True), a.dtype)
    return narrow(find_activation(activation, activation_alpha, activation_beta)(product), a.dtype)


@kernel("FusedGemm", domain="com.microsoft")
def fused_gemm(
    a: np.ndarray,
    b: np.ndarray,
    c: np.ndarray | None = None,
    *,
    activation: str | None = None,
    activation_alpha: float | None = None,
    activation_beta: float | None = None,
    activation_gamma: float | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> np.ndarray:
    """Y = activation(alpha * op(A) @ op(B) + beta * C); no activation takes the gamma."""
    total = _scaled_product("FusedGemm", a, b, alpha, (transA, transB), (0, 0))
    if c is not None:
        total = total + _broadcast_bias("Gemm", total.dtype.type(beta) * widen(c), total)
    if activation:
        total = find_activation(activation, activation_alpha, activation_beta)(total)
    return narrow(total, a.dtype)


def _broadcast_bias(op_type: str, bias: np.ndarray, product: np.ndarray) -> np.ndarray:
    """Return a bias in the shape of the product that it is added to.

    Raises:
        InvalidArgument: it would make the result larger.
    """
    try:
        return np.broadcast_to(bias, product.shape)
    except ValueError as error:
        raise errors.InvalidArgument(
            f"{op_type}: Invalid bias shape for broadcast: {bias.shape} to {product.shape}"
        ) from error


@kernel("GemmFastGelu", domain="com.microsoft")
def gemm_fast_gelu(x: np.ndarray, w: np.ndarray, bias: np.ndarray | None = None) -> np.ndarray:
    """Y = FastGelu(X @ W + bias)."""
    check_matmul_shapes("GemmFastGelu", x, w)
    product = np.matmul(widen(x), widen(w))
    total = product if bias is None else product + _broadcast_bias("GemmFastGelu", widen(bias), product)
    return narrow(fast_gelu(total), x.dtype)


@kernel("MatMulInteger16", domain="com.microsoft")
def matmul_integer16(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Y = A @ B of 16-bit integers, with 32-bit sums that wrap around."""
    return np.matmul(a.astype(np.int32), b.astype(np.int32))


@kernel("SparseToDenseMatMul", domain="com.microsoft")
def sparse_to_dense_matmul(
    a: SparseArray, b: np.ndarray, *, alpha: float = 1.0, transA: int = 0, transB: int = 0
) -> np.ndarray:
    """Y = alpha * op(A) @ op(B) for a sparse matrix A: each non-zero adds a scaled row of B to one row of Y."""
    rows, columns = np.unravel_index(a.linear_indices(), a.shape)
    height = a.shape[0]
    if transA:
        rows, columns, height = columns, rows, a.shape[1]
    right = b.T if transB else b
    result = np.zeros((height, right.shape[1]), b.dtype)
    np.add.at(result, rows, a.values[:, None] * right[columns])
    return result if alpha == 1.0 else (result * alpha).astype(b.dtype)
