"""check_custom_op(): it passes what is right, and finds each way of being wrong."""

from __future__ import annotations

import threading
from typing import TypeVar

import numpy as np
import pytest
from acme import fast_softcap, softcap
from numpy.typing import NDArray
from onnx import parser

import ort_core as ort
from ort_core.errors import InvalidArgument, OrtError
from ort_core.plugin.kernels import CudaSource, KernelContext, Launch
from ort_core.plugin.loops import Scalar
from ort_core.testing import OpCase, check_custom_op
from ort_core.testing.cuda_emulation import find_compiler
from ort_core.testing.environments import installed
from ort_core.testing.fake_providers import plugin_of

T = TypeVar("T", np.float32, np.float64)
X = np.arange(6, dtype=np.float32).reshape(2, 3)
needs_compiler = pytest.mark.skipif(find_compiler() is None, reason="CUDA is emulated by a C++ compiler; none is here")


def numpy_op(kernel, **options: object):
    @ort.custom_op("com.acme", "Op", **options)
    def op(x: NDArray[np.float32], *, ctx: KernelContext) -> NDArray[np.float32]:
        return kernel(x)

    return op


@needs_compiler
def test_a_right_operator_passes_and_the_report_says_what_was_checked() -> None:
    report = check_custom_op(fast_softcap)
    assert report.num_cases == 5
    assert not report.not_checked
    text = str(report)
    for what in ("threads", "round trip", "shape function", "compiled by the CPU provider", "CUDA C++", "strided"):
        assert what in text


def test_what_cannot_be_checked_is_said_with_the_reason() -> None:
    report = check_custom_op(softcap, [[X], OpCase([X.astype(np.float64)], {"cap": 2})])
    assert report.num_cases == 2
    assert "no shape function" in report.not_checked["shape function on symbolic sizes"]


def test_cases_are_asked_for_where_no_arrays_can_be_made_up() -> None:
    with pytest.raises(InvalidArgument, match=r"needs cases for com.acme::Softcap version 1"):
        check_custom_op(softcap)


def test_a_kernel_that_writes_into_its_input_is_found() -> None:
    def write(x: np.ndarray) -> np.ndarray:
        x += 1
        return x

    with pytest.raises(OrtError, match="read-only"):
        check_custom_op(numpy_op(write), [[X]])


def test_a_kernel_that_remembers_is_found_unless_it_says_so() -> None:
    calls = []

    def remember(x: np.ndarray) -> np.ndarray:
        calls.append(1)
        return x + np.float32(len(calls))

    with pytest.raises(AssertionError, match="a second call gives other results"):
        check_custom_op(numpy_op(remember), [[X]])
    report = check_custom_op(numpy_op(remember, is_deterministic=False), [[X]])
    assert "not deterministic" in report.not_checked["equal results on threads"]


def test_a_kernel_that_threads_disturb_is_found() -> None:
    shared = threading.local()
    lock = threading.Lock()
    known: list[int] = []

    def disturbed(x: np.ndarray) -> np.ndarray:
        with lock:
            shared.number = getattr(shared, "number", None) or len(known)
            known.append(threading.get_ident())
            others = len(set(known)) - 1
        return x + np.float32(others)

    with pytest.raises(AssertionError, match="4 threads at once give other results"):
        check_custom_op(numpy_op(disturbed), [[X]])


def test_a_kernel_that_takes_inputs_to_be_dense_is_found() -> None:
    def dense(x: np.ndarray) -> np.ndarray:
        return np.lib.stride_tricks.as_strided(x, x.shape, np.empty(x.shape, x.dtype).strides).copy()

    with pytest.raises(AssertionError, match="strided inputs give other results"):
        check_custom_op(numpy_op(dense), [[X]])


def test_a_shape_function_that_is_right_for_one_case_only_is_found() -> None:
    op = numpy_op(lambda x: x.T.copy())
    op.shape(lambda x: x)
    check_custom_op(op, [[np.eye(2, dtype=np.float32)]])
    with pytest.raises(OrtError, match=r"shape \[3, 2\], expected \[2, 3\] by its shape function"):
        check_custom_op(op, [[X]])


def test_a_shape_function_that_asks_symbols_for_numbers_is_found() -> None:
    op = numpy_op(lambda x: x)
    op.shape(lambda x: (2, 3) if x[0] == 2 else (x[0] + 1, x[1]))
    with pytest.raises(AssertionError, match=r"the shape function gives \[.*\] for output0"):
        check_custom_op(op, [[X]])


