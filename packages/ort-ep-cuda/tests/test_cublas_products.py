"""Plain products by cuBLAS on a made-up library that does what BLAS defines."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from ort_core.plugin import EPFail
from ort_core.plugin.ir import DataType
from ort_ep_cuda import _sdk
from ort_ep_cuda.engines.cublas_products import multiply
from ort_ep_cuda.lowering.libraries.library_steps import MatrixProduct
from ort_ep_cuda.lowering.values.views import TensorView

NUMPY = {0: np.float32, 1: np.float64, 2: np.float16}
RANDOM = np.random.default_rng(3)


def _at(address: int, kind: int, count: int) -> np.ndarray:
    dtype = np.dtype(NUMPY[kind])
    return np.ctypeslib.as_array((ctypes.c_uint8 * (count * dtype.itemsize)).from_address(address)).view(dtype)


class FakeCublas:
    """gemmStridedBatchedEx as BLAS defines it: matrices lie column by column, leading dimensions apart."""

    def __init__(self) -> None:
        self.compute = 0
        self.mode = self.mode_of_call = 2

    def getMathMode(self, handle: int) -> int:  # noqa: N802 - cuBLAS' name
        return self.mode

    def setMathMode(self, handle: int, mode: int) -> None:  # noqa: N802 - cuBLAS' name
        self.mode = mode

    def setStream(self, handle: int, stream: int) -> None:  # noqa: N802 - cuBLAS' name
        assert (handle, stream) == (1, 2)

    def gemmStridedBatchedEx(  # noqa: N802 - cuBLAS' name
        self, handle, op_a, op_b, m, n, k, alpha, a, a_type, lda, a_step, b, b_type, ldb, b_step, beta, c, c_type, ldc,
        c_step, batch, compute, algorithm,
    ) -> None:  # fmt: skip
        self.compute, self.mode_of_call = compute, self.mode
        scalar = ctypes.c_double if compute == 70 else ctypes.c_float
        scale, keep = (scalar.from_address(place).value for place in (alpha, beta))
        assert keep == 0.0
        item = np.dtype(NUMPY[a_type]).itemsize
        for number in range(batch):
            left = self._matrix(a + number * a_step * item, a_type, op_a, m, k, lda)
            right = self._matrix(b + number * b_step * item, b_type, op_b, k, n, ldb)
            assert ldc >= m
            out = _at(c + number * c_step * item, c_type, (n - 1) * ldc + m)
            for column in range(n):
                out[column * ldc : column * ldc + m] = scale * (left @ right[:, column])

    def _matrix(self, address: int, kind: int, operation: int, rows: int, columns: int, leading: int) -> np.ndarray:
        if operation:
            return self._matrix(address, kind, 0, columns, rows, leading).T
        assert leading >= rows
        flat = _at(address, kind, (columns - 1) * leading + rows)
        return np.stack([flat[column * leading : column * leading + rows] for column in range(columns)], 1)


def _view(array: np.ndarray) -> TensorView:
    strides = tuple(stride // array.itemsize for stride in array.strides)
    return TensorView(0, DataType.from_numpy(array.dtype), array.shape, strides)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("is_left_transposed", [False, True])
@pytest.mark.parametrize("is_right_transposed", [False, True])
@pytest.mark.parametrize(("rows", "inner", "columns"), [(3, 4, 5), (1, 4, 5), (3, 1, 5), (3, 4, 1), (1, 1, 1)])
def test_a_product_is_what_blas_defines(
    monkeypatch, dtype, is_left_transposed, is_right_transposed, rows, inner, columns
) -> None:
    library = FakeCublas()
    monkeypatch.setattr(_sdk, "cublas", lambda: library)
    a = RANDOM.standard_normal((2, inner, rows) if is_left_transposed else (2, rows, inner)).astype(dtype)
    b = RANDOM.standard_normal((2, columns, inner) if is_right_transposed else (2, inner, columns)).astype(dtype)
    a, b = (m.transpose(0, 2, 1) if t else m for m, t in ((a, is_left_transposed), (b, is_right_transposed)))
    out = np.empty((2, rows, columns), dtype)
    product = MatrixProduct(_view(out), _view(a), _view(b), 0.5)
    multiply(1, 2, product, (a.ctypes.data, b.ctypes.data, out.ctypes.data), use_tf32=False)
    np.testing.assert_allclose(out, 0.5 * (a @ b), rtol=1e-5)
    assert library.compute == (70 if dtype is np.float64 else 68)


def test_a_factor_that_all_batches_share_is_not_stepped_through(monkeypatch) -> None:
    monkeypatch.setattr(_sdk, "cublas", FakeCublas)
    a, b = RANDOM.standard_normal((3, 4)), RANDOM.standard_normal((2, 4, 5))
    shared = TensorView(0, DataType.DOUBLE, (2, 3, 4), (0, 4, 1))
    out = np.empty((2, 3, 5))
    multiply(1, 2, MatrixProduct(_view(out), shared, _view(b)), (a.ctypes.data, b.ctypes.data, out.ctypes.data), False)
    np.testing.assert_allclose(out, a @ b)


@pytest.mark.parametrize(("dtype", "use_tf32", "compute"), [("f4", True, 77), ("f2", True, 68), ("f4", False, 68)])
def test_tf32_is_a_matter_of_float32_alone(monkeypatch, dtype, use_tf32, compute) -> None:
    library = FakeCublas()
    monkeypatch.setattr(_sdk, "cublas", lambda: library)
    a, b, out = (np.ones((1, 2, 2), dtype) for _ in range(3))
    places = (a.ctypes.data, b.ctypes.data, out.ctypes.data)
    multiply(1, 2, MatrixProduct(_view(out), _view(a), _view(b)), places, use_tf32)
    assert library.compute == compute


def test_parts_of_a_sum_are_kept_in_float32_and_the_handle_is_left_as_it_was(monkeypatch) -> None:
    """By default cuBLAS may add the parts of a split sum in 16 bits; the handle is that of all of CuPy."""
    library = FakeCublas()
    monkeypatch.setattr(_sdk, "cublas", lambda: library)
    a, b, out = (np.ones((1, 2, 2), "f2") for _ in range(3))
    places = (a.ctypes.data, b.ctypes.data, out.ctypes.data)
    multiply(1, 2, MatrixProduct(_view(out), _view(a), _view(b)), places, use_tf32=False)
    assert (library.mode_of_call, library.mode) == (2 | 16, 2)


@pytest.mark.parametrize("shape", [(1, 2**31, 1, 1), (1, 1, 2**31, 1), (1, 1, 1, 2**31), (2**31, 1, 1, 1)])
def test_sizes_that_cublas_cannot_count_are_refused_before_it_is_called(monkeypatch, shape) -> None:
    """CuPy would say that an integer is too large for a C int, of no product in particular."""
    monkeypatch.setattr(_sdk, "cublas", FakeCublas)
    batch, rows, inner, columns = shape
    a, b, out = (
        TensorView.dense(0, DataType.FLOAT16, each)
        for each in ((batch, rows, inner), (batch, inner, columns), (batch, rows, columns))
    )
    with pytest.raises(EPFail, match=r"32 bits, and 2147483648 are .* fewer rows"):
        multiply(1, 2, MatrixProduct(out, a, b), (0, 0, 0), use_tf32=False)
