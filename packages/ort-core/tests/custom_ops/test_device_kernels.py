"""The border around kernels for devices: what a function over device arrays returns, and how a source is launched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import ort_core as ort
from ort_core.errors import InvalidArgument, RuntimeException
from ort_core.ir.types import DataType, TensorType
from ort_core.plugin.kernels import (
    CudaSource,
    KernelContext,
    Launch,
    LaunchRequest,
    Unguarded,
    cuda_parameters,
    plan_launch,
)
from ort_core.testing import check_custom_op
from ort_core.testing.cuda_emulation import find_compiler

needs_compiler = pytest.mark.skipif(find_compiler() is None, reason="CUDA is emulated by a C++ compiler; none is here")
F32, F64 = DataType.FLOAT, DataType.DOUBLE


class DeviceArray:
    """What the border knows of CuPy's arrays: they have the interface, a type and a shape; numpy may not read them."""

    __cuda_array_interface__ = None

    def __init__(self, content: np.ndarray) -> None:
        self._content, self.dtype, self.shape, self.ndim = content, content.dtype, content.shape, content.ndim

    def __array__(self, *_: object) -> np.ndarray:
        raise TypeError("implicit conversion to a host array")

    def map(self, function: Callable[[np.ndarray], np.ndarray]) -> DeviceArray:
        return DeviceArray(function(self._content))


def run_on_device(operator: ort.CustomOp, *arrays: np.ndarray, **attributes: object) -> tuple[Any, ...]:
    """Run the kernel as a provider does."""
    definition = operator.definition()
    kernel = definition.device_kernels["cuda"]
    types = (TensorType(F32, (2, 3)),)
    context = KernelContext("Op", "com.acme", 1, "the_node", (True,), types, {}, Unguarded())
    return kernel(*map(DeviceArray, arrays), ctx=context, **attributes)


def doubling(function: Callable[..., Any]) -> ort.CustomOp:
    @ort.custom_op("com.acme", "Op")
    def op(x: NDArray[np.float32], *, by: float = 2.0) -> NDArray[np.float32]:
        return x * np.float32(by)

    op.shape(lambda x: x)
    op.cuda(function)
    return op


X = np.ones((2, 3), np.float32)


def test_a_function_over_device_arrays_gets_attributes_and_context_as_a_numpy_kernel_does() -> None:
    told = []

    def kernel(x: DeviceArray, *, by: float, ctx: KernelContext) -> DeviceArray:
        told.append((by, ctx.node_name))
        return x.map(lambda content: content * np.float32(by))

    (found,) = run_on_device(doubling(kernel), X, by=3.0)
    assert isinstance(found, DeviceArray)
    run_on_device(doubling(kernel), X)
    assert told == [(3.0, "the_node"), (2.0, "the_node")], "the default of the signature counts, too"


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [
        (lambda x, by: x.map(lambda c: c.astype(np.float64)), r"output 0 \(y\) as float64, expected float32"),
        (lambda x, by: x.map(lambda c: c[:1]), r"shape \[1, 3\], expected \[2, 3\] by its shape function"),
        (lambda x, by: np.ones((2, 3), np.float32), "a ndarray for output 0.*expected an array of the device"),
        (lambda x, by: (x, x), "2 results where the node has 1 outputs"),
        (lambda x, by: x.missing, r"failed on \(float32\[2, 3\], by=3\.0\): AttributeError"),
    ],
)
def test_a_wrong_result_of_a_device_kernel_is_told(kernel: Callable[..., Any], reason: str) -> None:
    with pytest.raises(RuntimeException, match=reason):
        run_on_device(doubling(kernel), X, by=3.0)


def test_the_elements_of_a_device_array_are_not_read_for_a_shape_function() -> None:
    @ort.custom_op("com.acme", "Op")
    def op(x: NDArray[np.float32], counts: NDArray[np.int64]) -> NDArray[np.float32]:
        return np.repeat(x, counts, axis=0)

    op.shape(lambda x, counts: (sum(counts.values), x[1]))  # would fail: the values of a device array are not known
    op.cuda(lambda x, counts: x)
    run_on_device(op, X, np.ones(2, np.int64))


SOURCE = """
// extern "C" __global__ void scaled(int nothing) {   (a comment is no declaration)
extern "C" __global__ void scaled(const float* __restrict__ x, float* y, long long count, float factor) {
  const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) y[i] = x[i] * factor;
}
"""
REQUEST = LaunchRequest(((5,),), ((5,),), {})


def source_with(launch: Callable[[LaunchRequest], object], source: str = SOURCE) -> CudaSource:
    return CudaSource(source, "scaled", launch)  # type: ignore[arg-type]  # wrong ones are tested


