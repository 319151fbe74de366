"""Users' operators with a CUDA kernel, in CUDA C++ or over CuPy's arrays: called, checked, never captured if Python."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import pytest
from emulated_gpu import ArrayOfDevice, EmulatedGpu
from emulated_provider import session_of
from numpy.typing import NDArray

import ort_core as ort
from ort_core.plugin import EPFail, OrtError
from ort_core.plugin.kernels import CudaSource, KernelContext, Launch, LaunchRequest
from ort_core.plugin.loops import Scalar

T = TypeVar("T", np.float32, np.float64)
X = np.arange(12, dtype=np.float32).reshape(3, 4) - 5

SOURCE = """
__device__ float factor_of(const float* bias, float factor) { return bias ? factor : -factor; }
extern "C" __global__ void scaled(const float* x, const float* bias, float* y, long long count, float factor, bool up) {
  const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) y[i] = x[i] * factor_of(bias, factor) + (bias ? bias[0] : 0.0f) + (up ? 100.0f : 0.0f);
}
"""


def launch_scaled(request: LaunchRequest) -> Launch:
    (rows, columns) = request.outputs[0]
    return Launch.over(
        rows * columns, rows * columns, np.float32(request.attributes["factor"]), request.attributes["up"]
    )


def scaled(launch=launch_scaled, source: str = SOURCE) -> ort.CustomOp:
    @ort.custom_op("com.acme", "Scaled")
    def op(x: NDArray[T], bias: NDArray[T] | None = None, *, factor: float = 2.0, up: bool = False) -> NDArray[T]:
        found = x * np.array(-factor if bias is None else factor, x.dtype)
        return found + (0 if bias is None else bias[0]) + x.dtype.type(100 if up else 0)

    op.shape(lambda x, bias: x)
    op.cuda(CudaSource(source, "scaled", launch))
    return op


def test_a_cuda_source_is_launched_between_generated_kernels(gpu: EmulatedGpu) -> None:
    body = (
        "g (float[N,4] x, float[1] b) => (float[4,N] y) {"
        " a = Neg(x) s = com.acme.Scaled<factor: float = 3.0, up: int = 1>(a, b) y = Transpose(s) }"
    )
    session = session_of(body, operators=[scaled()])
    for n in range(4):  # launched one by one, then replayed from a captured graph
        x = X + n
        found = session.run(None, {"x": x, "b": np.ones(1, "f4")})[0]
        np.testing.assert_array_equal(found, (-x * 3 + 1 + 100).T)
    assert gpu.captures == 1


def test_an_absent_input_is_a_null_pointer_and_attributes_have_their_defaults(gpu: EmulatedGpu) -> None:
    body = "g (float[N,4] x) => (float[N,4] y) { y = com.acme.Scaled(x) }"
    np.testing.assert_array_equal(session_of(body, operators=[scaled()]).run(None, {"x": X})[0], X * -2)


def test_a_strided_input_is_given_dense(gpu: EmulatedGpu) -> None:
    body = "g (float[3,4] x) => (float[4,3] y) { t = Transpose(x) y = com.acme.Scaled(t) }"
    np.testing.assert_array_equal(session_of(body, operators=[scaled()]).run(None, {"x": X})[0], X.T * -2)


def test_two_sources_may_use_the_same_names(gpu: EmulatedGpu) -> None:
    other = SOURCE.replace("x[i] *", "x[i] +")

    @ort.custom_op("com.acme", "Shifted")
    def shifted(
        x: NDArray[np.float32], bias: NDArray[np.float32] | None = None, *, factor: float = 2.0, up: bool = False
    ) -> NDArray[np.float32]:
        return x - np.float32(factor)

    shifted.shape(lambda x, bias: x)
    shifted.cuda(CudaSource(other, "scaled", launch_scaled))
    body = "g (float[3,4] x) => (float[3,4] y) { s = com.acme.Scaled(x) y = com.acme.Shifted(s) }"
    np.testing.assert_array_equal(session_of(body, operators=[scaled(), shifted]).run(None, {"x": X})[0], X * -2 - 2)


def test_types_that_a_source_does_not_point_to_are_left_to_the_numpy_kernel(gpu: EmulatedGpu) -> None:
    session = session_of(
        "g (double[N,4] x) => (double[N,4] y) { y = com.acme.Scaled(x) }", strict=False, operators=[scaled()]
    )
    assert "the parameter 'const float* x' of its CUDA kernel 'scaled' would be given a pointer to double" in str(
        session.explain()
    )
    np.testing.assert_array_equal(session.run(None, {"x": X.astype("f8")})[0], X * -2.0)


def test_a_launch_that_does_not_fit_is_an_error_that_names_the_node(gpu: EmulatedGpu) -> None:
    def wrong(request: LaunchRequest) -> Launch:
        return Launch.over(12, 12, 2.0, True)

    session = session_of(
        "g (float[3,4] x) => (float[3,4] y) { [the_node] y = com.acme.Scaled(x) }", operators=[scaled(wrong)]
    )
    with pytest.raises(OrtError, match=r"'float factor'.*'the_node'.*passed as double"):
        session.run(None, {"x": X})


def test_a_launch_that_fails_is_an_error_with_the_line_of_the_user(gpu: EmulatedGpu) -> None:
    def failing(request: LaunchRequest) -> Launch:
        return request.attributes["missing"]

    session = session_of("g (float[3,4] x) => (float[3,4] y) { y = com.acme.Scaled(x) }", operators=[scaled(failing)])
    with pytest.raises(OrtError, match=r"(?s)KeyError: 'missing'.*request.attributes\[.missing.\]"):
        session.run(None, {"x": X})


def repeated(**arguments) -> ort.CustomOp:
    @ort.custom_op("com.acme", "RepeatRows", **arguments)
    def op(x: NDArray[np.float32], *, times: int = 2) -> NDArray[np.float32]:
        return np.repeat(x, times, axis=0)

    return op


REPEAT = "g (float[N,4] x) => (float[M,4] y) { a = Neg(x) r = com.acme.RepeatRows<times: int = 3>(a) y = Neg(r) }"


def test_a_function_over_device_arrays_gives_the_size_that_its_shape_function_says(gpu: EmulatedGpu) -> None:
    op, given = repeated(), []
    op.shape(lambda x, times: (x[0] * times, x[1]))

    @op.cuda
    def on_device(x, *, times):
        given.append(type(x))
        return np.repeat(x, times, axis=0)

    session = session_of(REPEAT, operators=[op])
    for rows in (3, 2, 3, 3):
        np.testing.assert_array_equal(session.run(None, {"x": X[:rows]})[0], np.repeat(X[:rows], 3, axis=0))
    assert given == [ArrayOfDevice] * 4
    assert gpu.captures == 0, "what Python does is not recorded"


def test_a_kernel_whose_sizes_only_a_run_can_tell_is_left_to_the_cpu(gpu: EmulatedGpu) -> None:
    op = repeated()
    op.cuda(lambda x, *, times: np.repeat(x, times, axis=0))
    session = session_of(
        "g (float[N,4] x) => (float[M,4] y) { y = com.acme.RepeatRows(x) }", strict=False, operators=[op]
    )
    assert "of 'y' does not follow from the sizes of the node's inputs" in str(session.explain())
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], np.repeat(X, 2, axis=0))


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda x, *, times: x.astype(np.float64), "as float64, expected float32"),
        (lambda x, *, times: x[:1], r"shape \[1, 4\], expected \[6, 4\] by its shape function"),
        (lambda x, *, times: np.ones((6, 4), "f4"), "expected an array of the device"),
        (lambda x, *, times: x.missing, "AttributeError"),
    ],
)
def test_what_a_function_over_device_arrays_gives_is_checked(gpu: EmulatedGpu, function, words: str) -> None:
    op = repeated()
    op.shape(lambda x, times: (x[0] * times, x[1]))
    op.cuda(function)
    session = session_of("g (float[N,4] x) => (float[M,4] y) { y = com.acme.RepeatRows(x) }", operators=[op])
    with pytest.raises(OrtError, match=words):
        session.run(None, {"x": X})


def test_a_result_beside_the_plan_is_an_error_where_the_shape_function_was_not_asked(gpu: EmulatedGpu) -> None:
    @ort.custom_op("com.acme", "Picked")
    def op(x: NDArray[np.float32], at: NDArray[np.int64]) -> NDArray[np.float32]:
        return x[at]

    op.shape(lambda x, at: (at[0], x[1]))
    op.cuda(lambda x, at: x)
    session = session_of("g (float[N,4] x, int64[K] i) => (float[K,4] y) { y = com.acme.Picked(x, i) }", operators=[op])
    with pytest.raises(EPFail, match=r"returned float32\[3, 4\] for output 0, expected float32\[2, 4\]"):
        session.run(None, {"x": X, "i": np.array([0, 1])})


class Count:
    """How often a node ran."""

    def __init__(self) -> None:
        self.runs = 0


def test_the_state_of_a_node_is_one_for_all_sizes(gpu: EmulatedGpu) -> None:
    @ort.custom_op("com.acme", "Counted", state=Count)
    def op(x: NDArray[np.float32], *, state: Count, ctx: KernelContext) -> NDArray[np.float32]:
        return x

    op.shape(lambda x: x)

    @op.cuda
    def on_device(x, *, state: Count, ctx: KernelContext):
        ctx.guard.check()
        state.runs += 1
        return x + state.runs

    session = session_of("g (float[N,4] x) => (float[N,4] y) { y = com.acme.Counted(x) }", operators=[op])
    found = [session.run(None, {"x": np.zeros((rows, 4), "f4")})[0][0, 0] for rows in (3, 2, 3)]
    assert found == [1, 2, 3]


def test_a_kernel_for_the_device_goes_before_the_formula_which_serves_other_types(gpu: EmulatedGpu) -> None:
    @ort.elementwise_op("com.acme", "Twice", dtypes=(np.float32, np.float64))
    def op(x: Scalar) -> Scalar:
        return x * 2.0

    text = 'extern "C" __global__ void twice(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x] * 4.0f; }'
    op.cuda(CudaSource(text, "twice", lambda request: Launch((1, 1, 1), (3, 1, 1))))
    for dtype, factor in (("float", 4), ("double", 2)):
        session = session_of(f"g ({dtype}[3] x) => ({dtype}[3] y) {{ y = com.acme.Twice(x) }}", operators=[op])
        x = np.arange(3).astype("f4" if dtype == "float" else "f8")
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], x * factor)
