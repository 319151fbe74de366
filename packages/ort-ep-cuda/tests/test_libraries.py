"""Calls of cuBLAS and cuDNN on made-up libraries: a product by the definition of BLAS, the graph of a convolution."""

from __future__ import annotations

import ctypes
import types

import numpy as np
import pytest

from ort_core.plugin.ir import DataType
from ort_ep_cuda import _sdk
from ort_ep_cuda.libraries import ConvolutionPlans, multiply
from ort_ep_cuda.lowering.program import Convolution, MatrixProduct
from ort_ep_cuda.lowering.views import TensorView
from ort_ep_cuda.options import CudaOptions

NUMPY = {0: np.float32, 1: np.float64, 2: np.float16}
RANDOM = np.random.default_rng(3)


def _at(address: int, kind: int, count: int) -> np.ndarray:
    dtype = np.dtype(NUMPY[kind])
    return np.ctypeslib.as_array((ctypes.c_uint8 * (count * dtype.itemsize)).from_address(address)).view(dtype)


class FakeCublas:
    """gemmStridedBatchedEx as BLAS defines it: matrices lie column by column, leading dimensions apart."""

    def __init__(self) -> None:
        self.compute = 0

    def setStream(self, handle: int, stream: int) -> None:  # noqa: N802 - cuBLAS' name
        assert (handle, stream) == (1, 2)

    def gemmStridedBatchedEx(  # noqa: N802 - cuBLAS' name
        self, handle, op_a, op_b, m, n, k, alpha, a, a_type, lda, a_step, b, b_type, ldb, b_step, beta, c, c_type, ldc,
        c_step, batch, compute, algorithm,
    ) -> None:  # fmt: skip
        self.compute = compute
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
    product = MatrixProduct(_view(a), _view(b), _view(out), 0.5)
    multiply(1, 2, product, (a.ctypes.data, b.ctypes.data, out.ctypes.data), use_tf32=False)
    np.testing.assert_allclose(out, 0.5 * (a @ b), rtol=1e-5)
    assert library.compute == (70 if dtype is np.float64 else 68)


def test_a_factor_that_all_batches_share_is_not_stepped_through(monkeypatch) -> None:
    monkeypatch.setattr(_sdk, "cublas", FakeCublas)
    a, b = RANDOM.standard_normal((3, 4)), RANDOM.standard_normal((2, 4, 5))
    shared = TensorView(0, DataType.DOUBLE, (2, 3, 4), (0, 4, 1))
    out = np.empty((2, 3, 5))
    multiply(1, 2, MatrixProduct(shared, _view(b), _view(out)), (a.ctypes.data, b.ctypes.data, out.ctypes.data), False)
    np.testing.assert_allclose(out, a @ b)


class Recorder:
    """Stands for cuDNN's graph and tensors: notes every call."""

    def __init__(self, calls: list[tuple[str, dict]]) -> None:
        self._calls = calls

    def __getattr__(self, name: str):
        def call(*arguments, **named):
            self._calls.append((name, {**named, "": arguments}))
            return 64 if name == "get_workspace_size" else Recorder(self._calls)

        return call


@pytest.fixture
def calls(monkeypatch) -> list[tuple[str, dict]]:
    """The calls that cuDNN was asked for."""
    made: list[tuple[str, dict]] = []
    names = types.SimpleNamespace
    library = names(
        data_type=names(FLOAT="f32", HALF="f16", BFLOAT16="bf16"), heur_mode=names(A="A", FALLBACK="F"),
        numerical_note=names(TENSOR_CORE="tc", DOWN_CONVERT_INPUTS="down", REDUCED_PRECISION_REDUCTION="reduced"),
        build_plan_policy=names(ALL="all", HEURISTICS_CHOICE="first"), create_handle=lambda: 9,
        set_stream=lambda handle, stream: made.append(("set_stream", {"handle": handle, "stream": stream})),
        pygraph=lambda **named: made.append(("pygraph", named)) or Recorder(made),
    )  # fmt: skip
    monkeypatch.setattr(_sdk, "cudnn", lambda: library)
    return made


def _convolution(*, is_transposed: bool = False, buffer: int = 0) -> Convolution:
    x, w, out = (TensorView.dense(buffer, DataType.FLOAT, shape) for shape in ((2, 6, 9), (4, 3, 3), (2, 4, 9)))
    return Convolution(x, w, out, (1,), (1,), (1,), (1,), 2, is_transposed)


def _plans(**options: object) -> ConvolutionPlans:
    gpu = types.SimpleNamespace(allocate=lambda nbytes: types.SimpleNamespace(address=77, nbytes=nbytes))
    return ConvolutionPlans(gpu, CudaOptions(**options))


def test_a_convolution_is_built_once_for_equal_sizes_and_run_on_its_stream(calls) -> None:
    plans = _plans()
    for buffer in (0, 5):
        plans.run(_convolution(buffer=buffer), (1, 2, 3), stream=4)
    names = [name for name, _ in calls]
    assert names.count("pygraph") == 1
    assert names.count("execute") == 2
    assert ("set_stream", {"handle": 9, "stream": 4}) in calls
    plans.run(_convolution(), (1, 2, 3), stream=8)
    assert [name for name, _ in calls].count("pygraph") == 2, "scratch memory belongs to a stream"


def test_one_axis_of_space_gets_another_of_a_single_place(calls) -> None:
    _plans().run(_convolution(), (1, 2, 3), stream=4)
    found = dict(calls)
    assert found["conv_fprop"]["pre_padding"] == [0, 1]
    assert found["set_dim"][""] == ([2, 4, 1, 9],)
    assert found["set_stride"][""] == ([36, 9, 9, 1],)


def test_a_transposed_convolution_is_the_gradient_of_one(calls) -> None:
    _plans().run(_convolution(is_transposed=True), (1, 2, 3), stream=4)
    assert {"loss", "filter"} <= set(dict(calls)["conv_dgrad"])


def test_float32_excludes_engines_that_round_unless_tf32_is_allowed(calls) -> None:
    _plans().run(_convolution(), (1, 2, 3), stream=4)
    assert dict(calls)["deselect_numeric_notes"][""] == (["tc", "down", "reduced"],)
    calls.clear()
    _plans(use_tf32=True).run(_convolution(), (1, 2, 3), stream=4)
    assert "deselect_numeric_notes" not in dict(calls)


def test_options_choose_the_search_and_bound_scratch_memory(calls) -> None:
    _plans(cudnn_conv_algo_search="EXHAUSTIVE", cudnn_conv_use_max_workspace=False).run(_convolution(), (1, 2, 3), 4)
    found = dict(calls)
    assert found["build_plans"][""] == ("all",)
    assert found["deselect_workspace_greater_than"][""] == (32 << 20,)
