"""Plain products by cuBLAS. 16-bit floats accumulate in float32."""

from __future__ import annotations

import numpy as np

from ort_core.plugin import EPFail
from ort_core.plugin.ir import DataType
from ort_ep_cuda import _sdk
from ort_ep_cuda.lowering.libraries.library_steps import MatrixProduct
from ort_ep_cuda.lowering.values.views import TensorView

# Numbers of cudaDataType, cublasComputeType_t, cublasOperation_t and cublasGemmAlgo_t.
DATA_TYPES = {DataType.FLOAT: 0, DataType.DOUBLE: 1, DataType.FLOAT16: 2, DataType.BFLOAT16: 14}
_COMPUTE_FLOAT, _COMPUTE_FLOAT_TF32, _COMPUTE_DOUBLE = 68, 77, 70
_PLAIN, _TRANSPOSED = 0, 1
_DEFAULT_ALGORITHM = -1
_LARGEST_SIZE = 2**31 - 1
_SUMS_IN_FLOAT = 16  # of cublasMath_t: parts of a split sum are not kept in 16 bits


def multiply(handle: int, stream: int, product: MatrixProduct, addresses: tuple[int, int, int], use_tf32: bool) -> None:
    """Enqueue a product. cuBLAS counts columns first: what it computes is the transpose, ``b' a'``."""
    cublas = _sdk.cublas()
    cublas.setStream(handle, stream)
    a, b, out = product.a, product.b, product.out
    is_double = out.dtype is DataType.DOUBLE
    scalars = np.array([product.alpha, 0.0], np.float64 if is_double else np.float32)
    compute = (
        _COMPUTE_DOUBLE
        if is_double
        else _COMPUTE_FLOAT_TF32
        if use_tf32 and out.dtype is DataType.FLOAT
        else _COMPUTE_FLOAT
    )
    kind = DATA_TYPES[out.dtype]
    batch, rows, columns = out.shape
    (b_operation, b_step), (a_operation, a_step) = leading(b), leading(a)
    refuse_sizes(batch, rows, columns, a.shape[-1], a_step, b_step)
    mode = cublas.getMathMode(handle)  # CuPy's own handle of this thread, which others use, too
    cublas.setMathMode(handle, mode | _SUMS_IN_FLOAT)
    try:
        cublas.gemmStridedBatchedEx(
            handle, b_operation, a_operation, columns, rows, a.shape[-1], scalars.ctypes.data, addresses[1], kind,
            b_step, b.strides[0], addresses[0], kind, a_step, a.strides[0], scalars.ctypes.data + scalars.itemsize,
            addresses[2], kind, max(columns, 1), out.strides[0], batch, compute, _DEFAULT_ALGORITHM,
        )  # fmt: skip
    finally:
        cublas.setMathMode(handle, mode)


def refuse_sizes(*sizes: int) -> None:
    """Refuse sizes and steps of matrices that do not fit cuBLAS' 32-bit numbers.

    Raises:
        EPFail: one of them is too large.
    """
    largest = max(sizes)
    if largest > _LARGEST_SIZE:
        raise EPFail(
            f"cuBLAS counts the rows, columns and matrices of a product in 32 bits, and {largest} are more than "
            f"{_LARGEST_SIZE}: run it with fewer rows at a time, or leave it to the CPU"
        )


def leading(matrix: TensorView) -> tuple[int, int]:
    """Return how cuBLAS reads the transpose of a ``[batch, rows, columns]`` view: operation and leading dimension."""
    _, rows, columns = matrix.shape
    if matrix.strides[2] == 1 and (matrix.strides[1] >= columns or rows == 1):
        return _PLAIN, max(matrix.strides[1], columns, 1)
    return _TRANSPOSED, max(matrix.strides[2], rows, 1)