def test_the_parameters_of_a_kernel_are_read_from_its_source() -> None:
    parameters = cuda_parameters(SOURCE, "scaled")
    assert parameters is not None
    assert [(each.is_pointer, each.dtype) for each in parameters] == [
        (True, F32), (True, F32), (False, DataType.INT64), (False, F32),
    ]  # fmt: skip
    assert cuda_parameters("MAKE_KERNEL(scaled)", "scaled") is None
    assert cuda_parameters('extern "C" __global__ void scaled() {', "scaled") == ()
    (own,) = cuda_parameters('extern "C" __global__ void __launch_bounds__(64) scaled(Own value) {', "scaled") or ()
    assert own.dtype is None


def test_a_launch_that_fits_is_given_back_and_one_without_blocks_is_none() -> None:
    right = source_with(lambda request: Launch.over(5, 5, np.float32(2)))
    assert plan_launch(right, "Op", REQUEST, [F32, F32]) == Launch((1, 1, 1), (256, 1, 1), (5, np.float32(2)))
    empty = source_with(lambda request: Launch((0, 1, 1), (32, 1, 1), (0, np.float32(2))))
    assert plan_launch(empty, "Op", REQUEST, [F32, F32]) is None


@pytest.mark.parametrize(
    ("launch", "dtypes", "reason"),
    [
        (lambda r: Launch.over(5, 5, 2.0), [F32, F32], r"'float factor' .* 2\.0, which is passed as double"),
        (lambda r: Launch.over(5, np.int32(5), np.float32(2)), [F32, F32], "'long long count' .* passed as int32"),
        (lambda r: Launch.over(5, "5", np.float32(2)), [F32, F32], "which is not a number"),
        (lambda r: Launch.over(5, 5), [F32, F32], "has 4 parameters and is given 3"),
        (lambda r: Launch.over(5, 5, np.float32(2)), [F64, F32], "'const float.* x' .* a pointer to double"),
        (lambda r: Launch.over(5, 5, np.float32(2)), [DataType.INT32, F32], "given a pointer to int32"),
        (lambda r: Launch((1, 1, 1), (2048, 1, 1)), [F32, F32], r"block \(2048, 1, 1\)"),
        (lambda r: Launch((1, 1, 1), (64, 32, 1)), [F32, F32], "1024 threads is the most"),
        (lambda r: Launch((1, 1 << 20, 1), (32, 1, 1)), [F32, F32], "launched with grid"),
        (lambda r: Launch((2.5, 1, 1), (32, 1, 1)), [F32, F32], "expected three integers"),
        (lambda r: (1, 32), [F32, F32], "gave a tuple, expected a Launch"),
        (lambda r: r.attributes["scale"], [F32, F32], r"failed on .*KeyError: 'scale'"),
    ],
)
def test_a_launch_that_does_not_fit_is_told(launch: Callable[..., Any], dtypes: list[DataType], reason: str) -> None:
    with pytest.raises(RuntimeException, match=reason):
        plan_launch(source_with(launch), "Op", REQUEST, dtypes)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (SOURCE.replace("scaled", "other"), "'scaled' of com.acme::Op version 1 is not in its source"),
        (SOURCE.replace('extern "C"', ""), 'write extern "C"'),
        (SOURCE.replace("float* y, ", ""), "a pointer for each of the operator's 2 inputs and outputs"),
    ],
)
def test_a_source_that_cannot_be_the_operators_kernel_is_refused_when_it_is_attached(source: str, reason: str) -> None:
    with pytest.raises(InvalidArgument, match=reason):
        doubling(source_with(lambda request: Launch.over(5), source))  # type: ignore[arg-type]  # a decorator's
    with pytest.raises(InvalidArgument, match=r"is a CudaSource or a function, found 'kernel\.cu'"):
        doubling("kernel.cu")  # type: ignore[arg-type]  # as above


@needs_compiler
@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("if (i <= count) y[i] = x[i] * factor;", r"wrote outside of output 0 \(float32\[5\]\)"),
        ("if (i < count) y[i] = ((float*)x)[i] *= factor;", "changed input 0"),
        ("if (i < count - 1) y[i] = x[i] * factor;", "differs from the numpy kernel"),
    ],
)
def test_a_kernel_that_writes_elsewhere_or_leaves_elements_out_is_caught_by_the_check(line: str, reason: str) -> None:
    source = SOURCE.replace("if (i < count) y[i] = x[i] * factor;", line)
    wrong = source_with(lambda r: Launch.over(r.outputs[0][0], r.outputs[0][0], np.float32(r.attributes["by"])), source)
    with pytest.raises(AssertionError, match=reason):
        check_custom_op(doubling(wrong), [[np.zeros(5, np.float32)], [np.ones(5, np.float32)]])  # type: ignore[arg-type]  # as above
