"""Row formulas as CUDA C++: emulated on the CPU they compute what numpy does, and NVIDIA's compiler takes them."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from ort_core import tolerances
from ort_core.ir.types import DataType
from ort_core.loops.cuda_printer import PREAMBLE, InputLayout
from ort_core.loops.cuda_row_printer import print_row_kernel, row_blocks
from ort_core.loops.numpy_evaluation import evaluate_rows
from ort_core.loops.polynomials import exp
from ort_core.loops.rows import is_of_row, row_length, row_max, row_mean, row_min, row_prod, row_sum
from ort_core.loops.scalar import Scalar, cast, element, unary
from ort_core.testing.cuda_emulation import emulate, find_compiler

F32, F64, I32, I64 = DataType.FLOAT, DataType.DOUBLE, DataType.INT32, DataType.INT64
X = element(0, F32)
DENSE, SCALAR, STRIDED = InputLayout.DENSE, InputLayout.SCALAR, InputLayout.STRIDED
needs_compiler = pytest.mark.skipif(find_compiler() is None, reason="CUDA is emulated by a C++ compiler; none is here")


def softmax(x: Scalar) -> Scalar:
    e = exp(x - row_max(x))
    return e / row_sum(e)


def normalized(x: Scalar, weight: Scalar) -> tuple[Scalar, Scalar, Scalar]:
    mean = row_mean(x)
    inverse = 1.0 / unary("sqrt", row_mean((x - mean) * (x - mean)) + 1e-5)
    return (x - mean) * inverse * weight, mean, inverse


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(1, 3, shape).astype(np.float32)


def run(
    folder: Path,
    roots: Sequence[Scalar],
    arrays: Sequence[np.ndarray],
    layouts: Sequence[InputLayout] | None = None,
    block: tuple[int, int, int] | None = None,
) -> list[np.ndarray]:
    """Return the results of a printed kernel, by a grid of 2 blocks whatever the number of rows."""
    shape = np.broadcast_shapes(*(array.shape for array in arrays))
    how = layouts or [STRIDED] * len(arrays)
    dtypes = [DataType.from_numpy(array.dtype) for array in arrays]
    kernel = print_row_kernel(roots, how, len(shape), dtypes, "under_test")
    outs = [np.full((*shape[:-1], 1) if is_of_row(r) else shape, 99, r.dtype.numpy) for r in roots]
    strided = [array for array, layout in zip(arrays, how, strict=True) if layout is STRIDED]
    strides = [s // a.itemsize for a in strided for s in np.broadcast_to(a, shape).strides]
    rows = int(np.prod(shape[:-1], dtype=np.int64))
    numbers = [rows, shape[-1], *(shape[1:-1] if strided else ()), *strides]
    assert len(kernel.parameters) == len(arrays) + len(outs) + len(numbers)
    _, found = row_blocks(rows, shape[-1])
    own_folder = folder / str(len(list(folder.iterdir())))  # a library that is loaded is not replaced
    own_folder.mkdir()
    compiled = emulate(PREAMBLE + kernel.source, ["under_test"], own_folder)["under_test"]
    compiled.launch((2, 1, 1), block or found, [*arrays, *outs, *numbers])
    return outs


def check(folder: Path, roots: Sequence[Scalar], arrays: Sequence[np.ndarray], **how: object) -> None:
    limits = tolerances.tolerance("approximate", "float32")
    for found, expected in zip(run(folder, roots, arrays, **how), evaluate_rows(roots, arrays), strict=True):
        np.testing.assert_allclose(found, expected, limits.relative, limits.absolute)


@needs_compiler
@pytest.mark.parametrize("shape", [(5, 33), (1, 1), (2, 3, 700), (9, 128), (3, 129), (4, 0), (0, 7), (70,)])
def test_a_softmax_is_right_for_rows_of_any_length(tmp_path: Path, shape: tuple[int, ...]) -> None:
    check(tmp_path, [softmax(X)], [floats(*shape)], layouts=[DENSE])


@needs_compiler
@pytest.mark.parametrize("block", [(32, 1, 1), (32, 4, 1), (64, 1, 1), (512, 1, 1)])
def test_any_block_of_whole_warps_computes_the_same_rows(tmp_path: Path, block: tuple[int, int, int]) -> None:
    check(tmp_path, [softmax(X)], [floats(7, 100)], block=block)


@needs_compiler
def test_several_results_of_elements_and_of_rows_come_from_one_kernel(tmp_path: Path) -> None:
    roots = normalized(X, element(1, F32))
    check(tmp_path, roots, [floats(2, 3, 150), floats(150, seed=1)])
    first = element(0, F32)
    check(tmp_path, [row_max(first), first - row_min(first), row_length()], [floats(4, 40)])


@needs_compiler
def test_operands_broadcast_along_and_across_rows(tmp_path: Path) -> None:
    (row, column, one) = (element(k, F32) for k in (1, 2, 3))
    root = softmax(X * column + row) * one
    arrays = [floats(3, 4, 50), floats(50, seed=1), floats(3, 1, 1, seed=2), np.array([2.5], np.float32)]
    check(tmp_path, [root], arrays, layouts=[DENSE, STRIDED, STRIDED, SCALAR])
    check(tmp_path, [root, row_sum(row)], [floats(1, 4, 50), *arrays[1:]])


@needs_compiler
def test_wide_and_whole_numbers_are_reduced_in_their_own_type(tmp_path: Path) -> None:
    double, whole = element(0, F64), element(0, I64)
    check(tmp_path, [double - row_mean(double), row_max(double)], [floats(3, 200).astype(np.float64)])
    (total,) = run(tmp_path, [row_sum(whole)], [np.full((2, 300), 2**40, np.int64)])
    assert total.tolist() == [[300 * 2**40]] * 2
    small = element(0, I32)
    (total,) = run(tmp_path, [row_sum(small) + small], [np.arange(80, dtype=np.int32).reshape(2, 40)])
    assert total[:, 0].tolist() == [780, 780 + 1600 + 40]


@needs_compiler
def test_numbers_of_8_bits_are_reduced_as_int_and_products_as_any_other_reduction(tmp_path: Path) -> None:
    x = np.random.default_rng(0).integers(-128, 127, (3, 170)).astype(np.int8)
    roots = [reduce(element(0, DataType.INT8)) for reduce in (row_max, row_min, row_sum)]
    largest, least, total = run(tmp_path, roots, [x])
    np.testing.assert_array_equal(largest, x.max(-1, keepdims=True))
    np.testing.assert_array_equal(least, x.min(-1, keepdims=True))
    np.testing.assert_array_equal(total, x.sum(-1, keepdims=True, dtype=np.int8))
    (nothing,) = run(tmp_path, [row_max(element(0, DataType.INT8))], [np.zeros((2, 0), np.int8)])
    assert nothing.tolist() == [[-128], [-128]]
    check(tmp_path, [row_prod(X)], [1 + floats(3, 170) / 100])


@needs_compiler
def test_nan_wins_in_a_maximum_and_infinity_stays(tmp_path: Path) -> None:
    x = floats(3, 70)
    x[1, 69], x[2, 3] = np.nan, np.inf
    low, high = run(tmp_path, [row_min(X), row_max(X)], [x])
    assert np.isnan(low[1, 0])
    assert np.isnan(high[1, 0])
    assert (low[2, 0], high[2, 0]) == (x[2].min(), np.inf)


@needs_compiler
def test_formulas_without_reductions_are_computed_as_well(tmp_path: Path) -> None:
    check(tmp_path, [(abs(X) + X) * 0.5, (abs(X) - X) * 0.5], [floats(3, 33)])


def test_a_type_that_no_shuffle_takes_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="sum of a row of uint16 has no CUDA form"):
        print_row_kernel([cast(row_sum(cast(X, DataType.UINT16)), F32)], [DENSE], 2, [F32])
    with pytest.raises(ValueError, match="float16 has no CUDA form"):
        print_row_kernel([softmax(cast(element(0, DataType.FLOAT16), F32))], [DENSE], 2, [DataType.FLOAT16])


def test_the_source_is_the_same_every_time_and_serves_every_size() -> None:
    first, second = (print_row_kernel([softmax(X)], [STRIDED], 3, [F32]) for _ in range(2))
    assert first == second
    assert first.parameters == (
        "in0", "out0", "rows", "columns", "size1", "stride0_0", "stride0_1", "stride0_2",
    )  # fmt: skip


def test_short_rows_get_a_warp_each_and_long_ones_a_block() -> None:
    assert row_blocks(10, 128) == ((3, 1, 1), (32, 4, 1))
    assert row_blocks(10, 129) == ((10, 1, 1), (64, 1, 1))
    assert row_blocks(10, 1 << 20) == ((10, 1, 1), (512, 1, 1))
    assert row_blocks(0, 4) == ((1, 1, 1), (32, 4, 1))
    assert row_blocks(1 << 30, 4096)[0] == (1 << 16, 1, 1)


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on PATH")
def test_nvidias_compiler_takes_the_same_source(tmp_path: Path) -> None:
    whole, double = element(0, I64), element(0, F64)
    formulas = [([softmax(X)], F32), (normalized(X, X), F32), ([row_sum(whole)], I64), ([row_max(double)], F64)]
    kernels = [print_row_kernel(roots, [STRIDED], 3, [dtype], f"k{n}") for n, (roots, dtype) in enumerate(formulas)]
    (tmp_path / "all.cu").write_text(PREAMBLE + "".join(kernel.source for kernel in kernels))
    command = ["nvcc", "-ptx", "-Werror", "all-warnings", "all.cu", "-o", "all.ptx"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "all.ptx").read_text().count(".entry") == len(kernels)