def test_a_formula_that_differs_from_the_numpy_kernel_is_found() -> None:
    @ort.custom_op("com.acme", "Op")
    def op(x: NDArray[np.float32]) -> NDArray[np.float32]:
        return x * 2

    @op.loops
    def _(x: Scalar) -> Scalar:
        return x * 2.01

    with pytest.raises(AssertionError, match="CPUExecutionProvider differs from the numpy kernel"):
        check_custom_op(op)


def test_results_are_compared_with_the_expected_ones() -> None:
    op = numpy_op(lambda x: x + 1)
    check_custom_op(op, [OpCase([X], expected=[X + 1])])
    with pytest.raises(AssertionError, match="differs from the expected outputs"):
        check_custom_op(op, [OpCase([X], expected=[X])])


DOUBLE = """
extern "C" __global__ void doubled(const float* x, float* y, long long count, float factor) {
  const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) y[i] = x[i] * factor;
}
"""


def cuda_op(factor: float):
    @ort.custom_op("com.acme", "Op")
    def op(x: NDArray[np.float32], *, by: float = 2.0) -> NDArray[np.float32]:
        return x * np.float32(by)

    op.shape(lambda x: x)

    def launch(request) -> Launch:
        count = int(np.prod(request.outputs[0], dtype=int))
        return Launch.over(count, count, np.float32(request.attributes["by"] * factor))

    op.cuda(CudaSource(DOUBLE, "doubled", launch))
    return op


@needs_compiler
def test_a_cuda_kernel_is_checked_by_emulation() -> None:
    cases = [[X], OpCase([np.ones((513,), np.float32)], {"by": 3.0}), [np.zeros((0, 2), np.float32)]]
    report = check_custom_op(cuda_op(1.0), cases)
    assert "CUDA kernel (emulated)" in report.checked
    with pytest.raises(AssertionError, match=r"CUDA kernel \(emulated\) differs from the numpy kernel"):
        check_custom_op(cuda_op(1.5), cases)


def test_a_function_over_cupy_arrays_is_told_to_be_unchecked() -> None:
    op = numpy_op(lambda x: x)
    op.cuda(lambda x, *, ctx: x)
    assert "runs on a device only" in check_custom_op(op, [[X]]).not_checked["CUDA kernel (emulated)"]
    with pytest.raises(InvalidArgument, match="has a CUDA kernel already"):
        op.cuda(lambda x: x)


def test_functions_and_several_outputs_are_checked_too() -> None:
    text = """<domain: "com.acme", opset_import: ["" : 21]>
    Both <by: float = 3.0> (x) => (y, z) { c = Constant <value_float: float = @by> () y = Mul (x, c) z = Neg (x) }"""
    report = check_custom_op(text, [OpCase([X], {"by": 2.0}, expected=[X * 2, -X]), [X]])
    assert "round trip through a saved model" in report.checked


@needs_compiler
def test_what_is_checked_in_some_cases_only_is_told() -> None:
    @ort.elementwise_op("com.acme", "Op", dtypes=(np.float32, np.uint32))
    def op(x: Scalar) -> Scalar:
        return x + x

    report = check_custom_op(op)
    name = "loop kernel printed as CUDA C++ (emulated)"
    assert name in report.checked
    assert "uint32 has no CUDA form" in report.not_checked[f"{name}, in some cases"]


def test_an_operator_of_an_installed_package_is_checked_as_any_other() -> None:
    with installed(plugin_of(name="acme", custom_ops=[softcap])):
        report = check_custom_op(softcap, [[X]])
        assert "strided inputs" in report.checked


def test_the_operator_that_was_given_is_checked_not_the_one_of_that_name_that_is_installed() -> None:
    def wrong(x: np.ndarray) -> np.ndarray:
        return x + 1

    with installed(plugin_of(name="acme", custom_ops=[numpy_op(lambda x: x * 2)])):
        check_custom_op(numpy_op(lambda x: x * 3), [OpCase([X], expected=[X * 3])])
        with pytest.raises(AssertionError, match="differs from the expected outputs"):
            check_custom_op(numpy_op(wrong), [OpCase([X], expected=[X * 2])])
        model = parser.parse_model(
            '<ir_version: 8, opset_import: ["com.acme" : 1]> g (float[N] x) => (float[N] y) { y = com.acme.Op(x) }'
        )
        session = ort.InferenceSession(model.SerializeToString())
        np.testing.assert_array_equal(session.run(None, {"x": X[0]})[0], X[0] * 2)
