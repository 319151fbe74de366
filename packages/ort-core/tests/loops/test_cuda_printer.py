"""CUDA text of expressions: what it says, and what it computes when a C++ compiler runs it on the CPU."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from ort_core import tolerances
from ort_core.ir.types import DataType
from ort_core.loops import polynomials
from ort_core.loops.cuda_printer import (
    PREAMBLE,
    InputLayout,
    constant,
    print_elementwise_kernel,
    print_expression,
)
from ort_core.loops.meanings import MEANINGS, gelu, meaning_of
from ort_core.loops.numpy_evaluation import evaluate
from ort_core.loops.scalar import Scalar, binary, bitcast, cast, element, fma, lift, maximum, minimum, select, unary
from ort_core.testing.cuda_emulation import emulate, find_compiler

F32, F64, I32, I64, BOOL = DataType.FLOAT, DataType.DOUBLE, DataType.INT32, DataType.INT64, DataType.BOOL
DENSE, SCALAR, STRIDED = InputLayout.DENSE, InputLayout.SCALAR, InputLayout.STRIDED
needs_compiler = pytest.mark.skipif(find_compiler() is None, reason="CUDA is emulated by a C++ compiler; none is here")
SPECIAL = np.array([0.0, -0.0, 1.0, -1.5, 0.5, 2.5, 1e-30, 3e9, -3e9, 1e20, np.inf, -np.inf, np.nan], np.float32)


Case = tuple[Scalar, Sequence[np.ndarray]]


@dataclass
class Emulated:
    """Expressions over arrays of one shape each, all compiled together."""

    folder: Path

    def run(self, cases: Sequence[Case], layouts=None) -> list[np.ndarray]:
        kernels, calls = [], []
        for number, (root, arrays) in enumerate(cases):
            how = layouts or [DENSE] * len(arrays)
            shape = np.broadcast_shapes(*(array.shape for array in arrays))
            dtypes = [DataType.from_numpy(array.dtype) for array in arrays]
            kernels.append(print_elementwise_kernel(root, how, len(shape), dtypes, f"under_test_{number}"))
            out = np.empty(shape, root.dtype.numpy)
            strided = [array for array, layout in zip(arrays, how, strict=True) if layout is STRIDED]
            strides = [s // a.itemsize for a in strided for s in np.broadcast_to(a, shape).strides]
            numbers = [out.size, *(shape[1:] if strided else ()), *strides]
            assert len(kernels[-1].parameters) == len(arrays) + 1 + len(numbers)
            calls.append((out, [*arrays, out, *numbers]))
        source = PREAMBLE + "".join(kernel.source for kernel in kernels)
        compiled = emulate(source, [kernel.name for kernel in kernels], self.folder)
        for kernel, (_, arguments) in zip(kernels, calls, strict=True):
            compiled[kernel.name].launch((3, 1, 1), (4, 1, 1), arguments)
        return [out for out, _ in calls]

    def check(self, cases: Sequence[Case], kind: str = "exact") -> None:
        """Hold each result against what the expression means in numpy."""
        limits = tolerances.tolerance(kind, "float32")
        for number, ((root, arrays), found) in enumerate(zip(cases, self.run(cases), strict=True)):
            expected, name = evaluate(root, arrays), f"case {number}: {root.operation}"
            np.testing.assert_allclose(found, expected, limits.relative, limits.absolute, err_msg=name)


@pytest.fixture
def emulated(tmp_path) -> Emulated:
    return Emulated(tmp_path)


def test_a_shared_subexpression_is_computed_once() -> None:
    x = element(0, F32)
    square = x * x
    printed = print_expression(square + square, lambda index: f"in{index}[i]")
    assert printed.statements == (
        "const float v0 = in0[i];",
        "const float v1 = __fmul_rn(v0, v0);",
        "const float v2 = v1 + v1;",
    )
    assert printed.result == "v2"


@pytest.mark.parametrize(("dtype", "product"), [(F32, "__fmul_rn"), (F64, "__dmul_rn")])
def test_a_product_is_rounded_before_the_sum_behind_it(dtype: DataType, product: str) -> None:
    """A sign would let the compiler fuse both, as emulation does not, and the squares of equal values would differ."""
    x, y = element(0, dtype), element(1, dtype)
    text = "".join(print_expression(x * x - y * y, lambda index: f"in{index}[i]").statements)
    assert text.count(f"{product}(") == 2
    assert " * " not in text


def test_the_source_of_a_kernel_is_the_same_every_time() -> None:
    first, second = (print_elementwise_kernel(gelu(element(0, F32)), [DENSE], 3, [F32]) for _ in range(2))
    assert first == second
    assert first.name in first.source


def test_sizes_are_arguments_only_where_an_input_is_strided() -> None:
    x, y = element(0, F32), element(1, F32)
    assert print_elementwise_kernel(x + y, [DENSE, SCALAR], 3, [F32, F32]).parameters == ("in0", "in1", "out", "count")
    strided = print_elementwise_kernel(x + y, [DENSE, STRIDED], 2, [F32, F32])
    assert strided.parameters == ("in0", "in1", "out", "count", "size1", "stride1_0", "stride1_1")


@pytest.mark.parametrize("value", [0.1, -2.5, 1e-45, 3.4e38, 16777217.0, -0.0, 7.0])
def test_a_printed_constant_reads_back_as_the_same_float(value: float) -> None:
    text = constant(value, F32).strip("()")
    assert text.endswith("f")
    assert np.float32(text[:-1]).tobytes() == np.float32(value).tobytes()


@pytest.mark.parametrize("value", [2**31 - 1, -(2**31), -1, 0])
def test_integer_constants_are_literals_in_range(value: int) -> None:
    assert eval(constant(value, I32)) == value


def test_a_type_without_a_form_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="float16 has no CUDA form"):
        print_expression(element(0, DataType.FLOAT16), lambda index: "x")
    with pytest.raises(ValueError, match="row"):
        print_expression(Scalar("row", F32), lambda index: "x")


@needs_compiler
def test_polynomials_as_cuda_compute_what_they_mean(emulated) -> None:
    x = np.concatenate([SPECIAL, np.random.default_rng(0).normal(0, 6, 500).astype(np.float32)])
    names = ("exp", "log", "tanh", "sigmoid", "erf")
    emulated.check([(getattr(polynomials, name)(element(0, F32)), [x]) for name in names], "rounding")


def unary_meanings() -> dict[tuple[str, str], Scalar]:
    """Return the meaning of each operator that can be told of one float32 input."""
    found = {}
    for domain, op_type in MEANINGS.keys() - {("", "Not")}:  # Not is of bool
        try:
            root = meaning_of(domain, op_type, [element(0, F32)], {"to": 7})
        except (IndexError, ValueError, TypeError):  # takes more inputs
            continue
        if isinstance(root, Scalar):
            found[domain, op_type] = root
    return found


@needs_compiler
def test_the_meanings_of_unary_operators_print_as_cuda(emulated) -> None:
    roots = unary_meanings()
    assert len(roots) > 25
    emulated.check([(root, [SPECIAL]) for root in roots.values()], "rounding")


@needs_compiler
def test_primitives_of_two_values_mean_the_same_as_in_numpy(emulated) -> None:
    cases = []
    for dtype in (F32, F64, I32, I64):
        values = SPECIAL if dtype.is_float else np.array([0, 1, -7, 5, 2**31 - 1, -(2**31)])
        left, right = (
            each.astype(dtype.numpy) for each in (np.repeat(values, len(values)), np.tile(values, len(values)))
        )
        x, y = element(0, dtype), element(1, dtype)
        operations = ["add", "sub", "mul", "min", "max", "lt", "le", "gt", "ge", "eq", "ne"]
        operations += ["div"] if dtype.is_float else ["and", "or", "xor"]
        cases += [(binary(operation, x, y), [left, right]) for operation in operations]
    emulated.check(cases)


@needs_compiler
def test_casts_and_bits_mean_the_same_as_in_numpy(emulated) -> None:
    x, i = element(0, F32), element(0, I32)
    roots = (cast(x, I32), cast(x, I64), cast(x, F64), bitcast(x, I32), unary("is_nan", x), fma(x, x, -1.0))
    shifts = (binary("shl", i, 3), binary("ashr", i, 3), binary("lshr", i, 3))
    bits = np.append(SPECIAL.view(np.int32), np.int32(-(2**31)))
    whole = (*shifts, -i, abs(i), bitcast(i, F32), cast(i, I64), unary("not", i))
    emulated.check([*((root, [SPECIAL]) for root in roots), *((root, [bits]) for root in whole)])


@needs_compiler
def test_fused_multiply_add_rounds_once(emulated) -> None:
    a = np.array([1 + 2.0**-12], np.float32)
    (found,) = emulated.run([(fma(element(0, F32), element(0, F32), -1.0), [a])])
    assert found[0] == np.float32(np.float64(a[0]) ** 2 - 1) != a[0] * a[0] - np.float32(1)


@needs_compiler
def test_constants_of_every_kind_reach_the_kernel(emulated) -> None:
    x = element(0, F32)
    values = (float("inf"), float("-inf"), float("nan"), -0.5, 1e-40)
    emulated.check([(select(x > 0, lift(value, F32), -lift(value, F32)), [SPECIAL]) for value in values])


@needs_compiler
def test_inputs_are_read_densely_once_or_by_strides(emulated) -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(3, 4, 5)).astype(np.float32)
    row, column = rng.normal(size=(1, 1, 5)).astype(np.float32), rng.normal(size=(3, 4, 1)).astype(np.float32)
    one = np.array([2.5], np.float32)
    root = (element(0, F32) + element(1, F32)) * element(2, F32) - element(3, F32)
    (found,) = emulated.run([(root, [x, row, column, one])], layouts=[DENSE, STRIDED, STRIDED, SCALAR])
    np.testing.assert_array_equal(found, (x + row) * column - one)


@needs_compiler
def test_a_kernel_computes_exactly_the_elements_there_are(emulated) -> None:
    root = maximum(minimum(element(0, F32), 0.5), 0.0)
    shapes = ((0,), (1,), (2, 0, 3), (), (29,))
    for shape, found in zip(
        shapes, emulated.run([(root, [np.ones(shape, np.float32)]) for shape in shapes]), strict=True
    ):
        np.testing.assert_array_equal(found, np.full(shape, 0.5))


@needs_compiler
def test_barriers_shuffles_and_early_exits_work_in_the_emulation(tmp_path) -> None:
    source = """
    extern "C" __global__ void row_sum(const float* x, float* y, int columns) {
      __shared__ float parts[4];
      float sum = 0;
      for (int i = threadIdx.x; i < columns; i += blockDim.x) sum += x[(long long)blockIdx.x * columns + i];
      for (int step = 16; step; step >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, step);
      if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
      __syncthreads();
      if (threadIdx.x) return;
      for (int warp = 1; warp < 4; ++warp) sum += parts[warp];
      y[blockIdx.x] = sum;
    }"""
    x = np.random.default_rng(2).integers(-9, 9, (5, 777)).astype(np.float32)
    y = np.empty(5, np.float32)
    emulate(source, ["row_sum"], tmp_path)["row_sum"].launch((5, 1, 1), (128, 1, 1), [x, y, np.int32(777)])
    np.testing.assert_array_equal(y, x.sum(1))


@needs_compiler
def test_a_source_that_does_not_compile_shows_the_compilers_words(tmp_path) -> None:
    from ort_core.errors import Fail

    with pytest.raises(Fail, match=r"broken\.cu:1.*"):
        emulate('extern "C" __global__ void broken(float* y) { y[0] = nonsense; }', ["broken"], tmp_path)


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on PATH")
def test_nvidias_compiler_takes_the_same_source(tmp_path) -> None:
    roots = [*unary_meanings().values(), cast(element(0, F32), I64), -element(0, F32)]
    kernels = [print_elementwise_kernel(root, [STRIDED], 3, [F32], f"k{n}") for n, root in enumerate(roots)]
    (tmp_path / "all.cu").write_text(PREAMBLE + "".join(kernel.source for kernel in kernels))
    command = ["nvcc", "-ptx", "-Werror", "all-warnings", "all.cu", "-o", "all.ptx"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "all.ptx").read_text().count(".entry") == len(roots)
